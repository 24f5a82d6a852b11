//! The PVFS2 (OrangeFS) wire protocol as a state machine: bytes to messages and back, no sockets.

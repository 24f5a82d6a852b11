//! The NBD protocol as a state machine: bytes to commands and back, no sockets.

//! iSCSI and SCSI as state machines: bytes to commands and back, no sockets.

//! The data plane: event loop, buffers, sockets, control.

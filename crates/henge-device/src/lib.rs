//! Device models: hard disks, SSDs, arrays, constant rate.

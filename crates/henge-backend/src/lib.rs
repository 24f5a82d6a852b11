//! Real storage behind a gate: files, block devices, memory, emulated disks.

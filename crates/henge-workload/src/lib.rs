//! Workloads: trace readers and generators.

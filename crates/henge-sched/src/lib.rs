//! Schedulers, depth controllers and cost models, one file each.

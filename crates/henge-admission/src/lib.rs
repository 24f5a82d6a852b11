//! Virtual disk specifications, admission and placement.

//! What people look at: tables, figures, and pages that hold them.

pub mod figure;
pub mod json;
pub mod page;
pub mod plots;
pub mod results;
pub mod table;
pub mod totals;

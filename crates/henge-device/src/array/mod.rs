//! Arrays built from any devices: RAID-0, RAID-1, RAID-5.
//!
//! An array plans, per request, what each member has to do; [`fan::Fan`] carries the plan out.
//! [`Stripes`] is the striping formula of RAID-0, public because an owner that gates every spindle by itself
//! splits requests with it.

pub(crate) mod fan;
mod raid0;
mod stripes;

pub use raid0::Raid0;
pub use stripes::{Piece, Stripes};

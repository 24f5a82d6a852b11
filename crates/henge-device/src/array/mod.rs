//! Arrays built from any devices: RAID-0, RAID-1, RAID-5.
//!
//! An array plans, per request, what each member has to do; [`fan::Fan`] carries the plan out.
//! [`Stripes`] is the striping formula of RAID-0, public because an owner that gates every spindle by itself
//! splits requests with it.

pub(crate) mod fan;
mod raid0;
mod raid1;
mod raid5;
mod stripes;

pub use raid0::Raid0;
pub use raid1::Raid1;
pub use raid5::Raid5;
pub use stripes::{Piece, Stripes};

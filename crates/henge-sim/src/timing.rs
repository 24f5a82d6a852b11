//! What of a run is measured.

use henge_core::Duration;

/// How a run is measured.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Not measured.
    pub warmup: Duration,
    /// Measured, after the warm-up.
    pub duration: Duration,
    /// Width of the windows.
    pub window: Duration,
}

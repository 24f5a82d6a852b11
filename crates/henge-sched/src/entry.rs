//! What a scheduler's file says of itself, for [`SCHEDULERS`](crate::SCHEDULERS).

use crate::terms::Terms;
use henge_core::{ParamError, Params, Scheduler};

/// In which order a scheduler takes the requests of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// As they came.
    Arrival,
    /// Reordered: by position on the device, or by deadlines of their own.
    Position,
}

/// The depth where configuration states none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultDepth {
    /// So many at once.
    Fixed(u32),
    /// A controller of `depth/` with its own defaults.
    Controller(&'static str),
}

/// What suits a scheduler where the pool is a device of unknown speed: [`suit_device`](crate::suit_device) says it where nothing else is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnDevice {
    /// To charge the device's time, learned: it counts rates and limits in units of their own beside that.
    pub time: bool,
    /// A depth that gives way to promises: it loses nothing by many requests at once.
    pub kept: bool,
    /// Weights are promises as well, where nobody says what they count.
    pub shares: bool,
}

/// How a scheduler is made from its parameters.
pub type Build = fn(&mut Params, Terms) -> Result<Box<dyn Scheduler>, ParamError>;

/// What the registry knows of a scheduler. The conformance suite holds it to this.
#[derive(Clone, Copy)]
pub struct Entry {
    /// By which configuration calls it.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// The terms of a contract that it keeps.
    pub keeps: &'static [&'static str],
    /// Order within a flow.
    pub order: Order,
    /// With its default parameters and no limits, it never waits while it holds a request.
    pub work_conserving: bool,
    /// Depth where none is stated.
    pub depth: DefaultDepth,
    /// Cost model where none is stated.
    pub cost: &'static str,
    /// What suits it on a device.
    pub on_device: OnDevice,
    /// Makes it.
    pub build: Build,
}

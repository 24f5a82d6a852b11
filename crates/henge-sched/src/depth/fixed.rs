//! The same depth always: the D of SFQ(D).
//!
//! A small depth keeps waiting in the scheduler, where order can still be chosen; a large one lets the device
//! reorder and overlap. Unfairness grows with it: (D + 1) requests a flow (see `sfq.rs`).

use crate::terms::Terms;
use henge_core::{DepthController, DepthPart, ParamError, Params};

/// Largest depth that configuration takes.
pub const DEPTH_MAX: u64 = 65_536;

/// A depth that never changes.
#[derive(Clone, Copy, Debug)]
pub struct FixedDepth {
    depth: u32,
    part: DepthPart,
}

impl FixedDepth {
    /// `depth` requests at once, at least one.
    pub fn new(depth: u32) -> Self {
        assert!(depth > 0, "a depth of zero serves nothing");
        FixedDepth { depth, part: DepthPart::ALL }
    }
}

impl DepthController for FixedDepth {
    fn depth(&self) -> u32 {
        self.part.of(self.depth)
    }
    fn whole(&self) -> Option<u32> {
        Some(self.depth)
    }
    fn divide(&mut self, part: DepthPart) {
        self.part = part;
    }
}

/// `fixed = { depth = 32 }`
pub(super) fn build(params: &mut Params, _: &Terms) -> Result<Box<dyn DepthController>, ParamError> {
    let depth = params.integer("depth", 1, DEPTH_MAX)?;
    Ok(Box::new(FixedDepth::new(params.required("depth", depth)? as u32)))
}

//! A table of flows: [`FlowId`]s are small and dense, so it is an array.

use henge_core::FlowId;

/// Something for each flow that is set.
#[derive(Clone, Debug)]
pub struct Flows<T> {
    table: Vec<Option<T>>,
}

impl<T> Default for Flows<T> {
    fn default() -> Self {
        Flows { table: Vec::new() }
    }
}

impl<T> Flows<T> {
    /// No flow.
    pub fn new() -> Self {
        Self::default()
    }
    /// The flow's, to change it; made by `new` if the flow is not set yet.
    pub fn get_or_insert_with(&mut self, flow: FlowId, new: impl FnOnce() -> T) -> &mut T {
        if self.table.len() <= flow.index() {
            self.table.resize_with(flow.index() + 1, || None);
        }
        self.table[flow.index()].get_or_insert_with(new)
    }
    /// The flow's.
    pub fn get(&self, flow: FlowId) -> Option<&T> {
        self.table.get(flow.index())?.as_ref()
    }
    /// The flow's, to change it.
    pub fn get_mut(&mut self, flow: FlowId) -> Option<&mut T> {
        self.table.get_mut(flow.index())?.as_mut()
    }
    /// Forgets the flow.
    pub fn remove(&mut self, flow: FlowId) -> Option<T> {
        self.table.get_mut(flow.index())?.take()
    }
    /// All flows that are set, by number.
    pub fn iter(&self) -> impl Iterator<Item = (FlowId, &T)> {
        self.table.iter().enumerate().filter_map(|(i, t)| t.as_ref().map(|t| (FlowId(i as u32), t)))
    }
    /// The same, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (FlowId, &mut T)> {
        self.table.iter_mut().enumerate().filter_map(|(i, t)| t.as_mut().map(|t| (FlowId(i as u32), t)))
    }
}

/// The state of a flow that must be there.
///
/// # Panics
/// When the flow was never set: an error of the caller.
impl<T> std::ops::Index<FlowId> for Flows<T> {
    type Output = T;
    fn index(&self, flow: FlowId) -> &T {
        self.get(flow).unwrap_or_else(|| panic!("{flow:?} was never set"))
    }
}
impl<T> std::ops::IndexMut<FlowId> for Flows<T> {
    fn index_mut(&mut self, flow: FlowId) -> &mut T {
        self.get_mut(flow).unwrap_or_else(|| panic!("{flow:?} was never set"))
    }
}

//! `memory`: forgotten at the end.

use super::{Kind, Medium, Read, Wanted};
use crate::{Memory, Store};
use henge_core::Params;
use std::io;
use std::sync::Arc;

pub(super) const KIND: Kind = Kind { key: "memory", example: "memory = true", read };

#[derive(Debug)]
struct InMemory;

fn read(p: &mut Params) -> Read {
    let wanted = p.bool("memory")?.unwrap_or(false);
    Ok(wanted.then(|| Arc::new(InMemory) as Arc<dyn Medium>))
}

impl Medium for InMemory {
    fn is_lost_at_the_end(&self) -> bool {
        true
    }
    fn key(&self) -> &'static str {
        "memory"
    }
    fn open(&self, wanted: &Wanted<'_>) -> io::Result<Box<dyn Store>> {
        Ok(Box::new(Memory::new(wanted.capacity)?))
    }
    fn has_spindles(&self) -> bool {
        true
    }
    fn copies(&self) -> bool {
        true
    }
}

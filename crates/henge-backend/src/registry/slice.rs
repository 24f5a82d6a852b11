//! An example of a back end, tried below: a pool with `slice = true` keeps its disks in one slice of memory.

use super::{Kind, Medium, Read, Wanted};
use crate::space::Space;
use crate::{Buffer, Store};
use henge_core::{Backend, Done, Fault, Instant, Op, Params, Request};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

pub(super) const KIND: Kind = Kind { key: "slice", example: "slice = true", read };

fn read(p: &mut Params) -> Read {
    let wanted = p.bool("slice")?.unwrap_or(false);
    Ok(wanted.then(|| Arc::new(InSlice) as Arc<dyn Medium>))
}

#[derive(Debug)]
struct InSlice;

impl Medium for InSlice {
    fn key(&self) -> &'static str {
        KIND.key
    }
    fn is_lost_at_the_end(&self) -> bool {
        true
    }
    fn copies(&self) -> bool {
        true
    }
    fn open(&self, wanted: &Wanted<'_>) -> io::Result<Box<dyn Store>> {
        let bytes = usize::try_from(wanted.capacity).map_err(io::Error::other)?;
        let (space, done) = (Space::new(wanted.capacity), VecDeque::new());
        Ok(Box::new(Slice { bytes: vec![0; bytes].into(), space, done }))
    }
}

struct Slice {
    bytes: Box<[u8]>,
    /// Which disks have which bytes.
    space: Space,
    done: VecDeque<Done<Buffer>>,
}

impl Backend for Slice {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, mut payload: Buffer, _: Instant) {
        let len = if request.op == Op::Flush { 0 } else { request.len };
        let place = request.offset as usize..request.offset.saturating_add(len) as usize;
        let outcome = self.bytes.get_mut(place).ok_or(Fault::OutOfRange).map(|here| match request.op {
            Op::Read => payload[..here.len()].copy_from_slice(here),
            Op::Write => here.copy_from_slice(&payload[..here.len()]),
            Op::Trim | Op::WriteZeroes => here.fill(0),
            Op::Flush => {}
        });
        self.done.push_back(Done { id: request.id, outcome, busy: None, payload });
    }
    fn reap(&mut self, _: Instant) -> Option<Done<Buffer>> {
        self.done.pop_front()
    }
    fn wake_at(&self) -> Option<Instant> {
        (!self.done.is_empty()).then_some(Instant::ZERO)
    }
    fn capacity(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl Store for Slice {
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        match self.space.find(name) {
            Some(part) if part.len < len => self.space.grow(name, len)?,
            Some(_) => {}
            None => drop(self.space.allocate(name, len)?),
        }
        Ok(self.space.find(name).expect("the part was just made").base)
    }
    fn remove_part(&mut self, name: &str) -> io::Result<()> {
        if let Some(part) = self.space.find(name).cloned() {
            self.bytes[part.base as usize..(part.base + part.len) as usize].fill(0);
            self.space.free(name);
        }
        Ok(())
    }
    fn has_part(&self, name: &str) -> bool {
        self.space.find(name).is_some()
    }
    fn describe(&self) -> String {
        "a slice of memory".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{FlowId, RequestId, Value};

    #[test]
    fn what_is_written_is_read_and_a_disk_that_is_gone_left_nothing() {
        let mut pool = Params::new("pool").with("slice", Value::Bool(true));
        let (medium, _) = crate::registry::read(&mut pool).unwrap();
        assert!(medium.is_lost_at_the_end() && medium.copies());
        let wanted = Wanted { pool: "p", spindle: None, capacity: 1 << 20, options: Default::default() };
        let mut store = medium.open(&wanted).unwrap();
        let at = store.open_part("web", 1 << 19).unwrap();
        let run = |store: &mut Box<dyn Store>, op, offset, byte| {
            let request = Request::new(RequestId::default(), FlowId(0), op, offset, 512, Instant::ZERO);
            let mut payload = Buffer::zeroed(512);
            payload.fill(byte);
            store.submit(&request, payload, Instant::ZERO);
            assert!(store.wake_at().is_some());
            let done = store.reap(Instant::ZERO).unwrap();
            done.outcome.map(|()| done.payload[0])
        };
        assert_eq!(run(&mut store, Op::Read, at + 700, 9), Ok(0));
        run(&mut store, Op::Write, at + 700, 7).unwrap();
        assert_eq!(run(&mut store, Op::Read, at + 700, 9), Ok(7));
        assert_eq!(run(&mut store, Op::Read, (1 << 20) - 1, 9), Err(Fault::OutOfRange));
        store.remove_part("web").unwrap();
        let again = store.open_part("mail", 1 << 20).unwrap();
        assert_eq!(run(&mut store, Op::Read, again + 700, 9), Ok(0));
    }
}

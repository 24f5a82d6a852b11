//! Which step of the storage goes wrong, and how: by counting operations that change something.

use std::time::Duration;

/// Whose storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// `state_dir`.
    State,
    /// Directory pool.
    Folder,
    /// Device pool.
    Device,
    Any,
}

/// What kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Read,
    Write,
    Sync,
    /// Names, lengths, allocation.
    Shape,
    /// A file that is there.
    Open,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// This many operations fail with this error, undone; `u32::MAX`: all from then on.
    Fail(i32, u32),
    /// The operation takes so long.
    Stall(Duration),
    /// The process is killed before the operation is done.
    Kill,
    /// The process is killed; the operation is done all the same.
    KillAfter,
    /// The power goes: nothing is done from then on.
    Cut,
}

/// The `at`th operation (from 1) of a part and, where said, a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    pub part: Part,
    pub kind: Option<Kind>,
    pub at: u32,
    pub what: What,
}

impl Plan {
    /// Whether this operation is one to go wrong; counts it.
    pub fn hits(&mut self, part: Part, kind: Kind) -> bool {
        let mine = (self.part == Part::Any || self.part == part)
            && self.kind.map_or(!matches!(kind, Kind::Read | Kind::Open), |of| of == kind);
        if !mine {
            return false;
        }
        match (&mut self.what, self.at) {
            (_, 2..) => {
                self.at -= 1;
                false
            }
            (What::Fail(_, 0), _) | (_, 0) => false,
            (What::Fail(_, u32::MAX), _) => true,
            (What::Fail(_, left), _) => {
                *left -= 1;
                true
            }
            (_, _) => {
                self.at = 0;
                true
            }
        }
    }
}

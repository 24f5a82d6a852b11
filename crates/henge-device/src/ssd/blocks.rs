//! The blocks of one die: which are free, how much of each is still valid, which one to collect.
//!
//! Greedy collection takes the full block with the fewest valid units. Full blocks hang in one list per number of
//! valid units (doubly linked through their indices), so that invalidating a unit, and finding the block, cost
//! the same however many blocks there are.

/// Free blocks that collection keeps, so that it always has somewhere to move to.
pub(super) const RESERVE: u32 = 2;
const NONE: u32 = u32::MAX;
const EMPTY: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Block {
    valid: u32,
    full: bool,
    before: u32,
    behind: u32,
    /// Which logical unit each place holds; allocated when the block is first written.
    holds: Box<[u32]>,
}

/// The blocks of one die.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    free: Vec<u32>,
    /// By number of valid units: the first full block that has this number.
    heads: Vec<u32>,
    /// No list before this one has a block.
    lowest: usize,
    units: u32,
    open: u32,
    /// Places of the open block in use.
    filled: u32,
    valid: u64,
}

impl Blocks {
    pub fn new(count: u32, units: u32) -> Self {
        let block = Block { valid: 0, full: false, before: NONE, behind: NONE, holds: Box::default() };
        let mut blocks = Blocks {
            blocks: vec![block; count as usize],
            free: (0..count).rev().collect(),
            heads: vec![NONE; units as usize + 1],
            lowest: units as usize + 1,
            units,
            open: NONE,
            filled: units,
            valid: 0,
        };
        blocks.open_next();
        blocks
    }
    /// Units of a block.
    pub fn units(&self) -> u32 {
        self.units
    }
    /// Places of all blocks.
    pub fn places(&self) -> u32 {
        self.blocks.len() as u32 * self.units
    }
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    fn open_next(&mut self) {
        let next = self.free.pop().expect("collection keeps a reserve of free blocks");
        let units = self.units as usize;
        let block = &mut self.blocks[next as usize];
        if block.holds.is_empty() {
            block.holds = vec![EMPTY; units].into_boxed_slice();
        }
        (self.open, self.filled) = (next, 0);
    }

    /// Puts a logical unit into the open block; its place on the die.
    pub fn append(&mut self, logical: u32) -> u32 {
        if self.filled == self.units {
            let full = self.open;
            self.blocks[full as usize].full = true;
            self.link(full);
            self.open_next();
        }
        let block = &mut self.blocks[self.open as usize];
        block.holds[self.filled as usize] = logical;
        block.valid += 1;
        self.valid += 1;
        self.filled += 1;
        self.open * self.units + self.filled - 1
    }

    /// What a place holds is old now.
    pub fn invalidate(&mut self, place: u32) {
        let (index, within) = (place / self.units, (place % self.units) as usize);
        let block = &self.blocks[index as usize];
        assert!(block.holds[within] != EMPTY, "only what is valid becomes old");
        let full = block.full;
        if full {
            self.unlink(index);
        }
        let block = &mut self.blocks[index as usize];
        block.holds[within] = EMPTY;
        block.valid -= 1;
        self.valid -= 1;
        if full {
            self.link(index);
        }
    }

    /// Takes the full block with the fewest valid units out for collection, and how many those are.
    pub fn victim(&mut self) -> Option<(u32, u32)> {
        while *self.heads.get(self.lowest)? == NONE {
            self.lowest += 1;
        }
        let index = self.heads[self.lowest];
        self.unlink(index);
        self.blocks[index as usize].full = false;
        Some((index, self.blocks[index as usize].valid))
    }
    /// The next valid unit of a victim at or behind place `from`: the logical unit and its place.
    pub fn next_valid(&self, victim: u32, from: u32) -> Option<(u32, u32)> {
        let holds = &self.blocks[victim as usize].holds;
        let found = (from..self.units).find(|p| holds[*p as usize] != EMPTY)?;
        Some((holds[found as usize], victim * self.units + found))
    }
    /// A victim without valid units is free again.
    pub fn erase(&mut self, victim: u32) {
        assert_eq!(self.blocks[victim as usize].valid, 0, "nothing valid is erased");
        self.free.insert(0, victim);
    }
    /// Whether `units` more can be valid here, so that collection always finds something to gain: with at most
    /// the reserve free and one block open, the full blocks cannot all be valid throughout.
    pub fn has_capacity(&self, units: u32) -> bool {
        let most = (self.blocks.len() as u64).saturating_sub(u64::from(RESERVE) + 1) * u64::from(self.units);
        self.valid + u64::from(units) <= most
    }

    fn link(&mut self, index: u32) {
        let list = self.blocks[index as usize].valid as usize;
        let head = std::mem::replace(&mut self.heads[list], index);
        if head != NONE {
            self.blocks[head as usize].before = index;
        }
        let block = &mut self.blocks[index as usize];
        (block.before, block.behind) = (NONE, head);
        self.lowest = self.lowest.min(list);
    }
    fn unlink(&mut self, index: u32) {
        let Block { before, behind, valid, .. } = self.blocks[index as usize];
        match before {
            NONE => self.heads[valid as usize] = behind,
            before => self.blocks[before as usize].behind = behind,
        }
        if behind != NONE {
            self.blocks[behind as usize].before = before;
        }
    }
}

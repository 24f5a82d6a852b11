//! Where the bytes of a virtual disk are.
//!
//! The problem: a disk of one tenant lies on several extents, and an extent may lie on an array whose spindles are
//! scheduled one by one. The rule is RAID-0's, with unit u and n extents:
//!
//! ```text
//! stripe s = offset / u        extent = s mod n        inside = (s div n) · u + offset mod u
//! ```
//!
//! Example: u = 64 KiB, n = 3; byte 200 KiB is in stripe 3, so on extent 0, at 64 KiB + 8 KiB.
//! An extent on an array of m spindles applies the same rule to (base + inside), with the array's unit.
//!
//! Guarantee: a bijection between the disk's bytes and its extents' bytes (property test `mapping`). A
//! contiguous range of the disk is one contiguous range on each extent, which commands without data use.

use std::fmt;
use std::sync::Arc;

/// Which gate, in the driver's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct GateId(pub u32);

impl GateId {
    /// As an index into the driver's table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Disks striped together below one address space, each with a gate of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Array {
    /// Stripe unit in bytes.
    pub unit: u64,
    /// The gate of each spindle.
    pub spindles: Vec<GateId>,
}

/// What an extent lies on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A device behind one gate.
    Gate(GateId),
    /// An array that is scheduled spindle by spindle.
    Array(Arc<Array>),
}

/// A piece of a pool that belongs to the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// On what.
    pub target: Target,
    /// Its first byte there.
    pub base: u64,
    /// Its bytes.
    pub len: u64,
}

/// A byte of the disk, found: how far the range runs on there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// Behind which gate.
    pub gate: GateId,
    /// Address on its device.
    pub offset: u64,
    /// Bytes from here that lie side by side both on the disk and on the device.
    pub run: u64,
}

/// A contiguous range of one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceRange {
    /// Behind which gate.
    pub gate: GateId,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes; never zero.
    pub len: u64,
}

/// Capacity and extents of a virtual disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    capacity: u64,
    unit: u64,
    extents: Vec<Extent>,
    /// Every gate once, in order.
    gates: Vec<GateId>,
    /// Every (extent, spindle) pair; spindle 0 where the extent has one gate.
    legs: Vec<(u32, u32)>,
}

/// Why extents do not make a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// No extent at all.
    Empty,
    /// A stripe unit of zero, or an array without spindles or with one named twice.
    Unit,
    /// An extent is shorter than its share of the capacity.
    Short {
        /// Which extent.
        extent: usize,
        /// What it has.
        len: u64,
        /// What the capacity needs there.
        needed: u64,
    },
    /// Two extents share bytes, or a device belongs to two address spaces.
    Overlap {
        /// The first extent.
        first: usize,
        /// The second.
        second: usize,
    },
    /// An extent runs past the largest address.
    TooLarge {
        /// Which extent.
        extent: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::Empty => f.write_str("a virtual disk needs at least one extent"),
            LayoutError::Unit => f.write_str("a stripe unit of zero, or an array without distinct spindles"),
            LayoutError::Short { extent, len, needed } => {
                write!(f, "extent {extent} has {len} bytes, the capacity needs {needed} there")
            }
            LayoutError::Overlap { first, second } => write!(f, "extents {first} and {second} share bytes"),
            LayoutError::TooLarge { extent } => write!(f, "extent {extent} runs past the largest address"),
        }
    }
}
impl std::error::Error for LayoutError {}

/// The RAID-0 formula: (member, address inside it, bytes to the end of the stripe unit).
pub const fn stripe(offset: u64, members: u64, unit: u64) -> (u64, u64, u64) {
    if members == 1 {
        return (0, offset, u64::MAX - offset);
    }
    let (number, within) = (offset / unit, offset % unit);
    (number % members, number / members * unit + within, unit - within)
}

/// How many of the first `end` bytes of a striped range are on `member`: what a part must hold.
pub const fn striped_below(end: u64, member: u64, members: u64, unit: u64) -> u64 {
    if members == 1 {
        return end;
    }
    let number = end / unit;
    let (rows, last) = (number / members, number % members);
    // Of the last, incomplete row: members before the cut hold a unit, the one at the cut a piece.
    let partial = if member < last {
        unit
    } else if member == last {
        end % unit
    } else {
        0
    };
    rows * unit + partial
}

impl Layout {
    /// A disk of `capacity` bytes striped over `extents` with `unit`.
    pub fn new(capacity: u64, unit: u64, extents: Vec<Extent>) -> Result<Self, LayoutError> {
        if extents.is_empty() {
            return Err(LayoutError::Empty);
        }
        if unit == 0 || extents.iter().any(|p| !p.target.is_sound()) {
            return Err(LayoutError::Unit);
        }
        let members = extents.len() as u64;
        for (i, extent) in extents.iter().enumerate() {
            let needed = striped_below(capacity, i as u64, members, unit);
            if extent.len < needed {
                return Err(LayoutError::Short { extent: i, len: extent.len, needed });
            }
            if extent.base.checked_add(extent.len).is_none() {
                return Err(LayoutError::TooLarge { extent: i });
            }
        }
        for (second, b) in extents.iter().enumerate() {
            if let Some(first) = extents[..second].iter().position(|a| a.conflicts(b)) {
                return Err(LayoutError::Overlap { first, second });
            }
        }
        let mut legs = Vec::new();
        let mut gates = Vec::new();
        for (i, extent) in extents.iter().enumerate() {
            for (spindle, &gate) in extent.target.gates().iter().enumerate() {
                legs.push((i as u32, spindle as u32));
                gates.push(gate);
            }
        }
        gates.sort_unstable();
        gates.dedup();
        Ok(Layout { capacity, unit, extents, gates, legs })
    }

    /// A disk on one device, from `base` on.
    ///
    /// # Panics
    /// When base + capacity exceeds 64 bits: the caller has reserved that space.
    pub fn single(gate: GateId, base: u64, capacity: u64) -> Self {
        let extent = Extent { target: Target::Gate(gate), base, len: capacity };
        Layout::new(capacity, u64::MAX, vec![extent]).expect("a single extent within 64 bits is sound")
    }

    /// Bytes of the disk.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
    /// The stripe unit.
    pub fn unit(&self) -> u64 {
        self.unit
    }
    /// Its extents.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }
    /// Every gate that holds a byte of it, once.
    pub fn gates(&self) -> &[GateId] {
        &self.gates
    }

    /// Where byte `offset` is.
    ///
    /// # Panics
    /// When it is beyond the capacity.
    pub fn locate(&self, offset: u64) -> Spot {
        assert!(offset < self.capacity, "byte {offset} of a disk of {}", self.capacity);
        let (extent, inside, run) = stripe(offset, self.extents.len() as u64, self.unit);
        let run = run.min(self.capacity - offset);
        let extent = &self.extents[extent as usize];
        let address = extent.base + inside;
        match &extent.target {
            Target::Gate(gate) => Spot { gate: *gate, offset: address, run },
            Target::Array(array) => {
                let (spindle, inside, further) = stripe(address, array.spindles.len() as u64, array.unit);
                Spot { gate: array.spindles[spindle as usize], offset: inside, run: run.min(further) }
            }
        }
    }

    /// The pieces of [offset, offset + len), in the disk's order: each with its distance from `offset`.
    pub fn map(&self, offset: u64, len: u64) -> impl Iterator<Item = (u64, DeviceRange)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == len {
                return None;
            }
            let spot = self.locate(offset + at);
            let piece = DeviceRange { gate: spot.gate, offset: spot.offset, len: spot.run.min(len - at) };
            let from = at;
            at += piece.len;
            Some((from, piece))
        })
    }

    /// How many (extent, spindle) legs there are; see [`leg`](Self::leg).
    pub fn legs(&self) -> usize {
        self.legs.len()
    }

    /// The one contiguous range that [start, end) of the disk occupies on leg `index`, if any.
    pub fn leg(&self, index: usize, start: u64, end: u64) -> Option<DeviceRange> {
        let (extent, spindle) = self.legs[index];
        let members = self.extents.len() as u64;
        let below = |x| striped_below(x, u64::from(extent), members, self.unit);
        let extent = &self.extents[extent as usize];
        let (low, high) = (extent.base + below(start), extent.base + below(end));
        let (gate, low, high) = match &extent.target {
            Target::Gate(gate) => (*gate, low, high),
            Target::Array(array) => {
                let members = array.spindles.len() as u64;
                let below = |x| striped_below(x, u64::from(spindle), members, array.unit);
                (array.spindles[spindle as usize], below(low), below(high))
            }
        };
        (low < high).then(|| DeviceRange { gate, offset: low, len: high - low })
    }

    /// Whether every address that starts on a multiple of `align` is one on its device, too.
    pub fn is_aligned(&self, align: u64) -> bool {
        let multiple = |x: u64| x.is_multiple_of(align);
        multiple(self.capacity)
            && (self.extents.len() == 1 || multiple(self.unit))
            && self.extents.iter().all(|extent| {
                multiple(extent.base)
                    && match &extent.target {
                        Target::Gate(_) => true,
                        Target::Array(array) => array.spindles.len() == 1 || multiple(array.unit),
                    }
            })
    }
}

impl Target {
    /// The gates below, in spindle order.
    pub fn gates(&self) -> &[GateId] {
        match self {
            Target::Gate(gate) => std::slice::from_ref(gate),
            Target::Array(array) => &array.spindles,
        }
    }
    fn is_sound(&self) -> bool {
        let gates = self.gates();
        let distinct = gates.iter().enumerate().all(|(i, g)| !gates[..i].contains(g));
        let unit = matches!(self, Target::Array(array) if array.unit == 0);
        !gates.is_empty() && distinct && !unit
    }
}

impl Extent {
    /// Whether the two share bytes. Two address spaces over one device are never sound.
    fn conflicts(&self, other: &Extent) -> bool {
        if self.target != other.target {
            return self.target.gates().iter().any(|gate| other.target.gates().contains(gate));
        }
        self.base < other.base + other.len && other.base < self.base + self.len
    }
}

//! The map from a virtual disk's bytes to its extents' bytes.

use henge_vdisk::{Array, DeviceRange, Extent, GateId, Layout, LayoutError, Target, stripe, striped_below};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn gate(n: u32) -> GateId {
    GateId(n)
}

/// RAID-0 by hand: 64 KiB units over three members.
#[test]
fn the_formula_by_hand() {
    const U: u64 = 64 << 10;
    assert_eq!(stripe(0, 3, U), (0, 0, U));
    assert_eq!(stripe(U - 1, 3, U), (0, U - 1, 1));
    assert_eq!(stripe(U, 3, U), (1, 0, U));
    assert_eq!(stripe(2 * U + 5, 3, U), (2, 5, U - 5));
    assert_eq!(stripe(200 << 10, 3, U), (0, U + (8 << 10), U - (8 << 10)));
    assert_eq!(stripe(7 * U + 1, 3, U), (1, 2 * U + 1, U - 1));
}

/// extent -> array -> spindle, by hand: two extents, each on an array of two spindles; units of 4 and 2 bytes.
#[test]
fn an_array_within_a_place_by_hand() {
    let array = |a, b| Target::Array(Arc::new(Array { unit: 2, spindles: vec![gate(a), gate(b)] }));
    let extents = vec![
        Extent { target: array(0, 1), base: 8, len: 8 },
        Extent { target: array(2, 3), base: 0, len: 8 },
    ];
    let layout = Layout::new(16, 4, extents).unwrap();
    // Disk 0..4 on extent 0 at 0..4, array address 8..12: units 4 and 5, spindle 0 at 4..6, spindle 1 at 4..6.
    // Disk 4..8 on extent 1 at 0..4, array address 0..4: spindle 2 at 0..2, spindle 3 at 0..2.
    // Disk 8..12 on extent 0 at 4..8, array address 12..16: spindle 0 at 6..8, spindle 1 at 6..8.
    let piece = |g, offset, len| DeviceRange { gate: gate(g), offset, len };
    let got: Vec<_> = layout.map(0, 12).collect();
    let expected = vec![
        (0, piece(0, 4, 2)),
        (2, piece(1, 4, 2)),
        (4, piece(2, 0, 2)),
        (6, piece(3, 0, 2)),
        (8, piece(0, 6, 2)),
        (10, piece(1, 6, 2)),
    ];
    assert_eq!(got, expected);
    // Without data, spindle by spindle.
    let legs: Vec<_> = (0..layout.legs()).filter_map(|i| layout.leg(i, 0, 12)).collect();
    assert_eq!(legs, [piece(0, 4, 4), piece(1, 4, 4), piece(2, 0, 2), piece(3, 0, 2)]);
    assert_eq!(layout.gates(), [gate(0), gate(1), gate(2), gate(3)]);
}

#[test]
fn extents_that_make_no_disk() {
    let extent = |g, base, len| Extent { target: Target::Gate(gate(g)), base, len };
    assert_eq!(Layout::new(1, 1, vec![]), Err(LayoutError::Empty));
    assert_eq!(Layout::new(1, 0, vec![extent(0, 0, 1)]), Err(LayoutError::Unit));
    // 10 bytes in units of 4 over two extents: 0..4 and 8..10 on the first, 4..8 on the second.
    let short = Layout::new(10, 4, vec![extent(0, 0, 5), extent(1, 0, 4)]);
    assert_eq!(short, Err(LayoutError::Short { extent: 0, len: 5, needed: 6 }));
    let overlap = Layout::new(8, 4, vec![extent(0, 0, 4), extent(0, 3, 4)]);
    assert_eq!(overlap, Err(LayoutError::Overlap { first: 0, second: 1 }));
    let huge = Layout::new(8, 4, vec![extent(0, u64::MAX, 4), extent(1, 0, 4)]);
    assert_eq!(huge, Err(LayoutError::TooLarge { extent: 0 }));
    // A spindle that is used both below an array and alone.
    let array = Target::Array(Arc::new(Array { unit: 4, spindles: vec![gate(0), gate(1)] }));
    let both = vec![Extent { target: array, base: 0, len: 4 }, extent(1, 100, 4)];
    assert_eq!(Layout::new(8, 4, both), Err(LayoutError::Overlap { first: 0, second: 1 }));
    let twice = Target::Array(Arc::new(Array { unit: 4, spindles: vec![gate(0), gate(0)] }));
    assert_eq!(Layout::new(4, 4, vec![Extent { target: twice, base: 0, len: 4 }]), Err(LayoutError::Unit));
}

/// Up to four extents, each on a gate or an array of up to four spindles, somewhere.
pub fn layouts() -> impl Strategy<Value = Layout> {
    let extent = (1usize..5, 1u64..7, 0u64..40);
    (0u64..300, 1u64..17, proptest::collection::vec(extent, 1..5)).prop_map(|(capacity, unit, shapes)| {
        let members = shapes.len() as u64;
        let mut next_gate = 0;
        let extents = shapes.iter().enumerate().map(|(i, &(spindles, array_unit, base))| {
            let gates: Vec<_> = (next_gate..next_gate + spindles as u32).map(GateId).collect();
            next_gate += spindles as u32;
            let target = match spindles {
                1 => Target::Gate(gates[0]),
                _ => Target::Array(Arc::new(Array { unit: array_unit, spindles: gates })),
            };
            Extent { target, base, len: striped_below(capacity, i as u64, members, unit) }
        });
        Layout::new(capacity, unit, extents.collect()).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Every byte of the disk is one byte of one device, no two the same, and all of them lie in the extents.
    #[test]
    fn mapping_is_a_bijection(layout in layouts()) {
        let spots: BTreeSet<_> = (0..layout.capacity()).map(|b| {
            let spot = layout.locate(b);
            (spot.gate, spot.offset)
        }).collect();
        prop_assert_eq!(spots.len() as u64, layout.capacity());
        // The extents' own bytes, found without the disk: their lengths are exactly what is needed.
        let mut extents = BTreeSet::new();
        for extent in layout.extents() {
            for address in extent.base..extent.base + extent.len {
                match &extent.target {
                    Target::Gate(g) => extents.insert((*g, address)),
                    Target::Array(a) => {
                        let (unit, n) = (a.unit, a.spindles.len() as u64);
                        let row = address / (unit * n);
                        let spindle = address % (unit * n) / unit;
                        extents.insert((a.spindles[spindle as usize], row * unit + address % unit))
                    }
                };
            }
        }
        prop_assert_eq!(spots, extents);
    }

    /// A run is what it says: each byte of it is found at the next address, and the first beyond is not.
    #[test]
    fn pieces_cover_a_range_once(layout in layouts(), a in 0u64..300, b in 0u64..300) {
        let (start, end) = (a.min(b).min(layout.capacity()), a.max(b).min(layout.capacity()));
        let mut at = 0;
        for (from, piece) in layout.map(start, end - start) {
            prop_assert_eq!(from, at);
            for i in 0..piece.len {
                let spot = layout.locate(start + from + i);
                prop_assert_eq!((spot.gate, spot.offset), (piece.gate, piece.offset + i));
            }
            at += piece.len;
        }
        prop_assert_eq!(at, end - start);
    }

    /// A range is one contiguous range on each leg, and the legs hold exactly its bytes.
    #[test]
    fn legs_hold_a_range_once(layout in layouts(), a in 0u64..300, b in 0u64..300) {
        let (start, end) = (a.min(b).min(layout.capacity()), a.max(b).min(layout.capacity()));
        let mut bytes = BTreeMap::new();
        for leg in (0..layout.legs()).filter_map(|i| layout.leg(i, start, end)) {
            for i in 0..leg.len {
                *bytes.entry((leg.gate, leg.offset + i)).or_insert(0) += 1;
            }
        }
        let expected: BTreeMap<_, _> = (start..end).map(|b| {
            let spot = layout.locate(b);
            ((spot.gate, spot.offset), 1)
        }).collect();
        prop_assert_eq!(bytes, expected);
    }
}

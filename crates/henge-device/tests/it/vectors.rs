//! Where blocks lie and how long seeks take, against the known answers of the facts files.

use crate::common;
use henge_device::{Arm, DiskFacts, LbnVector, Motion, Position, built_in};

const DRIVES: [(&str, &str); 3] =
    [("SEAGATE_ST32171W", "st32171w"), ("SEAGATE_ST34501N", "st34501n"), ("SEAGATE_ST39102LW", "st39102lw")];

fn misplaced(facts: &DiskFacts, known: &[LbnVector]) -> Vec<String> {
    let wrong = |v: &&LbnVector| {
        let address = facts.geometry.locate(v.lbn);
        let same = (address.cylinder, address.head, address.sector, address.per_track)
            == (v.cylinder, v.head, v.sector, v.per_track);
        let off = (address.angle().revolutions() - v.angle + 0.5).rem_euclid(1.0) - 0.5;
        !same || off.abs() > 1e-6
    };
    known.iter().filter(wrong).map(|v| format!("{v:?} is at {:?}", facts.geometry.locate(v.lbn))).collect()
}

#[test]
fn every_block_lies_where_its_vector_says() {
    let Some(disks) = common::disks("every_block_lies_where_its_vector_says") else { return };
    for (drive, ours) in DRIVES {
        let text = std::fs::read_to_string(disks.join(format!("facts/{drive}.json"))).expect("a facts file");
        let facts = DiskFacts::parse(&text).expect("the facts are sound");
        assert!(facts.vectors.lbn.len() > 100);
        assert_eq!(misplaced(&facts, &facts.vectors.lbn), Vec::<String>::new(), "{drive}, facts");
        // Our own file knows where the slipped sectors are, and nothing of the vectors.
        let own = DiskFacts::parse(built_in(ours).expect("a built-in model")).expect("our file is sound");
        assert!(own.vectors.lbn.is_empty());
        assert_eq!(misplaced(&own, &facts.vectors.lbn), Vec::<String>::new(), "{drive}, own file");
    }
}

#[test]
fn every_seek_takes_what_its_vector_says() {
    let Some(disks) = common::disks("every_seek_takes_what_its_vector_says") else { return };
    for (drive, _) in DRIVES {
        let text = std::fs::read_to_string(disks.join(format!("facts/{drive}.json"))).expect("a facts file");
        let facts = DiskFacts::parse(&text).expect("the facts are sound");
        let arm = Arm::new(&facts);
        assert!(facts.vectors.seek.len() > 10);
        for (distance, time) in &facts.vectors.seek {
            let to = Position { cylinder: *distance, head: 0 };
            let ours = arm.move_time(Position::default(), to, Motion::Read);
            let off = ours.as_millis_f64() - time.as_millis_f64();
            // The vectors are rounded to a microsecond or better.
            assert!(off.abs() < 1e-3, "{drive}: {distance} cylinders take {ours}, not {time}");
        }
    }
}

/// The facts of the Maxtor leave open which way a band begins, and where sectors hold no block: the vectors say it.
#[test]
fn blocks_of_a_drive_in_bands_lie_where_their_vectors_say() {
    let Some(disks) = common::disks("blocks_of_a_drive_in_bands_lie_where_their_vectors_say") else { return };
    let text =
        std::fs::read_to_string(disks.join("facts/MAXTOR_ATLAS10K5_300SCA.json")).expect("a facts file");
    let facts = DiskFacts::parse(&text).expect("the facts are sound");
    assert_eq!(facts.geometry.capacity(), 585_937_499);
    assert!(facts.vectors.lbn.len() > 100);
    assert_eq!(misplaced(&facts, &facts.vectors.lbn), Vec::<String>::new());
}

/// With every other vector taken away, those that are left out still lie on their cylinder or the one beside it, to a
/// few sectors in a million: so the layout is understood, and not learned by heart.
#[test]
fn half_of_the_vectors_foretell_the_others() {
    let Some(disks) = common::disks("half_of_the_vectors_foretell_the_others") else { return };
    let text =
        std::fs::read_to_string(disks.join("facts/MAXTOR_ATLAS10K5_300SCA.json")).expect("a facts file");
    let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let rows = value["test_vectors"]["lbn"].as_array_mut().expect("a list");
    let mut nth = 0;
    rows.retain(|_| {
        nth += 1;
        nth % 2 == 0
    });
    let all = DiskFacts::parse(&text).expect("the facts are sound").vectors.lbn;
    let half = DiskFacts::parse(&value.to_string()).expect("the facts are sound");
    assert_eq!(half.vectors.lbn.len(), all.len() / 2);
    let near = |v: &&LbnVector| {
        let address = half.geometry.locate(v.lbn);
        address.head == v.head && address.cylinder.abs_diff(v.cylinder) <= 2
    };
    let near = all.iter().filter(near).count();
    println!("{near} of {} blocks lie on their surface, at most two cylinders off", all.len());
    assert!(near * 100 >= all.len() * 90, "{near}");
}

use super::*;
use proptest::prelude::*;
use std::io::Write;

fn part(id: u128, name: &str, base: u64) -> Record {
    let (id, len) = (Uuid::from_u128(id), 4096);
    Record { id, state: State::Used, name: name.into(), base, len, before: len, told: 0 }
}

fn made() -> (tempfile::NamedTempFile, Superblock, Table) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(16 * PAGE).unwrap();
    let pages = 5;
    let table = [PAGE, 8 * PAGE];
    let (pool, name) = (Uuid::new_v4(), "p".to_owned());
    let of = Superblock { pool, name, device: 16 * PAGE, data: 7 * PAGE..8 * PAGE, table, pages };
    let table = Table::blank(&of);
    table.write_copy(file.as_file(), 0).unwrap();
    table.write_copy(file.as_file(), 1).unwrap();
    (file, of, table)
}

fn loaded(file: &tempfile::NamedTempFile, of: &Superblock) -> Vec<(usize, Record)> {
    let (table, _) = Table::load(file.as_file(), of, file.path()).unwrap();
    table.records().map(|(slot, r)| (slot, r.clone())).collect()
}

proptest! {
    // Each change is two syncs of a real file.
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The power goes in the middle of any change: what is read afterwards is the table before it or after it, and every earlier
    /// change is there.
    #[test]
    fn a_change_happens_or_does_not(
        slots in prop::collection::vec((0usize..40, any::<bool>()), 1..12), cut in 0usize..8192, fill in any::<u8>(),
    ) {
        let (file, of, mut table) = made();
        let whole = |path: &Path| std::fs::read(path).unwrap();
        for (i, (slot, there)) in slots.iter().enumerate() {
            let before = (whole(file.path()), loaded(&file, &of));
            let record = there.then(|| part(i as u128, &format!("d{slot}.part0"), i as u64 * 4096));
            table.put(file.as_file(), *slot, record).unwrap();
            let after = (whole(file.path()), loaded(&file, &of));
            // Bytes reach the medium in the order of the two copies; the one on its way is torn, with anything in its place.
            let changed: Vec<usize> = (0..before.0.len()).filter(|i| before.0[*i] != after.0[*i]).collect();
            let pages: Vec<usize> = { let mut p: Vec<_> = changed.iter().map(|i| i / 4096).collect(); p.dedup(); p };
            prop_assert_eq!(pages.len(), 2);
            let mut torn = before.0.clone();
            let (done, within) = (cut / 4096, cut % 4096);
            for page in &pages[..done] {
                torn[page * 4096..][..4096].copy_from_slice(&after.0[page * 4096..][..4096]);
            }
            let at = pages[done] * 4096;
            torn[at..at + within].copy_from_slice(&after.0[at..at + within]);
            if within > 0 && within < 4096 {
                torn[at + within] = fill;
            }
            file.as_file().set_len(0).unwrap();
            std::fs::OpenOptions::new().write(true).open(file.path()).unwrap().write_all(&torn).unwrap();
            let found = loaded(&file, &of);
            prop_assert!(found == before.1 || found == after.1, "{found:?}");
            if done == 1 {
                prop_assert_eq!(&found, &after.1, "the first copy was whole");
            }
            std::fs::write(file.path(), &after.0).unwrap();
        }
    }

    /// Either copy rots, anywhere: nothing is lost, and it is mended. Bytes of anybody's never make the reader panic.
    #[test]
    fn one_copy_is_enough(copy in 0usize..2, at in 0u64..4096, by in 1u8..=255) {
        let (file, of, mut table) = made();
        table.put(file.as_file(), 3, Some(part(1, "a.part0", 0))).unwrap();
        let mut byte = [0];
        file.as_file().read_exact_at(&mut byte, of.table[copy] + at).unwrap();
        file.as_file().write_all_at(&[byte[0] ^ by], of.table[copy] + at).unwrap();
        prop_assert_eq!(loaded(&file, &of), vec![(3, part(1, "a.part0", 0))]);
        let (table, wrong) = Table::load(file.as_file(), &of, file.path()).unwrap();
        prop_assert_eq!(wrong.len(), 1);
        table.mend(file.as_file(), &wrong).unwrap();
        prop_assert_eq!(Table::load(file.as_file(), &of, file.path()).unwrap().1, vec![]);
    }
}

#[test]
fn a_table_without_a_right_copy_is_not_believed() {
    let (file, of, mut table) = made();
    table.put(file.as_file(), 20, Some(part(1, "a.part0", 0))).unwrap();
    for copy in 0..2 {
        file.as_file().write_all_at(b"x", of.table[copy] + PAGE + 100).unwrap();
    }
    let why = Table::load(file.as_file(), &of, file.path()).err().unwrap().to_string();
    assert!(why.contains("page 1") && why.contains("both copies"), "{why}");
    // A table of another pool, at the same place.
    let other = Superblock { pool: Uuid::from_u128(9), ..of };
    assert!(Table::load(file.as_file(), &other, file.path()).is_err());
}

#[test]
fn what_could_not_be_written_is_not_believed() {
    let (file, of, mut table) = made();
    table.put(file.as_file(), 0, Some(part(1, "a.part0", 0))).unwrap();
    let unwritable = File::open(file.path()).unwrap();
    assert!(table.put(&unwritable, 0, None).is_err());
    assert_eq!(table.find("a.part0"), Some(0), "as it was");
    let why = table.put(file.as_file(), 0, None).unwrap_err().to_string();
    assert!(why.contains("begins again"), "{why}");
    assert_eq!(loaded(&file, &of).len(), 1);
}

/// Each copy has a page that cannot be read, and another one: all the others are read, and the places of those two are no page.
#[test]
fn a_page_that_cannot_be_read_spoils_no_other_page() {
    let (file, of, mut table) = made();
    table.put(file.as_file(), 20, Some(part(1, "a.part0", 0))).unwrap();
    let mut right = Buffer::zeroed(5 * PAGE as usize);
    file.as_file().read_exact_at(&mut right, of.table[0]).unwrap();
    for bad in 0..5u64 {
        let place = of.table[0] + bad * PAGE;
        let copy = read_copy(of.table[0], of.pages, |bytes, at| {
            if at <= place && place < at + bytes.len() as u64 {
                bytes.fill(0x77); // whatever the device moved before it failed
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            file.as_file().read_exact_at(bytes, at)
        });
        for page in 0..5 {
            let bytes = &copy[page * PAGE as usize..][..PAGE as usize];
            let there = bytes == &right[page * PAGE as usize..][..PAGE as usize];
            assert_eq!(
                (there, table.number(bytes, page).is_some()),
                (page as u64 != bad, page as u64 != bad)
            );
        }
    }
}

/// The change fails by itself, and taking it back by its sync. No other sync is told what is lost, so whoever asked is.
#[test]
fn a_failed_sync_while_a_change_is_taken_back_is_told() {
    use crate::open::{is_failed_sync, synced};
    let eio = || io::Error::from_raw_os_error(libc::EIO);
    let failed = || synced(Err(eio())).err();
    assert!(is_failed_sync(&unwritten(&eio(), failed())));
    assert!(is_failed_sync(&unwritten(&failed().unwrap(), Some(eio()))));
    assert!(!is_failed_sync(&unwritten(&eio(), Some(eio()))) && !is_failed_sync(&unwritten(&eio(), None)));
}

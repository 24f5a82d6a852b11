//! The rules of SPC-4 5.12, one test each.

use super::*;

const A: &str = "iqn.a,i,0x000000000001";
const B: &str = "iqn.b,i,0x000000000002";
const C: &str = "iqn.c,i,0x000000000003";

/// PERSISTENT RESERVE OUT with a 24-byte list.
fn out(
    r: &mut Reservations,
    port: &str,
    action: u8,
    kind: u8,
    key: u64,
    new: u64,
) -> Result<Effects, Status> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2]) = (0x5f, action, kind);
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&new.to_be_bytes());
    list[20] = 1; // APTPL
    r.change(&cdb, &list, port)
}

fn registered() -> Reservations {
    let mut r = Reservations::default();
    for (port, key) in [(A, 1), (B, 2)] {
        assert!(out(&mut r, port, 0, 0, 0, key).is_ok());
    }
    r
}

/// What (read, write) of A, B and C conflict once A has reserved with `kind`, A and B being registered.
fn conflicts(kind: u8) -> [(bool, bool); 3] {
    let mut r = registered();
    assert!(out(&mut r, A, 1, kind, 1, 0).is_ok());
    [A, B, C].map(|port| (r.conflicts(port, Class::Read), r.conflicts(port, Class::Write)))
}

#[test]
fn types_keep_out_whom_they_should() {
    let free = (false, false);
    assert_eq!(conflicts(1), [free, (false, true), (false, true)]); // write exclusive
    assert_eq!(conflicts(3), [free, (true, true), (true, true)]); // exclusive access
    assert_eq!(conflicts(5), [free, free, (false, true)]); // write exclusive, registrants only
    assert_eq!(conflicts(6), [free, free, (true, true)]); // exclusive access, registrants only
    assert_eq!(conflicts(7), [free, free, (false, true)]); // write exclusive, all registrants
    assert_eq!(conflicts(8), [free, free, (true, true)]); // exclusive access, all registrants
}

#[test]
fn a_wrong_key_conflicts() {
    let mut r = registered();
    assert_eq!(out(&mut r, A, 0, 0, 9, 5), Err(Status::ReservationConflict));
    assert_eq!(out(&mut r, A, 1, 1, 9, 0), Err(Status::ReservationConflict));
    assert_eq!(out(&mut r, C, 1, 1, 0, 0), Err(Status::ReservationConflict), "not registered");
    assert!(out(&mut r, A, 6, 0, 9, 5).is_ok(), "the key is ignored");
    assert!(out(&mut r, A, 1, 1, 5, 0).is_ok());
}

#[test]
fn only_the_holder_releases_and_the_registrants_are_told() {
    let mut r = registered();
    assert!(out(&mut r, A, 1, 5, 1, 0).is_ok());
    assert_eq!(out(&mut r, B, 1, 5, 2, 0), Err(Status::ReservationConflict));
    assert!(out(&mut r, B, 2, 5, 2, 0).is_ok(), "not the holder: nothing happens");
    assert!(r.conflicts(C, Class::Write));
    assert_eq!(out(&mut r, A, 2, 1, 1, 0), Err(Status::Check(Sense::RELEASE)), "another type");
    let effects = out(&mut r, A, 2, 5, 1, 0).expect("the holder may");
    assert_eq!(effects.attentions, [(B.to_owned(), attention::RESERVATIONS_RELEASED)]);
    assert!(!r.conflicts(C, Class::Write));
}

#[test]
fn preempting_takes_over_and_aborts() {
    let mut r = registered();
    assert!(out(&mut r, A, 1, 3, 1, 0).is_ok());
    let effects = out(&mut r, B, 5, 1, 2, 1).expect("B is registered");
    assert_eq!(effects.attentions, [(A.to_owned(), attention::REGISTRATIONS_PREEMPTED)]);
    assert_eq!(effects.abort, [A.to_owned()]);
    assert!(r.conflicts(A, Class::Write) && !r.conflicts(A, Class::Read));
    assert_eq!(out(&mut r, B, 4, 1, 2, 77), Err(Status::ReservationConflict), "nobody has that key");
}

#[test]
fn all_registrants_hold_until_the_last_has_left() {
    let mut r = registered();
    assert!(out(&mut r, A, 1, 8, 1, 0).is_ok());
    assert!(out(&mut r, A, 0, 0, 1, 0).is_ok(), "A unregisters");
    assert!(r.conflicts(A, Class::Read) && !r.conflicts(B, Class::Read));
    assert!(out(&mut r, B, 0, 0, 2, 0).is_ok());
    assert!(!r.conflicts(A, Class::Read));
}

#[test]
fn a_reservation_moves_to_another_port() {
    let mut r = registered();
    assert!(out(&mut r, A, 1, 1, 1, 0).is_ok());
    let name = C.as_bytes();
    let mut list = vec![0; 24];
    list[7] = 1;
    list[15] = 3;
    list[17] = 3; // UNREG, APTPL
    let padded = (name.len() + 1).next_multiple_of(4);
    list[23] = padded as u8 + 4;
    list.extend_from_slice(&[0x45, 0, 0, padded as u8]);
    list.extend_from_slice(name);
    list.resize(28 + padded, 0);
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x5f, 7);
    assert!(r.change(&cdb, &list, A).is_ok());
    assert!(!r.conflicts(C, Class::Write) && r.conflicts(A, Class::Write));
    assert_eq!(r.key_of(A), None);
}

#[test]
fn what_is_saved_is_restored() {
    let mut r = registered();
    assert!(out(&mut r, A, 1, 6, 1, 0).is_ok());
    assert_eq!(Reservations::restore(&r.save()), Ok(r.clone()));
    assert_eq!(r.save().lines().last(), Some("reserve 6 iqn.a,i,0x000000000001"));
    assert_eq!(Reservations::default().save(), "");
    assert!(Reservations::restore("reserve 2 x").is_err());
    assert!(Reservations::restore("garbage").is_err());
}

#[test]
fn keys_and_reservation_are_reported() {
    let mut r = registered();
    assert!(out(&mut r, B, 1, 3, 2, 0).is_ok());
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x5e, 255);
    let keys = vec![0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
    assert_eq!(r.report(&cdb, 1, false), Plan::Data(keys));
    cdb[1] = 1;
    let held = vec![0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 3, 0, 0];
    assert_eq!(r.report(&cdb, 1, false), Plan::Data(held));
}

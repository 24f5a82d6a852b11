use super::*;
use crate::model::DiskTime;
use std::collections::BTreeMap;

#[test]
fn no_two_tenants_disks_have_one_name() {
    let names = ["a", "b", "a.b", "a..b", "b.a", "a.", "a..", "_", "-.a", "a.b.c", "a..b.a", "a...a"];
    let mut seen = BTreeMap::new();
    for tenant in names {
        for name in names {
            let full = full_name(tenant, name);
            let plain = called(Some(tenant), name);
            assert_eq!(called(Some(tenant), &full), plain, "{tenant} {name}");
            // Who gives the whole name means the same.
            assert_eq!(full_name(tenant, &full), full);
            if let Some(other) = seen.insert(full.clone(), (tenant, plain)) {
                assert_eq!(other, (tenant, plain), "{full}");
            }
        }
    }
}

fn quota() -> Quota {
    Quota {
        disks: Some(10),
        bytes: Some("1TB".into()),
        rate: Some("5000/s".into()),
        limit: Some("9000/s".into()),
        weight: Some(20),
        latency: Some("5ms".into()),
        burst: Some(64),
        share: Some("150%".into()),
    }
}

#[test]
fn the_example_of_the_rule() {
    let quota = Quota { limit: None, weight: None, latency: None, ..quota() };
    let amounts = TenantRecord { ceiling: quota, own: Quota::default() }.amounts();
    let (bytes, rate) = (960_000_000_000, 4_800_000_000);
    let others = Used { disks: 9, bytes, rate, weight: 9, ..Used::default() };
    let disk = |capacity: &str, rate: &str| DiskSpec {
        capacity: capacity.into(),
        rate: Some(rate.into()),
        ..DiskSpec::default()
    };
    let why = amounts.refuses(&others, &disk("96GB", "100/s"), 0).unwrap();
    assert!(why.starts_with("bytes: ") && why.contains("40GB are left"), "{why}");
    assert_eq!(amounts.refuses(&others, &disk("40GB", "200/s"), 200_000_000), None);
    // What is reserved counts where it is more than what was asked for.
    let why = amounts.refuses(&others, &disk("1GB", "1/s"), 200_000_001).unwrap();
    assert!(why.contains("200/s are left, and this takes 200.000001/s"), "{why}");
    let left = amounts.left(&others);
    assert_eq!((left.disks, left.bytes.as_deref()), (Some(1), Some("40000000000B")));
    assert_eq!((left.rate.as_deref(), left.limit), (Some("200/s"), None));
    let full = Used { disks: 10, ..others };
    assert!(amounts.refuses(&full, &disk("1GB", "1/s"), 0).unwrap().starts_with("disks: "));
    // Lowered below what there is: nothing is left, and nothing wraps around.
    assert_eq!(amounts.left(&Used { disks: 12, ..others }).disks, Some(0));
}

#[test]
fn of_ceiling_and_own_quota_the_lower_counts() {
    let own = Quota { disks: Some(3), latency: Some("9ms".into()), ..Quota::default() };
    let amounts = TenantRecord { ceiling: quota(), own: own.clone() }.amounts();
    assert_eq!((amounts.disks, amounts.bytes, amounts.rate), (3, 1_000_000_000_000, 5_000_000_000));
    assert_eq!(amounts.latency, Some(Duration::from_millis(9)));
    assert_eq!(own.above(&quota()), []);
    for (above, term) in [
        (Quota { disks: Some(11), ..Quota::default() }, "disks"),
        (Quota { bytes: Some("1001GB".into()), ..Quota::default() }, "bytes"),
        (Quota { rate: Some("5001/s".into()), ..Quota::default() }, "rate"),
        (Quota { limit: Some("9001/s".into()), ..Quota::default() }, "limit"),
        (Quota { weight: Some(21), ..Quota::default() }, "weight"),
        (Quota { latency: Some("4ms".into()), ..Quota::default() }, "latency"),
        (Quota { burst: Some(65), ..Quota::default() }, "burst"),
        (Quota { share: Some("150.1%".into()), ..Quota::default() }, "share"),
    ] {
        assert_eq!(above.above(&quota()).iter().map(|(term, _)| *term).collect::<Vec<_>>(), [term]);
        assert_eq!(above.above(&Quota::default()), [], "without a ceiling nothing is above it");
    }
    for (bad, says) in [
        (Quota { bytes: Some("1".into()), ..Quota::default() }, "bytes"),
        (Quota { rate: Some("5MB/s".into()), ..Quota::default() }, "requests"),
        (Quota { latency: Some("fast".into()), ..Quota::default() }, "latency"),
        (Quota { share: Some("half".into()), ..Quota::default() }, "250%"),
        (Quota { share: Some("-5%".into()), ..Quota::default() }, "250%"),
    ] {
        assert!(bad.read().unwrap_err().0.contains(says));
    }
}

#[test]
fn bursts_and_shares_of_disk_time_add_up() {
    let amounts = TenantRecord { ceiling: Quota { limit: None, ..quota() }, own: Quota::default() }.amounts();
    let disk = |terms: &[(&str, &str)]| {
        let mut spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
        terms.iter().for_each(|(key, text)| spec.set(key, text).unwrap());
        spec
    };
    let first = Used::of(&disk(&[("rate", "9/s"), ("burst", "40.5"), ("share", "")]), 0);
    assert_eq!((first.burst, first.share), (41, 0));
    let of = |terms: &[(&str, &str)]| amounts.refuses(&first, &disk(terms), 0);
    assert_eq!(of(&[("rate", "9/s"), ("burst", "23")]), None);
    let why = of(&[("rate", "9/s"), ("burst", "24")]).unwrap();
    assert!(why.starts_with("burst: 64 are allowed and 41 in use; 23 are left"), "{why}");
    // A share is held on each of a disk's pools, and the least share of a node counts where it is more.
    assert_eq!(of(&[("share", "75%"), ("parts", "2")]), None);
    let why = of(&[("share", "75.5%"), ("parts", "2")]).unwrap();
    assert!(
        why.contains("share: 150% are allowed and 0% in use; 150% are left, and this takes 151%"),
        "{why}"
    );
    assert!(of(&[("min_share", "80%"), ("parts", "2")]).unwrap().starts_with("share: "));
    assert_eq!(amounts.left(&first).share.as_deref(), Some("150%"));
    // A throughput is a rate by another name.
    let throughput = |text| of(&[("share", "5%"), ("kind", "throughput"), ("throughput", text)]);
    assert_eq!(throughput("4991/s"), None);
    assert!(
        throughput("4992/s").unwrap().starts_with("rate: ") && throughput("1MB/s").unwrap().contains("900/s")
    );
}

#[test]
fn a_limit_and_a_latency_class_are_asked_of_every_disk() {
    let amounts = TenantRecord { ceiling: quota(), own: Quota::default() }.amounts();
    let spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
    let none = Used::default();
    assert!(amounts.refuses(&none, &spec, 0).unwrap().contains("write limit=9000/s"));
    let limited = DiskSpec { limit: Some("9000/s".into()), ..spec.clone() };
    assert_eq!(amounts.refuses(&none, &limited, 0), None);
    assert!(amounts.refuses(&Used { limit: 1, ..none }, &limited, 0).unwrap().starts_with("limit: "));
    let fast = DiskSpec { latency: Some("4ms".into()), ..limited.clone() };
    assert!(amounts.refuses(&none, &fast, 0).unwrap().contains("at least 5ms"));
    let heavy = DiskSpec { weight: Some(21), ..limited };
    assert!(amounts.refuses(&none, &heavy, 0).unwrap().starts_with("weight: "));
}

#[test]
fn what_the_administrator_stated_of_a_disk_is_its_ceiling() {
    let mut ceiling = Quota::default();
    let spec = |limit: Option<&str>, weight| DiskSpec {
        capacity: "1GB".into(),
        limit: limit.map(str::to_owned),
        weight,
        ..DiskSpec::default()
    };
    let first = spec(Some("500/s"), None);
    ceiling.follow(None, &first);
    assert_eq!(ceiling.above_disk(&spec(Some("400/s"), None)), []);
    assert_eq!(ceiling.above_disk(&spec(Some("501/s"), None)), [("limit", "500/s".into())]);
    assert_eq!(ceiling.above_disk(&spec(None, None)), [("limit", "500/s".into())], "none is more than any");
    // The tenant has moved below; the administrator changes another term: the ceiling of the limit stays.
    let moved = spec(Some("100/s"), None);
    ceiling.follow(Some(&moved), &spec(Some("100/s"), Some(4)));
    assert_eq!((ceiling.limit.as_deref(), ceiling.weight), (Some("500/s"), Some(4)));
    assert_eq!(ceiling.above_disk(&spec(Some("500/s"), Some(5))), [("weight", "4".into())]);
    // Bursts and shares likewise.
    let shared = |burst: Option<&str>, share: Option<&str>| DiskSpec {
        burst: burst.map(str::to_owned),
        disk_time: DiskTime { share: share.map(str::to_owned), ..DiskTime::default() },
        ..spec(Some("100/s"), Some(4))
    };
    let mut given = Quota::default();
    given.follow(None, &shared(Some("7"), Some("25%")));
    assert_eq!(given.above_disk(&shared(Some("7"), Some("25%"))), []);
    let above = given.above_disk(&shared(Some("8"), Some("26%")));
    assert_eq!(above, [("burst", "7".into()), ("share", "25%".into())]);
    // Taken away by the administrator, it is no ceiling any more.
    ceiling.follow(Some(&spec(Some("100/s"), Some(4))), &spec(None, Some(4)));
    assert_eq!(ceiling.above_disk(&spec(None, Some(4))), []);
}

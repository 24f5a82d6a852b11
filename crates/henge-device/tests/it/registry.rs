//! What configuration may say of a device, and what it is told when it is wrong.

use henge_core::{Params, Value};
use henge_device::{Built, DeviceSpec, no_files};

fn text(s: &str) -> Value {
    Value::Text(s.to_owned())
}

fn read(table: Params) -> Result<DeviceSpec, String> {
    DeviceSpec::from_table(table, &no_files).map_err(|e| e.to_string())
}

#[test]
fn all_forms_build() {
    let constant = Params::new("constant").with("rate", text("50MB/s")).with("slots", Value::Integer(8));
    let forms = [
        Params::new("device").with("disk", text("dtla-307075")).with("segments", Value::Integer(8)),
        Params::new("device").with("constant", Value::Table(constant.clone())),
        Params::new("device")
            .with("raid0", Value::Integer(3))
            .with("stripe", text("64KiB"))
            .with("constant", Value::Table(constant)),
    ];
    for form in forms {
        let spec = read(form).unwrap();
        let built = spec.build();
        let capacity = built.capacity();
        assert_eq!(built.into_model().capacity(), capacity);
    }
    let mut node = Params::new("node").with("device", text("dtla-307075"));
    let spec = DeviceSpec::from_params(&mut node, "device", &no_files).unwrap().unwrap();
    let Built::One(disk) = spec.build() else { panic!("a disk is one device") };
    assert_eq!(disk.capacity(), 150_136_560 * 512);
}

#[test]
fn errors_say_what_would_do() {
    let wrong = |p: Params, part: &str| {
        let message = read(p).expect_err(part);
        assert!(message.contains(part), "\"{message}\" lacks \"{part}\"");
    };
    wrong(Params::new("device"), "needs disk");
    wrong(Params::new("device").with("disk", text("dtla")), "dtla-307075, nvme-dc");
    wrong(
        Params::new("device").with("raid0", Value::Integer(4)).with("disk", text("dtla-307075")),
        "needs stripe",
    );
    wrong(
        Params::new("device")
            .with("raid0", Value::Integer(4))
            .with("stripe", text("100B"))
            .with("disk", text("dtla-307075")),
        "multiple of 512B",
    );
    let constant = Params::new("constant").with("rate", text("50/s"));
    wrong(Params::new("device").with("constant", Value::Table(constant)), "50MB/s");
    wrong(
        Params::new("device").with("disk", text("dtla-307075")).with("segmnts", Value::Integer(1)),
        "segments",
    );
    let files = |_: &str| Ok("{\"schema\": \"henge-disk-facts/1\"}".to_owned());
    let bad = Params::new("device").with("disk", text("mine.json"));
    let error = DeviceSpec::from_table(bad, &files).unwrap_err();
    assert!(error.message.contains("mine.json: geometry: is missing"), "{error}");
}

#[test]
fn arrays_of_flash_and_mirrors() {
    let disk = || Params::new("device").with("disk", text("nvme-dc")).with("capacity", text("64GiB"));
    let mirror = read(disk().with("raid1", Value::Integer(2))).unwrap().build();
    assert!(matches!(mirror, Built::One(_)));
    assert_eq!(mirror.capacity(), 64 << 30);
    let parity = read(disk().with("raid5", Value::Integer(5)).with("stripe", text("64KiB"))).unwrap().build();
    assert_eq!(parity.capacity(), 4 * (64 << 30));
    assert!(
        read(disk().with("raid5", Value::Integer(2)).with("stripe", text("64KiB")))
            .unwrap_err()
            .contains("3")
    );
    let both = disk().with("raid0", Value::Integer(2)).with("raid1", Value::Integer(2));
    assert!(read(both).unwrap_err().contains("one level"));
    assert!(read(disk().with("spare", text("0%"))).unwrap_err().contains("spare_percent"));
}

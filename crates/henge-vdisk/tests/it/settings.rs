//! The knobs, as configuration writes them.

use henge_core::{Params, Value};
use henge_vdisk::Settings;

fn text(s: &str) -> Value {
    Value::Text(s.into())
}

#[test]
fn knobs_are_read_with_their_units() {
    let mut params = Params::new("disk")
        .with("quantum", text("512KiB"))
        .with("command", text("64KiB"))
        .with("span", text("8MiB"))
        .with("align", text("4KiB"))
        .with("commands", Value::Integer(7))
        .with("prefetch", Value::Bool(true))
        .with("holes", Value::Bool(true));
    let expected = Settings {
        owners: false,
        quantum: 512 << 10,
        command_bytes: 64 << 10,
        span: 8 << 20,
        align: 4096,
        commands_max: 7,
        prefetch: true,
        holes: true,
    };
    assert_eq!(Settings::take(&mut params), Ok(expected));
    assert_eq!(params.finish(), Ok(()));
    assert_eq!(Settings::take(&mut Params::new("disk")), Ok(Settings::default()));
}

#[test]
fn knobs_that_do_not_fit_are_named() {
    let wrong = |key: &str, value: Value| {
        let error = Settings::take(&mut Params::new("disk").with(key, value)).expect_err(key);
        assert!(error.to_string().starts_with(key), "{key}: {error}");
    };
    wrong("align", text("1000B"));
    wrong("align", text("2MiB"));
    wrong("quantum", text("0B"));
    wrong("quantum", text("2GiB"));
    wrong("quantum", Value::Integer(4096)); // without a unit
    wrong("span", text("2GiB"));
    wrong("command", text("0B"));
    wrong("command", text("100B")); // one request's share would not fit
    wrong("commands", Value::Integer(0));
    wrong("holes", text("yes"));
}

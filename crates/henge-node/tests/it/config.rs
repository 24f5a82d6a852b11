//! What is wrong with a configuration is said with its line, and with what would do.

use henge_config::Source;
use henge_node::{NodeConfig, check};

fn error(text: &str) -> String {
    match NodeConfig::parse(Source::new("node.toml", text)) {
        Err(e) => e.to_string(),
        Ok(config) => checked(config).expect_err("a configuration that is wrong"),
    }
}

/// What a node without memory would do: a node of this machine may remember something.
fn checked(mut config: NodeConfig) -> Result<Vec<String>, String> {
    config.state.forgets = true;
    check(&config).map_err(|e| e.to_string())
}

/// A pool in memory with these disks.
fn with(disks: &str) -> String {
    format!("[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"16MiB\"\n{disks}")
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    let error = error(text);
    for part in parts {
        assert!(error.contains(part), "{error}\nlacks {part:?}");
    }
}

#[test]
fn unknown_keys_and_units() {
    says(
        "listn = \"nbd://:1\"\n[[pool]]\nname=\"p\"\nmemory=true\ncapacity=\"1MiB\"",
        &["node.toml:1:", "did you mean \"listen\""],
    );
    says(
        &with("[[disk]]\nname = \"a\"\ncapacity = 96\n"),
        &["node.toml:7:12", "\"96\" has no unit", "\"96GB\""],
    );
    says(
        &with("[[disk]]\nname = \"a\"\ncapacity = \"1MiB\"\nlimit = \"7/s\"\n"),
        &["node.toml:8:", "unknown key \"limit\" in disk"],
    );
    says("listen = \"tcp://x\"", &["node.toml:1:10", "nbd://127.0.0.1:10809"]);
    says(
        "[[pool]]\nname = \"p\"\n",
        &[
            "needs path = \"/srv/henge\", device = \"/dev/sdb\", memory = true, nbd = {",
            " or rbd = { pool = ",
        ],
    );
    says(
        "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1GiB\"\nscheduler = \"fi-fo\"",
        &["node.toml:5:13", "did you mean \"fifo\""],
    );
    says("listen = \"nbd://x\"\n", &["needs at least one [[pool]]"]);
    says("busy_poll = \"2ms\"\n", &["node.toml:1:13", "busy_poll is at most 1ms"]);
    says("busy_poll = 50\n", &["node.toml:1:13", "\"50\" has no unit"]);
    for (line, us) in [("", 50), ("busy_poll = \"0us\"\n", 0)] {
        let config = NodeConfig::parse(Source::new("node.toml", format!("{line}{}", with(""))));
        assert_eq!(config.unwrap().loops.busy_poll.as_nanos(), us * 1000);
    }
}

#[test]
fn a_scheduler_spelled_with_an_underscore_is_taken_and_said() {
    for (written, hinted) in
        [("\"two_level\"", true), ("{ two_level = { refill = \"paper\" } }", true), ("\"two-level\"", false)]
    {
        let config = NodeConfig::parse(Source::new("node.toml", with(&format!("scheduler = {written}\n"))));
        let scheduler = config.unwrap().pools.remove(0).scheduler;
        assert_eq!(scheduler.name, "two-level");
        assert_eq!(
            scheduler.hint.is_some_and(|hint| hint.contains("is spelled \"two-level\"")),
            hinted,
            "{written}"
        );
    }
}

#[test]
fn disks_that_do_not_fit_or_overlap() {
    says(
        &with("[[disk]]\nname = \"a\"\ncapacity = \"10MiB\"\n[[disk]]\nname = \"b\"\ncapacity = \"7MiB\"\n"),
        &["node.toml:10:12", "disk \"b\": no room for", "7MiB"],
    );
    says(
        &with("[[disk]]\nname = \"a\"\ncapacity = \"1MiB\"\n[[disk]]\nname = \"a\"\ncapacity = \"1MiB\"\n"),
        &["node.toml:9:8", "there is a disk \"a\" already"],
    );
    says(
        &with("[[disk]]\nname = \"a\"\npool = \"q\"\ncapacity = \"1MiB\"\n"),
        &["node.toml:7:8", "there are: p"],
    );
    says(&with("[[disk]]\nname = \"a\"\npools = [\"p\", \"p\"]\ncapacity = \"1MiB\"\n"), &["on a pool once"]);
    let many = (0..1025).map(|n| format!("\"n/p{n}\"")).collect::<Vec<_>>().join(", ");
    says(
        &with(&format!("[[disk]]\nname = \"a\"\npools = [{many}]\ncapacity = \"1MiB\"\n")),
        &["1025 pools are named; a disk lies on 1024 at most"],
    );
    says(&with("[[disk]]\nname = \"../a\"\ncapacity = \"1MiB\"\n"), &["node.toml:6:8", "is no name"]);
}

#[test]
fn origins_are_for_disks_that_are_images() {
    let disk = |key: &str| with(&format!("[[disk]]\nname = \"a\"\ncapacity = \"1MiB\"\n{key}\n"));
    says(
        &disk("image = \"vm\""),
        &["node.toml:8:", "image is for disks on pools of images (rbd), and \"p\" is none"],
    );
    says(&disk("from = \"golden@1\""), &["node.toml:8:", "from is for"]);
    says(&disk("fence = true"), &["node.toml:8:", "fence is for"]);
    let on_ceph = |key: &str| {
        let pools = "[[pool]]\nname = \"c\"\nrbd = { pool = \"x\" }\ncapacity = \"1GiB\"\n\
                     [[pool]]\nname = \"d\"\nrbd = { pool = \"y\" }\ncapacity = \"1GiB\"\n";
        format!("{pools}[[disk]]\nname = \"a\"\ncapacity = \"1MiB\"\n{key}\n")
    };
    says(&on_ceph("pool = \"c\"\nimage = \"a/b\""), &["node.toml:13:", "is no image's name"]);
    says(&on_ceph("pool = \"c\"\nfrom = \"golden\""), &["node.toml:13:", "right are \"golden@1\""]);
    says(
        &on_ceph("pools = [\"c\", \"d\"]\nimage = \"vm\""),
        &["node.toml:13:", "one image, so it has one pool"],
    );
    let good = on_ceph("pool = \"c\"\nfrom = \"golden@1\"\nfence = true");
    let config = NodeConfig::parse(Source::new("node.toml", good)).unwrap();
    assert!(
        config.disks[0].beginning.origin.fence
            && config.disks[0].beginning.origin.from.as_deref() == Some("golden@1")
    );
}

#[test]
fn contracts_that_cannot_be_kept() {
    says(
        &with("[[disk]]\nname = \"a\"\ncapacity = \"1MiB\"\ncontract = { latency = \"20ms\" }\n"),
        &["node.toml:8:12", "disk \"a\"", "latency"],
    );
    let disk = |name: &str, limit: &str| {
        format!("[[disk]]\nname = \"{name}\"\ncapacity = \"1MiB\"\ncontract = {{ limit = \"{limit}\" }}\n")
    };
    // One gate counts in one unit: these two cannot both be kept.
    says(
        &with(&(disk("a", "4MB/s") + &disk("b", "675/s"))),
        &["node.toml:12:12", "disk \"b\"", "cost = \"requests\""],
    );
}

/// Where all count requests, the gate does too, whatever the scheduler would charge otherwise.
#[test]
fn limits_in_requests_need_no_cost_beside_them() {
    let text =
        with("[[disk]]\nname = \"a\"\ncapacity = \"1MiB\"\ncontract = { weight = 4, limit = \"675/s\" }\n");
    let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap();
    checked(config).map(drop).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn emulated_arrays() {
    let array = "emulated = { raid0 = 4, stripe = \"64KiB\", disk = \"dtla-307075\" }";
    let pool = |scheduler: &str, rest: &str| {
        format!(
            "[[pool]]\nname = \"p\"\nmemory = true\nscheduler = {scheduler}\n{rest}\n[[disk]]\nname = \"a\"\ncapacity = \"8GB\"\n"
        )
    };
    says(
        &pool("{ fifo = { per = \"spindle\" } }", "capacity = \"9GB\""),
        &["node.toml:4:13", "needs an emulated array"],
    );
    says(&pool("{ fifo = { per = \"disc\" } }", array), &["node.toml:4:", "\"spindle\" or \"array\""]);
    says(&pool("\"fifo\"", &format!("{array}\ncapacity = \"900TB\"")), &["is larger"]);
    let config = pool("{ fifo = { per = \"spindle\" } }", array);
    let config = NodeConfig::parse(Source::new("node.toml", config)).unwrap();
    let lines = checked(config).unwrap().join("\n");
    assert!(lines.contains("4 gates (one per spindle)") && lines.contains("emulated disk"), "{lines}");
}

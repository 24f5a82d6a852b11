//! `henge profile`: what it writes is a configuration, of a model, of a file and of a node's export.

use crate::support::{Node, image};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn profile(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_henge")).arg("profile").args(args).output().expect("henge profile runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn concluded(args: &[&str]) -> Value {
    let output = profile(args);
    assert!(output.status.success(), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    json["conclusion"].clone()
}

/// Every line that it writes, each in the place of the first, is taken by a node and by a scenario.
fn accepted(conclusion: &Value, dir: &Path) {
    let pool = conclusion["pool"].as_str().expect("a pool");
    let first = pool.lines().find(|l| l.starts_with("scheduler = ")).expect("a scheduler in force");
    let schedulers = conclusion["schedulers"].as_array().expect("a list");
    assert_eq!(schedulers.len(), 6);
    for scheduler in schedulers {
        let line = format!("scheduler = {}", scheduler["scheduler"].as_str().expect("a table"));
        let file = dir.join("check.toml");
        let state = dir.join("checked");
        let text = pool.replace(first, &line);
        assert!(text.contains(&line));
        std::fs::write(&file, format!("state_dir = {:?}\n{text}", state.to_str().unwrap())).unwrap();
        let check = Command::new(env!("CARGO_BIN_EXE_henge"))
            .args(["node", "--check", "-c"])
            .arg(&file)
            .output()
            .expect("henge node runs");
        assert!(check.status.success(), "{line}: {}", stderr(&check));
        let scenario = format!(
            "duration = \"1s\"\n[node]\ndevice = \"dtla-307075\"\n{line}\n\
             [[flow]]\nname = \"a\"\nworkload = {{ pattern = \"random\", size = \"4KiB\", outstanding = 2 }}\n"
        );
        let file = dir.join("scenario.toml");
        std::fs::write(&file, scenario).unwrap();
        let sim =
            Command::new(env!("CARGO_BIN_EXE_henge")).arg("sim").arg(&file).output().expect("henge sim runs");
        assert!(sim.status.success(), "{line}: {}", stderr(&sim));
    }
}

#[test]
fn a_model_gives_what_its_facts_say() {
    let dir = tempfile::tempdir().unwrap();
    let plots = dir.path().join("plots");
    let array = "{ raid0 = 4, stripe = \"64KiB\", disk = \"dtla-307075\" }";
    let args = [array, "--json", "--time", "2s", "--destroy-data", "-o", plots.to_str().unwrap()];
    let found = concluded(&args);
    // Four spindles are busy with a good dozen, and each gives about 75 random requests a second.
    let number = |key: &str| found[key].as_f64().unwrap_or_else(|| panic!("{key} in {found}"));
    assert!((10.0..=24.0).contains(&number("knee")), "{found}");
    assert!((220.0..=300.0).contains(&number("capacity_per_second")), "{found}");
    assert!((0.9..=1.2).contains(&found["writes"]["alone"].as_f64().unwrap()), "{found}");
    for name in ["depth", "latency", "size"] {
        assert!(plots.join(format!("{name}.png")).is_file());
    }
    accepted(&found, dir.path());
    // Equal seeds, equal words.
    assert_eq!(profile(&args[..5]).stdout, profile(&args[..5]).stdout);
}

#[test]
fn an_export_on_an_emulated_disk() {
    let node = Node::start(
        "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\nemulated = { constant = { rate = \"20MB/s\" } }\n\
         [[disk]]\nname = \"web\"\ncapacity = \"32MiB\"\n[[disk]]\nname = \"ro\"\ncapacity = \"1MiB\"\nread_only = true\n",
    );
    // This machine may be busy with other things: how much rounds differ is not the question here. Each round needs an answer, however.
    let uri = node.uri("web");
    let measured = ["30ms", "300ms", "3s"].into_iter().find_map(|time| {
        let quick = ["--json", "--time", time, "--rounds", "3", "--depths", "1,4", "--noise", "1000000%"];
        let output = profile(&[&[&*uri][..], &quick].concat());
        output.status.success().then(|| serde_json::from_slice::<Value>(&output.stdout).expect("JSON"))
    });
    let found = measured.expect("nothing is concluded")["conclusion"].clone();
    assert!(found["capacity_per_second"].as_f64().unwrap() <= 20e6 / 4096.0 * 1.1, "{found}");
    accepted(&found, node.dir.path());
    let wrong = stderr(&profile(&[&node.uri("ro"), "--destroy-data"]));
    assert!(wrong.contains("read-only"), "{wrong}");
}

#[test]
fn a_file_is_read_and_not_written_unless_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let before = image(&path, 2 << 20);
    let file = path.to_str().unwrap();
    let quick = ["--json", "--time", "10ms", "--rounds", "3", "--depths", "1,2", "--noise", "100%"];
    let output = profile(&[&[file][..], &quick].concat());
    // A cached file may be noisier than anything that can be allowed; what matters here is what becomes of it.
    if output.status.success() {
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(json["conclusion"]["pool"].as_str().unwrap().contains("device = "));
    }
    assert_eq!(std::fs::read(&path).unwrap(), before, "a file that was only measured");
    profile(&[&[file, "--destroy-data"][..], &quick].concat());
    assert_ne!(std::fs::read(&path).unwrap(), before, "writes were asked for");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let (hole, busy) = (dir.path().join("hole"), dir.path().join("busy"));
    std::fs::File::create(&hole).unwrap().set_len(1 << 20).unwrap();
    let _ = image(&busy, 1 << 20);
    let locked = std::fs::File::open(&busy).unwrap();
    locked.lock().unwrap();
    for (args, said) in [
        (vec!["st34501m"], "no model (there are"),
        (vec![dir.path().to_str().unwrap()], "is a directory"),
        (vec![hole.to_str().unwrap()], "has holes"),
        (vec![busy.to_str().unwrap()], "in use"),
        (vec!["nbd://"], "host"),
        (vec!["st34501n", "--depths", "4,2"], "ascend"),
        (vec!["st34501n", "--size", "1000B"], "multiple of 512B"),
        (vec!["{ disk = \"st34501n\", segmnets = 3 }"], "segments"),
        // Twenty requests a round are no measurement.
        (vec!["st34501n", "--time", "100ms", "--noise", "1%"], "nothing is concluded"),
    ] {
        let output = profile(&args);
        assert!(!output.status.success() && stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
    }
}

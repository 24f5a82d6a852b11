//! What is wrong with a scenario is said with its line, and with what would do.

use crate::common::{complaint, run};

const NODE: &str =
    "duration = \"1s\"\n[node]\ndevice = { constant = { time = \"1ms\" } }\nscheduler = \"fifo\"\n";
const LOAD: &str = "workload = { pattern = \"random\", size = \"4KiB\", outstanding = 1 }\n";

#[test]
fn complaints() {
    for (text, said) in [
        ("[node]\n", vec!["the scenario needs duration"]),
        ("duration = \"1s\"\n", vec!["needs a [node] with a device and a scheduler"]),
        (NODE, vec!["needs at least one [[flow]]"]),
        ("duration = 5\n", vec!["test.toml:1:", "duration: \"5\" has no unit"]),
        ("duration = \"0s\"\n", vec!["a run of 0s measures nothing"]),
        (
            "duration = \"213503d\"\nwarmup = \"1d\"\n",
            vec!["test.toml:1:", "a run lasts for 1829088000s at most"],
        ),
        (
            "duration = \"30s\"\nwindow = \"1us\"\n",
            vec!["test.toml:2:", "this run has 30000000 windows of 1us", "\"1s\" would do"],
        ),
        (
            &format!("{NODE}schedular = \"fifo\"\n[[flow]]\n{LOAD}"),
            vec!["test.toml:5:", "unknown key \"schedular\"", "did you mean \"scheduler\"?"],
        ),
        (&format!("{NODE}[[flow]]\n{LOAD}wieght = 2\n"), vec!["test.toml:7:", "unknown key \"wieght\""]),
        (
            &format!("{NODE}[[flow]]\ncapacity = \"2TB\"\n{LOAD}"),
            vec!["test.toml:6:", "a capacity of 2TB does not fit"],
        ),
        (&format!("{NODE}[[flow]]\nnodes = [1]\n{LOAD}"), vec!["there is no node 1"]),
        (
            &format!("{NODE}[[flow]]\nname = \"a\"\n{LOAD}[[flow]]\nname = \"a\"\n{LOAD}"),
            vec!["test.toml:9:", "there is a flow \"a\" already"],
        ),
        (
            &format!("{NODE}[[flow]]\ncontract = {{ rate = \"10/s\" }}\n{LOAD}"),
            vec!["test.toml:6:", "the contract of flow0", "does not promise a rate", "vc"],
        ),
        (&format!("{NODE}[[flow]]\nleeway = 0.5\n{LOAD}"), vec!["leeway = 0.5 is out of range"]),
        (
            &format!("{NODE}[[flow]]\n{LOAD}[[event]]\nat = \"1s\"\nflow = \"b\"\nleave = true\n"),
            vec!["there is no flow \"b\"; there are: flow0"],
        ),
        (
            &format!("{NODE}[[flow]]\n{LOAD}[[event]]\nat = \"1s\"\nflow = \"flow0\"\n"),
            vec!["this event changes nothing"],
        ),
        (
            &NODE.replace("\"fifo\"", "\"fi-fo\""),
            vec!["test.toml:4:", "there is no scheduler \"fi-fo\"", "did you mean \"fifo\"?"],
        ),
        (
            &NODE.replace("\"fifo\"", "{ fifo = { per = \"disk\" } }"),
            vec!["per is \"spindle\" or \"array\", not \"disk\""],
        ),
        (
            &format!("{NODE}[[flow]]\nworkload = {{ trace = \"nowhere.spc\" }}\n"),
            vec!["nowhere.spc is not here"],
        ),
    ] {
        let got = complaint(text);
        for part in said {
            assert!(got.contains(part), "expected {part:?} in:\n{got}\nof:\n{text}");
        }
    }
}

#[test]
fn a_contract_that_is_refused_in_mid_run_names_the_flow() {
    let error = run(&format!(
        "{NODE}[[flow]]\nname = \"a\"\n{LOAD}[[event]]\nat = \"500ms\"\nflow = \"a\"\ncontract = {{ rate = \"9/s\" }}\n"
    ))
    .unwrap_err();
    assert!(
        error.to_string().starts_with("the contract of a: the scheduler fifo does not promise a rate"),
        "{error}"
    );
}

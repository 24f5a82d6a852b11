//! `henge vd` by a manager: create, list, show, set, rm, events.

use super::api::{Api, escaped};
use super::vd::show_kept;
use crate::when::when;
use anyhow::{Result, anyhow, bail};
use comfy_table::{Table, presets};
use henge_api::typed;
use henge_core::{Duration, Term};
use serde_json::{Map, Value, json};

/// A specification from KEY=VALUE; an empty value is null.
pub fn spec(pairs: Vec<(String, String)>) -> Result<Map<String, Value>> {
    let known = |key: &str| Term::of_disk(key).is_some();
    let value = |(key, text): (String, String)| match text.is_empty() && known(&key) {
        true => Ok((key, Value::Null)),
        false => typed(&key, &text).map(|value| (key, value)).map_err(|why| anyhow!(why)),
    };
    pairs.into_iter().map(value).collect()
}

/// Keys and values as somebody typed them.
pub type Pairs = Vec<(String, String)>;

/// What a disk begins with, as the API has it, and the rest.
pub fn begins(pairs: Pairs) -> Result<(Map<String, Value>, Pairs)> {
    let (begins, rest): (Pairs, Pairs) =
        pairs.into_iter().partition(|(key, _)| ["image", "from", "adopt"].contains(&key.as_str()));
    let value = |(key, text): (String, String)| match (key.as_str(), text.as_str()) {
        ("adopt", "true" | "false") => Ok((key, Value::Bool(text == "true"))),
        ("adopt", _) => bail!("adopt is true or false, not \"{text}\""),
        _ => Ok((key, Value::String(text))),
    };
    Ok((begins.into_iter().map(value).collect::<Result<_>>()?, rest))
}

/// Creates a disk, or says what admission would.
pub fn create(
    api: &Api,
    name: &str,
    (spec, begins): (Map<String, Value>, Map<String, Value>),
    tenant: Option<String>,
    nbd: Vec<String>,
    json: bool,
) -> Result<()> {
    if !spec.contains_key("capacity") {
        bail!("a disk needs a capacity, like capacity=96GB");
    }
    let mut body = json!({ "name": name, "spec": spec, "nbd": nbd });
    if let Some(tenant) = tenant {
        body["tenant"] = Value::String(tenant);
    }
    begins.into_iter().for_each(|(key, value)| body[key] = value);
    let answer = api.ask("POST", "disks", Some(&body), &[])?;
    if json {
        println!("{}", answer.body);
    } else if answer.status == 202 {
        println!("{name} is admitted; its node has yet to make it");
        attach(&answer.body);
    } else {
        println!("{name} is served, admitted by {}", text(&answer.body["admitted_by"]));
        places(&answer.body);
        attach(&answer.body);
    }
    Ok(())
}

/// How to attach to a disk that was made now: its secrets are shown this once.
fn attach(disk: &Value) {
    let attach = &disk["attach"];
    if attach.is_null() {
        return lines("reach it", &disk["addresses"]);
    }
    if attach["ways"].as_array().is_none_or(Vec::is_empty) {
        println!(
            "{:<12}no door of its nodes lets anybody in: give them iscsi:// or nvme://, or name who may by --nbd",
            "attach"
        );
    }
    lines("attach", &attach["ways"]);
    println!("{:<12}user {}, secret {}", "iSCSI", text(&attach["user"]), text(&attach["chap"]));
    println!("{:<12}secret {}", "NVMe", text(&attach["nvme"]));
    let who: Vec<&str> = attach["nbd"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    println!("{:<12}{}", "NBD", if who.is_empty() { "nobody".to_owned() } else { who.join(", ") });
    println!("The secrets are not shown again.");
}

fn places(disk: &Value) {
    for place in disk["places"].as_array().into_iter().flatten() {
        let on = format!("{}/{}", text(&place["node"]), text(&place["pool"]));
        println!("{:<12}{on}, {} reserved", "on", text(&place["reserved"]));
    }
}

fn lines(what: &str, list: &Value) {
    for (i, line) in list.as_array().into_iter().flatten().filter_map(Value::as_str).enumerate() {
        println!("{:<12}{line}", if i == 0 { what } else { "" });
    }
}

/// What admission would say; whether yes.
pub fn preview(api: &Api, spec: Map<String, Value>, json: bool) -> Result<bool> {
    let decision = api.ask("POST", "admit", Some(&Value::Object(spec)), &[])?.body;
    let admitted = decision["admitted"] == true;
    if json {
        println!("{decision}");
        return Ok(admitted);
    }
    println!("{}: {}", if admitted { "yes" } else { "no" }, text(&decision["why"]));
    places(&decision);
    for (key, value) in decision["instead"].as_object().into_iter().flatten() {
        println!("{:<12}{key} {}, all else as asked", "would fit", text(value));
    }
    Ok(admitted)
}

/// All disks.
pub fn list(api: &Api, json: bool) -> Result<()> {
    let answer = api.get("disks")?;
    if json {
        println!("{answer}");
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "DISK", "OF", "CAPACITY", "PROMISED", "STATE", "ON", "CLIENTS", "IOPS", "P95", "IN BOUND",
    ]);
    for disk in answer["disks"].as_array().into_iter().flatten() {
        let received = &disk["received"];
        let number = |key: &str| received[key].as_u64().map_or("-".to_owned(), |n| n.to_string());
        let on = disk["places"].as_array().into_iter().flatten();
        let on =
            on.map(|p| format!("{}/{}", text(&p["node"]), text(&p["pool"]))).collect::<Vec<_>>().join(" ");
        // A tenant is not told.
        let on = if on.is_empty() { "-".to_owned() } else { on };
        table.add_row([
            text(&disk["name"]),
            disk["tenant"].as_str().unwrap_or("-").to_owned(),
            text(&disk["spec"]["capacity"]),
            promised(&disk["spec"]),
            state(disk),
            on,
            number("clients"),
            received["rate"].as_f64().map_or("-".to_owned(), |r| format!("{r:.1}")),
            received["p95"].as_u64().map_or("-".to_owned(), time),
            received["in_bound"].as_f64().map_or("-".to_owned(), |s| format!("{:.1} %", s * 100.0)),
        ]);
    }
    println!("{table}");
    Ok(())
}

fn state(disk: &Value) -> String {
    let phase = text(&disk["phase"]);
    match (disk["broken"] == true, disk["differences"].as_object().is_some_and(|d| !d.is_empty())) {
        (true, _) => "violated".into(),
        (false, true) => format!("{phase}, differs"),
        (false, false) if disk["away"] == true => format!("{phase}, node away"),
        (false, false) => phase,
    }
}

/// "675/s, 120ms for 95 %"
fn promised(spec: &Value) -> String {
    let mut words: Vec<String> = Vec::new();
    words.extend(spec["rate"].as_str().map(str::to_owned));
    if let Some(latency) = spec["latency"].as_str() {
        words.push(format!("{latency} for {} %", spec["percentile"].as_f64().unwrap_or(95.0)));
    }
    words.extend(spec["weight"].as_u64().map(|w| format!("weight {w}")));
    words.extend(spec["limit"].as_str().map(|l| format!("at most {l}")));
    if words.is_empty() { "best effort".into() } else { words.join(", ") }
}

/// One disk.
pub fn show(api: &Api, name: &str, json: bool) -> Result<()> {
    let disk = api.get(&format!("disks/{}", escaped(name)))?;
    if json {
        println!("{disk}");
        return Ok(());
    }
    let line = |what: &str, value: String| println!("{what:<12}{value}");
    line("name", text(&disk["name"]));
    line("tenant", disk["tenant"].as_str().unwrap_or("-").to_owned());
    line("capacity", text(&disk["spec"]["capacity"]));
    line("promised", promised(&disk["spec"]));
    line("state", format!("{}, revision {}", state(&disk), disk["revision"]));
    line(
        "admitted",
        format!("by {}, {}", text(&disk["admitted_by"]), when(disk["created"].as_u64().unwrap_or(0))),
    );
    places(&disk);
    lines("reach it", &disk["addresses"]);
    if let Some(still) = disk.get("still").filter(|s| !s.is_null()) {
        line("still", format!("{}; its node has yet to take the new contract", promised(still)));
    }
    for (term, difference) in disk["differences"].as_object().into_iter().flatten() {
        let or = |v: &Value| v.as_str().unwrap_or("nothing").to_owned();
        let both =
            format!("{} at the manager, {} at the node", or(&difference["manager"]), or(&difference["node"]));
        line("differs", format!("{term}: {both}; the stricter is enforced until you set it"));
    }
    let r = &disk["received"];
    if r.is_null() {
        line("received", "nothing is known yet".into());
        return Ok(());
    }
    let count = |key: &str| r[key].as_u64().unwrap_or(0);
    line("clients", count("clients").to_string());
    let rate = r["rate"].as_f64().unwrap_or(0.0);
    line("received", format!("{} commands, {rate:.1}/s, {} failed", count("commands"), count("failed")));
    let quantiles = [count("p50"), count("p95"), count("p99")].map(time);
    line("latency", format!("median {}, p95 {}, p99 {}", quantiles[0], quantiles[1], quantiles[2]));
    if disk["spec"]["latency"].is_string() {
        line("in bound", format!("{:.2} %", r["in_bound"].as_f64().unwrap_or(1.0) * 100.0));
    }
    if !r["kept"].is_null() {
        show_kept(&serde_json::from_value(r["kept"].clone())?);
    }
    line("waits for", r["waiting"].as_str().unwrap_or("nothing").to_owned());
    Ok(())
}

/// Changes terms.
pub fn set(api: &Api, name: &str, terms: Map<String, Value>, json: bool) -> Result<()> {
    let answer = api.ask("PATCH", &format!("disks/{}", escaped(name)), Some(&Value::Object(terms)), &[])?;
    if json {
        println!("{}", answer.body);
    } else if answer.status == 202 {
        println!("{name} is admitted with {}; its node has yet to take it", promised(&answer.body["spec"]));
    } else {
        println!("{name} has {}, {}", text(&answer.body["spec"]["capacity"]), promised(&answer.body["spec"]));
    }
    Ok(())
}

/// Gives a disk other secrets, and prints them once.
pub fn rekey(api: &Api, name: &str, nbd: &[String], json: bool) -> Result<()> {
    let body = if nbd.is_empty() { json!({}) } else { json!({ "nbd": nbd }) };
    let answer = api.ask("POST", &format!("disks/{}/access", escaped(name)), Some(&body), &[])?;
    if json {
        println!("{}", answer.body);
        return Ok(());
    }
    match answer.status {
        202 => println!(
            "{name} has other secrets; a node that is away opens by those from before until it is back"
        ),
        _ => println!("{name} has other secrets; those from before open nothing"),
    }
    attach(&answer.body);
    Ok(())
}

/// The disks of a tenant, as the administrator calls them.
pub fn exports_of(api: &Api, tenant: Option<&str>) -> Result<Vec<String>> {
    let all = api.get("disks")?;
    let disks = all["disks"].as_array().into_iter().flatten();
    let theirs = disks.filter(|disk| disk["tenant"].as_str() == tenant);
    Ok(theirs.map(|disk| text(&disk["export"])).collect())
}

/// Removes a disk.
pub fn remove(api: &Api, name: &str, force: bool) -> Result<()> {
    let answer = api.ask("DELETE", &format!("disks/{}?force={force}", escaped(name)), None, &[])?;
    if answer.status == 202 {
        println!("{name} goes when its node is back");
    }
    Ok(())
}

/// What happened.
pub fn events(api: &Api, name: Option<&str>, last: u64, json: bool) -> Result<()> {
    let of = name.map_or(String::new(), |n| format!("&disk={}", escaped(n)));
    let answer = api.get(&format!("events?limit={last}{of}"))?;
    if json {
        println!("{answer}");
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["TIME", "WHAT", "DISK", "NODE", ""]);
    for event in answer["events"].as_array().into_iter().flatten() {
        table.add_row([
            when(event["time"].as_u64().unwrap_or(0)),
            text(&event["kind"]),
            text(&event["disk"]),
            text(&event["node"]),
            text(&event["text"]),
        ]);
    }
    println!("{table}");
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn time(ns: u64) -> String {
    let rounded = match ns {
        0..10_000 => ns,
        10_000..10_000_000 => ns / 1_000 * 1_000,
        _ => ns / 100_000 * 100_000,
    };
    Duration::from_nanos(rounded).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_kinds() {
        let pairs = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
        assert_eq!(spec(pairs("percentile", "95%")).unwrap()["percentile"], 95.0);
        assert_eq!(spec(pairs("rate", "")).unwrap()["rate"], Value::Null);
        assert!(spec(pairs("pending", "x")).unwrap_err().to_string().contains("whole number"));
        assert!(spec(pairs("latncy", "x")).unwrap_err().to_string().contains("latency"));
    }
}

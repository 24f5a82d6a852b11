//! What the demo shows: a live table on a terminal, plain lines elsewhere.

use super::loads::{Measured, Promise, Tenant};
use super::{ACTS, Act, ActResult};
use comfy_table::{Cell, Color, Table, presets};
use henge_core::{Duration, Instant};
use henge_node::Address;
use serde_json::json;
use std::io::{IsTerminal, Write};

/// Where it is shown.
pub struct Screen {
    terminal: bool,
    json: bool,
    tenants: Vec<Tenant>,
    each: Duration,
    /// Lines of the live table that stand on the screen.
    standing: usize,
    /// The second that was shown last, and what everybody had then.
    last: Option<(u64, Vec<u64>)>,
}

impl Screen {
    pub fn new(json: bool) -> Self {
        let terminal = std::io::stdout().is_terminal() && !json;
        Screen { terminal, json, tenants: Vec::new(), each: Duration::ZERO, standing: 0, last: None }
    }

    fn say(&self, text: &str) {
        if self.json { eprintln!("{text}") } else { println!("{text}") }
    }

    pub fn introduce(&mut self, tenants: &[Tenant], each: &Duration, real: bool) {
        self.tenants = tenants.to_vec();
        self.each = *each;
        let kind =
            if real { "real traces" } else { "synthetic loads with the statistics of published traces" };
        self.say(&format!(
            "Three virtual disks share three emulated disk arrays (RAID-0 of four IBM DTLA-307075 each) over NBD.\n\
             They want more than the arrays can give, so somebody must decide. Loads: {kind}.\n"
        ));
        for tenant in tenants {
            self.say(&format!("  {}  promised {:<26} {}", tenant.name, tenant.promise, tenant.label));
        }
    }

    pub fn act_begins(&mut self, act: &Act) {
        self.say(&format!("\n{}: {}", act.name, act.what));
        (self.standing, self.last) = (0, None);
    }

    /// Shows another second.
    pub fn progress(&mut self, act: &Act, (now, tenants): &(Instant, Vec<Measured>)) {
        let second = now.as_nanos() / 1_000_000_000;
        let counts: Vec<u64> = tenants.iter().map(|t| t.so_far).collect();
        let (before, previous) = self.last.get_or_insert_with(|| (0, vec![0; counts.len()]));
        if second <= *before {
            return;
        }
        let seconds = (second - *before) as f64;
        let rates: Vec<f64> =
            counts.iter().zip(previous.iter()).map(|(c, p)| (c - p) as f64 / seconds).collect();
        self.last = Some((second, counts));
        if self.terminal {
            self.redraw(act, second, tenants, &rates)
        } else if second % 5 == 0 {
            self.line(second, tenants, &rates)
        }
    }

    fn line(&self, second: u64, tenants: &[Measured], rates: &[f64]) {
        let each: Vec<String> = self
            .tenants
            .iter()
            .zip(tenants)
            .zip(rates)
            .map(|((tenant, measured), rate)| match tenant.kept_if {
                Promise::Within(..) => {
                    format!(
                        "{} {rate:4.0}/s, {:5.1} % in time",
                        tenant.name,
                        measured.share_in_bound() * 100.0
                    )
                }
                _ => format!("{} {rate:4.0}/s", tenant.name),
            })
            .collect();
        self.say(&format!("  {second:3} s   {}", each.join("   ")));
    }

    fn redraw(&mut self, act: &Act, second: u64, tenants: &[Measured], rates: &[f64]) {
        let mut table = new_table(&["", "promised", "now", "within bound", "p50", "p95", "p99"]);
        for ((tenant, measured), rate) in self.tenants.iter().zip(tenants).zip(rates) {
            table.add_row([
                Cell::new(tenant.name),
                Cell::new(tenant.promise),
                Cell::new(format!("{rate:.0}/s")),
                in_bound_cell(tenant, measured),
                quantile(measured, 0.5),
                quantile(measured, 0.95),
                quantile(measured, 0.99),
            ]);
        }
        let text = format!("{table}\n  {} {second} s of {:.0} s", act.name, self.each.as_secs_f64() + 2.0);
        let mut out = std::io::stdout().lock();
        if self.standing > 0 {
            let _ = write!(out, "\x1b[{}A\x1b[J", self.standing);
        }
        let _ = writeln!(out, "{text}");
        self.standing = text.lines().count();
    }

    pub fn act_is_over(&mut self, result: &ActResult) {
        if result.lateness > Duration::from_millis(1) {
            self.say(&format!(
                "  INVALID: the emulated disks themselves were late by {} (99th percentile, at most 1 ms); the machine is \
                 too busy for this figure",
                result.lateness
            ));
        }
    }

    /// Promised against received.
    pub fn conclude(&self, results: &[ActResult]) {
        if self.json {
            return println!("{:#}", self.as_json(results));
        }
        println!("\nPromised against received, {:.0} s each:\n", self.each.as_secs_f64());
        let mut table = new_table(&["", "promised", ACTS[0].name, ACTS[1].name, ACTS[2].name]);
        for (i, tenant) in self.tenants.iter().enumerate() {
            let mut row = vec![Cell::new(tenant.name), Cell::new(tenant.promise)];
            row.extend(results.iter().map(|r| received(tenant, &r.tenants[i])));
            table.add_row(row);
        }
        let total = |r: &ActResult| r.tenants.iter().map(Measured::rate).sum::<f64>();
        let mut row = vec![Cell::new("all"), Cell::new("")];
        row.extend(results.iter().map(|r| Cell::new(format!("{:.0}/s", total(r)))));
        table.add_row(row);
        println!("{table}");
        let [cscan, vc, cvc] = results else { return };
        let broken = |r: &ActResult| {
            self.tenants.iter().zip(&r.tenants).any(|(t, m)| m.kept(t.kept_if) == Some(false))
        };
        let verdict =
            if broken(cvc) { "a promise broke under CVC in this run" } else { "CVC kept every promise" };
        println!(
            "\nOf what CSCAN moves, plain Virtual Clock moves {:.0} % and CVC {:.0} %; {verdict}.",
            100.0 * total(vc) / total(cscan),
            100.0 * total(cvc) / total(cscan)
        );
    }

    fn as_json(&self, results: &[ActResult]) -> serde_json::Value {
        let ms = |m: &Measured, q: f64| m.latency.quantile(q).map(|d| d.as_millis_f64());
        let acts = results.iter().map(|r| {
            let tenants = self.tenants.iter().zip(&r.tenants).map(|(t, m)| {
                json!({
                    "disk": t.name, "promised": t.promise, "kept": m.kept(t.kept_if), "rate": m.rate(),
                    "in_bound": m.share_in_bound(), "failed": m.failed,
                    "latency_ms": { "p50": ms(m, 0.5), "p95": ms(m, 0.95), "p99": ms(m, 0.99) },
                })
            });
            json!({
                "scheduler": r.act.name, "disks": tenants.collect::<Vec<_>>(),
                "emulator_lateness_p99_ms": r.lateness.as_millis_f64(), "valid": r.lateness <= Duration::from_millis(1),
            })
        });
        json!({ "seconds": self.each.as_secs_f64(), "schedulers": acts.collect::<Vec<_>>() })
    }

    pub fn keep(&self, address: &Address) {
        let uri = address.uri("VD1");
        println!("\nThe node stays up, under CVC, until Ctrl-C. Attach clients of your own, for example:\n");
        println!("  nbdinfo '{uri}'");
        println!("  qemu-img info '{uri}'");
        println!(
            "  fio --name=mine --ioengine=nbd --uri='{uri}' --rw=randread --bs=4k --iodepth=8 --time_based --runtime=10"
        );
    }
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(header.iter().map(Cell::new));
    table
}

fn quantile(measured: &Measured, q: f64) -> Cell {
    Cell::new(measured.latency.quantile(q).map_or("-".to_owned(), |d| format!("{:.0} ms", d.as_millis_f64())))
}

fn in_bound_cell(tenant: &Tenant, measured: &Measured) -> Cell {
    match tenant.kept_if {
        Promise::Within(..) => Cell::new(format!("{:.1} %", measured.share_in_bound() * 100.0)),
        Promise::BestEffort | Promise::Rate(_) => Cell::new("-"),
    }
}

fn received(tenant: &Tenant, measured: &Measured) -> Cell {
    let text = match tenant.kept_if {
        Promise::Within(bound, _) => {
            format!("{:.0}/s, {:.1} % within {bound}", measured.rate(), measured.share_in_bound() * 100.0)
        }
        Promise::BestEffort | Promise::Rate(_) => format!("{:.0}/s", measured.rate()),
    };
    match measured.kept(tenant.kept_if) {
        None => Cell::new(text),
        Some(true) => Cell::new(format!("{text}  kept")).fg(Color::Green),
        Some(false) => Cell::new(format!("{text}  BROKEN")).fg(Color::Red),
    }
}

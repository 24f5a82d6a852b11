//! What `henge top` draws; everything fits 80 columns.

use super::{Screen, received};
use henge_core::format_size;
use henge_web::{DiskView, Row as Figures, Snapshot};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};

/// The columns, in the order of [`cells`].
pub const HEAD: [&str; 8] = ["DISK", "RECEIVED", "PROMISED", "P95", "BOUND", "LATE", "PEND", "WAITS FOR"];
const WIDTHS: [Constraint; 8] = [
    Constraint::Fill(1),
    Constraint::Length(10),
    Constraint::Length(10),
    Constraint::Length(8),
    Constraint::Length(8),
    Constraint::Length(6),
    Constraint::Length(4),
    Constraint::Length(15),
];

fn count(x: f64) -> String {
    match x {
        100_000.0.. => format!("{:.0}k/s", x / 1e3),
        100.0.. => format!("{x:.0}/s"),
        _ => format!("{x:.1}/s"),
    }
}

fn size(x: f64) -> String {
    // Two digits behind the point tell nothing in a table.
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut x, mut at) = (x, 0);
    while x >= 999.5 && at + 1 < units.len() {
        x /= 1000.0;
        at += 1;
    }
    if x >= 100.0 { format!("{x:.0}{}/s", units[at]) } else { format!("{x:.1}{}/s", units[at]) }
}

fn rate(x: f64, unit: &str) -> String {
    match unit {
        "bytes" => size(x),
        "disk time" => format!("{:.1} %", x / 1e7),
        _ => count(x),
    }
}

fn time(us: u64) -> String {
    match us {
        0 => String::new(),
        1..1000 => format!("{us}us"),
        1000..100_000 => format!("{:.1}ms", us as f64 / 1e3),
        100_000..1_000_000 => format!("{}ms", us / 1000),
        _ => format!("{:.1}s", us as f64 / 1e6),
    }
}

fn reason(row: &Figures, snapshot: &Snapshot) -> String {
    snapshot.reasons.get(usize::from(row.8)).cloned().unwrap_or_default()
}

/// Control characters and markup of terminals in names do nothing.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A disk's line.
pub fn cells(disk: &DiskView, row: &Figures, snapshot: &Snapshot) -> [String; 8] {
    let promise = &disk.promise;
    let promised = match (promise.rate, promise.limit) {
        (Some(x), _) => rate(x, &promise.unit),
        (None, Some(x)) => format!("<{}", rate(x, &promise.unit)),
        (None, None) => String::new(),
    };
    [
        plain(&disk.name),
        rate(received(row, Some(disk)), if promise.unit == "bytes" { "bytes" } else { "requests" }),
        promised,
        time(row.4),
        promise.latency.map(|ns| time(ns / 1000)).unwrap_or_default(),
        promise.latency.map(|_| format!("{:.1}%", row.6)).unwrap_or_default(),
        if row.7 > 0 { row.7.to_string() } else { String::new() },
        if row.9 > 0 { format!("! {}", reason(row, snapshot)) } else { reason(row, snapshot) },
    ]
}

pub fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(title(screen), head);
    let chosen = screen.detail.and_then(|id| screen.snapshot.disks.iter().find(|d| d.id == id));
    match (chosen, screen.heard) {
        (_, None) => {
            let why = screen.problem.clone().unwrap_or_else(|| "looking …".into());
            frame
                .render_widget(Paragraph::new(plain(&why)).wrap(ratatui::widgets::Wrap { trim: true }), body);
        }
        (Some(disk), _) => detail(frame, screen, disk, body),
        (None, _) => table(frame, screen, body),
    }
    let keys = if screen.typing {
        Line::from(vec!["filter: ".bold(), Span::raw(plain(&screen.filter)), "_".into()])
    } else if screen.detail.is_some() {
        Line::from("Esc back  p pause  ? help  q quit").dim()
    } else {
        Line::from("Enter detail  s sort  r turn around  / filter  p pause  ? help  q quit").dim()
    };
    frame.render_widget(Paragraph::new(keys), foot);
    if screen.helping {
        help(frame);
    }
}

fn title(screen: &Screen) -> Paragraph<'static> {
    let snapshot = &screen.snapshot;
    let violated = snapshot.rows.iter().filter(|row| row.9 > 0).count();
    let about = match snapshot.about.kind.as_str() {
        "manager" | "node" => format!("{} {}", snapshot.about.kind, plain(&snapshot.about.name)),
        _ => format!("{} node{}", snapshot.nodes.len(), if snapshot.nodes.len() == 1 { "" } else { "s" }),
    };
    let gone = snapshot.nodes.iter().filter(|n| !n.up).count();
    let mut parts = vec!["henge top".bold(), format!("  {about}, {} disks", snapshot.disks.len()).into()];
    if gone > 0 {
        parts.push(format!("  {gone} gone").red().bold());
    }
    if violated > 0 {
        parts.push(format!("  {violated} violated").red().bold());
    }
    parts.push(
        format!(
            "  by {}{}",
            format!("{:?}", screen.sort).to_lowercase(),
            if screen.turned { " turned" } else { "" }
        )
        .dim(),
    );
    if !screen.filter.is_empty() && !screen.typing {
        parts.push(format!("  /{}", plain(&screen.filter)).yellow());
    }
    if screen.paused {
        parts.push("  PAUSED".yellow().bold());
    }
    if let (Some(_), Some(heard)) = (&screen.problem, screen.heard) {
        parts.push(format!("  OLD by {} s", heard.elapsed().as_secs()).red().bold());
    }
    Paragraph::new(Line::from(parts))
}

fn table(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let shown = screen.shown();
    let rows = shown.iter().map(|(disk, row)| {
        let cells = cells(disk, row, &screen.snapshot);
        let late = disk.promise.percentile.is_some_and(|p| row.6 > 100.0 - p);
        let style = |i: usize| match i {
            0 if row.9 > 0 => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            3 | 5 if late => Style::new().fg(Color::Red),
            7 if row.9 > 0 => Style::new().fg(Color::Red),
            7 if row.8 == 1 => Style::new().fg(Color::Yellow),
            2 | 4 => Style::new().dim(),
            _ => Style::new(),
        };
        Row::new(cells.into_iter().enumerate().map(|(i, text)| aligned(text, i).style(style(i))))
    });
    let head = Row::new(HEAD.iter().enumerate().map(|(i, text)| aligned((*text).to_owned(), i)))
        .style(Style::new().bold().underlined());
    let table =
        Table::new(rows, WIDTHS).header(head).column_spacing(1).row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(Some(screen.chosen.min(shown.len().saturating_sub(1))));
    frame.render_stateful_widget(table, area, &mut state);
}

/// Figures stand right, words left.
fn aligned(text: String, column: usize) -> Cell<'static> {
    let line = Line::from(text);
    Cell::from(if matches!(column, 0 | 7) { line } else { line.right_aligned() })
}

fn detail(frame: &mut Frame<'_>, screen: &Screen, disk: &DiskView, area: Rect) {
    let empty = Figures::default();
    let row = screen.snapshot.rows.iter().find(|row| row.0 == disk.id).unwrap_or(&empty);
    let promise = &disk.promise;
    let terms: Vec<String> = disk.contract.iter().map(|(k, v)| plain(&format!("{k}={v}"))).collect();
    let label = |what: &str, value: String| Line::from(vec![format!("{what:<12}").dim(), value.into()]);
    let mut lines = vec![
        Line::from(vec![
            plain(&disk.name).bold(),
            if row.9 > 0 { "  violated".red().bold() } else { "".into() },
        ]),
        label("on", plain(&format!("{} / {}", disk.nodes.join(", "), disk.pools.join(", ")))),
        label("capacity", format_size(disk.capacity)),
        label("contract", if terms.is_empty() { "best effort".into() } else { terms.join(" ") }),
        label("received", format!("{}, {}", count(row.1), size(row.2 as f64))),
        label(
            "latency",
            format!("p50 {}, p95 {}, p99 {} (last 10 s)", time(row.3), time(row.4), time(row.5)),
        ),
        label("of it", format!("wait {}, service {} (means)", time(row.10), time(row.11))),
        label("pending", format!("{} from {} clients", row.7, row.12)),
        label("waits for", if row.8 == 0 { "nothing".into() } else { reason(row, &screen.snapshot) }),
    ];
    if let (Some(ns), Some(p)) = (promise.latency, promise.percentile) {
        lines.insert(6, label("bound", format!("{} for {p} %, {:.1} % were late", time(ns / 1000), row.6)));
    }
    let height = lines.len() as u16 + 1;
    let [facts, first, second] =
        Layout::vertical([Constraint::Length(height), Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(lines), facts);
    let history = screen.history.get(&disk.id);
    let tail = |width: u16| {
        history.into_iter().flatten().skip(history.map_or(0, |h| h.len().saturating_sub(width.into())))
    };
    let top = history.into_iter().flatten().map(|(x, _)| *x).fold(promise.rate.unwrap_or(0.0), f64::max);
    let unit = if promise.unit == "bytes" { "bytes" } else { "requests" };
    let received: Vec<u64> = tail(first.width).map(|(x, _)| *x as u64).collect();
    let block = Block::new().title(format!("received, full height {}", rate(top, unit)).dim());
    frame.render_widget(
        Sparkline::default().data(&received).max((top as u64).max(1)).style(Color::Cyan).block(block),
        first,
    );
    let late: Vec<u64> = tail(second.width).map(|(_, p95)| *p95).collect();
    let most = late.iter().copied().max().unwrap_or(0).max(promise.latency.map_or(0, |ns| ns / 1000));
    let block = Block::new().title(format!("95th percentile, full height {}", time(most)).dim());
    frame.render_widget(
        Sparkline::default().data(&late).max(most.max(1)).style(Color::Magenta).block(block),
        second,
    );
}

fn help(frame: &mut Frame<'_>) {
    let text = "\
RECEIVED   of the last second
PROMISED   reserved rate; < is a limit
P95        95th percentile, last 10 s
LATE       answered beyond the BOUND
WAITS FOR  what its oldest request waits for:
  own limit        its contract's limit
  own share        others' turn, by weight
  device busy      every slot is taken
  depth            the depth is held down
  foreign service  counted from other nodes
  turn             another disk's turn
!          the promise is not kept";
    let area = frame.area();
    let (width, height) = (50.min(area.width), 15.min(area.height));
    let spot = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, spot);
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title(" henge top ")), spot);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::top::{Column, Screen};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen() -> Screen {
        let disk = |id, name: &str| DiskView {
            id,
            name: name.into(),
            nodes: vec!["n".into()],
            pools: vec!["p".into()],
            promise: henge_api::Promise {
                rate: Some(675.0),
                unit: "requests".into(),
                latency: Some(120_000_000),
                percentile: Some(95.0),
                ..henge_api::Promise::default()
            },
            ..DiskView::default()
        };
        let row = |id, rate, late, violated| {
            Figures(id, rate, 4_000_000, 9_000, 99_000, 130_000, late, 7, 1, violated, 100, 100, 1)
        };
        let snapshot = Snapshot {
            reasons: vec![String::new(), "own limit".into()],
            disks: vec![
                disk(1, "web"),
                disk(2, "mail\u{1b}[31m\n"),
                disk(3, "a-name-that-is-longer-than-its-column-is-wide"),
            ],
            rows: vec![row(1, 670.0, 1.0, 0), row(2, 12.5, 9.5, 1), row(3, 0.0, 0.0, 0)],
            ..Snapshot::default()
        };
        let mut screen = Screen {
            snapshot: Snapshot::default(),
            history: std::collections::BTreeMap::new(),
            heard: None,
            problem: None,
            sort: Column::Received,
            turned: false,
            filter: String::new(),
            typing: false,
            paused: false,
            helping: false,
            chosen: 0,
            detail: None,
        };
        screen.take(Ok(snapshot));
        screen
    }

    fn drawn(screen: &Screen) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, screen)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        (0..24)
            .map(|y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn eighty_columns_hold_a_line() {
        let lines = drawn(&screen());
        assert!(lines[0].starts_with("henge top  0 nodes, 3 disks  1 violated  by received"), "{}", lines[0]);
        assert!(lines[1].starts_with("DISK") && lines[1].ends_with("WAITS FOR"), "{}", lines[1]);
        let web: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(web, ["web", "670/s", "675/s", "99.0ms", "120ms", "1.0%", "7", "own", "limit"]);
        assert!(lines.iter().all(|l| l.chars().count() <= 80));
        assert!(lines[3].starts_with("mail?[31m?") && lines[3].ends_with("! own limit"), "{}", lines[3]);
    }

    #[test]
    fn the_detail_and_the_help_fit_too() {
        let mut screen = screen();
        screen.detail = Some(1);
        let lines = drawn(&screen);
        assert!(lines.iter().any(|l| l == "bound       120ms for 95 %, 1.0 % were late"), "{lines:#?}");
        screen.helping = true;
        assert!(drawn(&screen).iter().any(|l| l.contains("its contract's limit")));
    }

    #[test]
    fn pausing_keeps_what_is_seen() {
        let mut screen = screen();
        screen.paused = true;
        screen.take(Ok(Snapshot::default()));
        assert_eq!(screen.snapshot.disks.len(), 3);
        screen.take(Err("gone".into()));
        assert!(drawn(&screen)[0].contains("PAUSED  OLD by 0 s"));
    }
}

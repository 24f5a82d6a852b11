//! `henge top`: who was promised what, who gets what, and why they wait, in a terminal.

mod draw;
mod look;

use anyhow::{Result, bail};
use henge_web::{DiskView, Row, Snapshot};
use look::{Look, Looker};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::collections::{BTreeMap, VecDeque};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const KEYS: &str = "\
Keys: arrows or j k choose a disk, Enter shows it, Esc goes back; s sorts by the next column, r turns the order
around; / filters by name; p pauses; ? helps; q ends.";

/// Arguments of `henge top`.
#[derive(clap::Args)]
#[command(after_help = KEYS)]
pub struct Args {
    /// A node's control socket; several may be given
    #[arg(
        long,
        value_name = "SOCKET",
        env = "HENGE_NODE",
        default_value = "/run/henge/node.sock",
        conflicts_with = "url"
    )]
    node: Vec<PathBuf>,
    /// Instead: where a node or the manager serves its web page, like http://127.0.0.1:8080
    #[arg(long, value_name = "URL", env = "HENGE_URL")]
    url: Option<String>,
    /// The token for it, in a file
    #[arg(long, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// Sort by this column
    #[arg(long, value_enum, default_value_t = Column::Name)]
    sort: Column,
    /// Only disks whose names hold this
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Print once and end, as without a terminal
    #[arg(long)]
    once: bool,
}

/// What can be sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Column {
    /// The disk's name
    Name,
    /// What it receives
    Received,
    /// Its 95th percentile of latency
    P95,
    /// Share of late commands
    Late,
    /// Commands pending
    Pending,
    /// Why it waits
    Waits,
    /// Broken promises first
    Promise,
}

impl Column {
    const ALL: [Column; 7] = [
        Column::Name,
        Column::Received,
        Column::P95,
        Column::Late,
        Column::Pending,
        Column::Waits,
        Column::Promise,
    ];
    fn next(self) -> Column {
        let at = Self::ALL.iter().position(|c| *c == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// Seconds of a disk's history.
const HISTORY: usize = 200;

/// What is on the screen.
struct Screen {
    snapshot: Snapshot,
    /// By id: received and 95th percentile, second by second.
    history: BTreeMap<u32, VecDeque<(f64, u64)>>,
    heard: Option<Instant>,
    problem: Option<String>,
    sort: Column,
    turned: bool,
    filter: String,
    typing: bool,
    paused: bool,
    helping: bool,
    chosen: usize,
    detail: Option<u32>,
}

impl Screen {
    fn new(args: &Args) -> Screen {
        Screen {
            snapshot: Snapshot::default(),
            history: BTreeMap::new(),
            heard: None,
            problem: None,
            sort: args.sort,
            turned: false,
            filter: args.filter.clone(),
            typing: false,
            paused: false,
            helping: false,
            chosen: 0,
            detail: None,
        }
    }

    fn take(&mut self, look: Look) {
        match look {
            Ok(_) if self.paused => {}
            Ok(snapshot) => {
                for row in &snapshot.rows {
                    let history = self.history.entry(row.0).or_default();
                    history.push_back((received(row, disk(&snapshot, row.0)), row.4));
                    if history.len() > HISTORY {
                        history.pop_front();
                    }
                }
                self.history.retain(|id, _| snapshot.rows.iter().any(|row| row.0 == *id));
                self.snapshot = snapshot;
                self.heard = Some(Instant::now());
                self.problem = None;
            }
            Err(problem) => self.problem = Some(problem),
        }
    }

    /// The disks that are shown, in their order.
    fn shown(&self) -> Vec<(&DiskView, &Row)> {
        let filter = self.filter.to_lowercase();
        let disks = self.snapshot.disks.iter().filter(|d| d.name.to_lowercase().contains(&filter));
        let row = |d: &DiskView| self.snapshot.rows.iter().find(|row| row.0 == d.id);
        let by_id: BTreeMap<u32, &Row> = self.snapshot.rows.iter().map(|row| (row.0, row)).collect();
        let mut shown: Vec<_> =
            disks.filter_map(|d| by_id.get(&d.id).copied().or_else(|| row(d)).map(|r| (d, r))).collect();
        let down = |a: f64, b: f64| b.total_cmp(&a);
        shown.sort_by(|(d, a), (e, b)| {
            let order = match self.sort {
                Column::Name => std::cmp::Ordering::Equal,
                Column::Received => down(received(a, Some(d)), received(b, Some(e))),
                Column::P95 => b.4.cmp(&a.4),
                Column::Late => down(a.6, b.6),
                Column::Pending => b.7.cmp(&a.7),
                Column::Waits => b.8.cmp(&a.8),
                Column::Promise => b.9.cmp(&a.9),
            };
            order.then_with(|| d.name.cmp(&e.name))
        });
        if self.turned {
            shown.reverse();
        }
        shown
    }

    /// Whether to go on.
    fn key(&mut self, key: KeyEvent) -> bool {
        let last = self.shown().len().saturating_sub(1);
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return false;
        }
        if self.typing {
            match key.code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => {
                    self.typing = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(c) if self.filter.len() < 64 => self.filter.push(c),
                _ => {}
            }
            self.chosen = 0;
            return true;
        }
        match key.code {
            KeyCode::Char('q') => return false,
            KeyCode::Char('?') => self.helping = !self.helping,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.turned = !self.turned,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::PageDown => self.chosen = (self.chosen + 20).min(last),
            KeyCode::PageUp => self.chosen = self.chosen.saturating_sub(20),
            KeyCode::Home => self.chosen = 0,
            KeyCode::End => self.chosen = last,
            KeyCode::Enter | KeyCode::Char('d') => {
                self.detail = self.shown().get(self.chosen).map(|(disk, _)| disk.id);
            }
            KeyCode::Esc | KeyCode::Backspace => {
                self.helping = false;
                if self.detail.take().is_none() {
                    self.filter.clear();
                }
            }
            _ => {}
        }
        true
    }
}

fn disk(snapshot: &Snapshot, id: u32) -> Option<&DiskView> {
    snapshot.disks.iter().find(|d| d.id == id)
}

/// In the unit of the disk's promise.
fn received(row: &Row, disk: Option<&DiskView>) -> f64 {
    if disk.is_some_and(|d| d.promise.unit == "bytes") { row.2 as f64 } else { row.1 }
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode> {
    let token = match &args.token_file {
        Some(path) => {
            let text =
                std::fs::read_to_string(path).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
            text.split_whitespace().next().map(str::to_owned)
        }
        None => None,
    };
    let looker = Looker::new(args.url.clone(), token, args.node.clone());
    let mut screen = Screen::new(&args);
    if args.once || !std::io::stdout().is_terminal() {
        return once(looker, screen);
    }
    let looks = looker.start();
    let mut terminal = ratatui::try_init()?;
    let ended = loop {
        while let Ok(look) = looks.try_recv() {
            screen.take(look);
        }
        if let Err(e) = terminal.draw(|frame| draw::draw(frame, &screen)) {
            break Err(e);
        }
        match event::poll(Duration::from_millis(200)) {
            Ok(true) => match event::read() {
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press && !screen.key(key) => break Ok(()),
                Ok(_) => {}
                Err(e) => break Err(e),
            },
            Ok(false) => {}
            Err(e) => break Err(e),
        }
    };
    ratatui::restore();
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Two looks, as figures need the time between them; then lines of text.
fn once(mut looker: Looker, mut screen: Screen) -> Result<ExitCode> {
    for wait in [0, 1200, 1200] {
        std::thread::sleep(Duration::from_millis(wait));
        match looker.look() {
            Ok(snapshot) => screen.take(Ok(snapshot)),
            Err(problem) => bail!("{problem}"),
        }
    }
    println!("{}", draw::HEAD.join("\t"));
    for (disk, row) in screen.shown() {
        println!("{}", draw::cells(disk, row, &screen.snapshot).join("\t"));
    }
    Ok(ExitCode::SUCCESS)
}

//! `henge ca`: a cluster's authority. `henge join`, `henge renew`: certificates of one's own.

use super::api::{Api, ManagerArg};
use crate::when::when;
use anyhow::{Context, Result, bail};
use comfy_table::{Table, presets};
use henge_tls::{Identity, Request, Token};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Where an identity lies by default.
const FOLDER: &str = "/etc/henge/identity";

const EXAMPLE: &str = "\
The manager of a cluster signs certificates: for nodes, proxies, other managers and clients. In its configuration:

    cluster = \"demo\"

Then a node joins with one command, by a token that opens the door once:

    henge ca invite node n1                            # at the manager: prints the next line, and the token
    henge join https://10.0.0.1:7100                   # at the node: asks for the token, and writes /etc/henge/identity
    identity = \"/etc/henge/identity\"                   # in the node's configuration

Nodes renew their certificates themselves; clients do by `henge renew`, from a timer. To exchange the root:

    henge ca rotate                                    # both roots are believed; the new one signs
    henge ca show                                      # when everybody has renewed, within days:
    henge ca retire                                    # the old root ends";

/// Arguments of `henge ca`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// The roots, who was invited, and which certificates count
    Show {
        #[command(flatten)]
        manager: ManagerArg,
    },
    /// Invite somebody to join; the token is printed once, and opens the door once
    Invite {
        /// node, proxy, client or manager
        role: String,
        /// As whom
        name: String,
        /// Of which tenant a client is: `henge tenant rm` revokes it, too
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// A host's name or address by which clients reach it; may be repeated
        #[arg(long = "host", value_name = "HOST")]
        hosts: Vec<String>,
        /// How long the token counts
        #[arg(long, value_name = "TIME", default_value = "1h")]
        lasts: String,
        #[command(flatten)]
        manager: ManagerArg,
    },
    /// Take an invitation back
    Uninvite {
        /// As `show` lists it
        id: String,
        #[command(flatten)]
        manager: ManagerArg,
    },
    /// Revoke a certificate by its number, or all of somebody, like node/n1, with the invitations
    Revoke {
        /// The number, or whose
        whose: String,
        #[command(flatten)]
        manager: ManagerArg,
    },
    /// Make a second root, which signs from now on; both are believed
    Rotate {
        #[command(flatten)]
        manager: ManagerArg,
    },
    /// End the older of two roots
    Retire {
        /// Also while certificates of it count: who holds one joins again
        #[arg(long)]
        anyway: bool,
        #[command(flatten)]
        manager: ManagerArg,
    },
}

/// Arguments of `henge join`.
#[derive(clap::Args)]
pub struct JoinArgs {
    /// The manager that leads, as https://10.0.0.1:7100
    url: String,
    /// The token itself, which every user of this machine may then read; better by --token-file, in HENGE_JOIN_TOKEN, or by standard input (-, or nothing)
    #[arg(conflicts_with = "token_file")]
    token: Option<String>,
    /// A file with the token that `henge ca invite` printed; -: standard input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The folder for the key, the certificate and the cluster's roots
    #[arg(short, long, value_name = "DIR", default_value = FOLDER)]
    output: PathBuf,
}

/// Arguments of `henge renew`.
#[derive(clap::Args)]
pub struct RenewArgs {
    /// The folder that `henge join` wrote
    #[arg(value_name = "DIR", default_value = FOLDER)]
    folder: PathBuf,
    /// Also before two thirds of the certificate's time are over
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    manager: ManagerArg,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Asks the authority.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::Show { manager } => show(&manager.connect()?.get("ca")?),
        Action::Invite { role, name, tenant, hosts, lasts, manager } => {
            let api = manager.connect()?;
            let mut body = json!({ "role": role, "name": name, "hosts": hosts, "lasts": lasts });
            if let Some(tenant) = tenant {
                body["tenant"] = tenant.into();
            }
            let made = api.ask("POST", "ca/invitations", Some(&body), &[])?.body;
            let expires = made["expires"].as_u64().map_or_else(String::new, when);
            eprintln!(
                "once, until {expires}, {role} {name} may join, by this command and this token, for which it asks:"
            );
            println!("henge join {}", api.first());
            println!("{}", text(&made["token"]));
        }
        Action::Uninvite { id, manager } => {
            let path = format!("ca/invitations/{}", super::api::escaped(&id));
            manager.connect()?.ask("DELETE", &path, None, &[])?;
        }
        Action::Revoke { whose, manager } => {
            let body = json!({ "whose": whose });
            let revoked = manager.connect()?.ask("POST", "ca/revoke", Some(&body), &[])?.body;
            println!("{} revoked; nodes know within seconds", revoked["certificates"]);
            if let Some(n @ 1..) = revoked["invitations"].as_u64() {
                println!("{n} invitation(s) taken back; `henge ca invite` makes another");
            }
        }
        Action::Rotate { manager } => {
            let made = manager.connect()?.ask("POST", "ca/rotate", Some(&json!({})), &[])?.body;
            println!("a second root signs: {}", text(&made["fingerprint"]));
            println!("when `henge ca show` lists everybody anew, `henge ca retire` ends the first");
        }
        Action::Retire { anyway, manager } => {
            let body = json!({ "anyway": anyway });
            let retired = manager.connect()?.ask("POST", "ca/retire", Some(&body), &[])?.body;
            match retired["certificates"].as_u64() {
                Some(0) | None => println!("the older root has ended; everybody has renewed"),
                Some(n) => println!("the older root has ended; who holds {n} certificates of it joins again"),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(answer: &Value) {
    println!("cluster {}", text(&answer["cluster"]));
    let list = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    for root in list("roots") {
        let signs = if root["signs"] == true { "signs" } else { "is believed" };
        println!(
            "root {} of {} {signs}",
            text(&root["fingerprint"]),
            root["created"].as_u64().map_or_else(String::new, when)
        );
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["WHOSE", "TENANT", "UNTIL", "STATE", "NUMBER"]);
    for c in list("certificates") {
        let state = c["revoked"].as_u64().map_or("counts".to_owned(), |at| format!("revoked {}", when(at)));
        let until = c["expires"].as_u64().map_or_else(String::new, when);
        table.add_row([text(&c["whose"]), text(&c["tenant"]), &until, &state, text(&c["serial"])]);
    }
    for i in list("invitations") {
        let state = i["used"].as_u64().map_or("invited".to_owned(), |at| format!("joined {}", when(at)));
        let until = i["expires"].as_u64().map_or_else(String::new, when);
        table.add_row([text(&i["whose"]), text(&i["tenant"]), &until, &state, text(&i["id"])]);
    }
    println!("\n{table}");
}

/// The host and port of an URL by https.
fn host_of(url: &str) -> Result<&str> {
    let rest = url.strip_prefix("https://");
    let rest = rest.with_context(|| {
        format!("{url}: a manager that signs certificates is at an address like https://10.0.0.1:7100")
    })?;
    Ok(rest.trim_end_matches('/'))
}

/// The root whose fingerprint the token has, from who answers there; and nobody else's.
fn root_at(url: &str, token: &Token) -> Result<Vec<u8>> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let host = host_of(url)?;
    let address = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        host.to_owned()
    } else {
        format!("{host}:443")
    };
    let mut last = None;
    for at in address.to_socket_addrs().with_context(|| address.clone())? {
        match TcpStream::connect_timeout(&at, PATIENCE) {
            Ok(socket) => {
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                return henge_tls::root_of(&socket, &token.fingerprint).with_context(|| url.to_owned());
            }
            Err(e) => last = Some(e),
        }
    }
    bail!("{url}: {}", last.map_or_else(|| "no such address".to_owned(), |e| e.to_string()))
}

/// Longest token, in bytes, with what is around it.
const TOKEN_MAX: u64 = 4096;

/// Where a token is.
#[derive(PartialEq, Eq, Debug)]
enum Given {
    Argument(String),
    File(PathBuf),
    Environment(String),
    Input,
}

/// Where the token is: what the command line says goes before the environment.
fn found(argument: Option<String>, file: Option<PathBuf>, environment: Option<String>) -> Given {
    match (argument, file, environment) {
        (Some(dash), ..) if dash == "-" => Given::Input,
        (Some(token), ..) => Given::Argument(token),
        (None, Some(dash), _) if dash == Path::new("-") => Given::Input,
        (None, Some(path), _) => Given::File(path),
        (None, None, Some(token)) if !token.trim().is_empty() => Given::Environment(token),
        _ => Given::Input,
    }
}

/// The token, from there.
fn token(from: Given, input: impl Read) -> Result<Token> {
    let text = match from {
        Given::Argument(token) => {
            eprintln!(
                "henge: insecure: while this command runs every user of this machine may read its arguments, the token among \
                 them, and your shell may remember it; give it by --token-file, in HENGE_JOIN_TOKEN, or by standard input"
            );
            token
        }
        Given::Environment(token) => token,
        Given::File(path) => henge_io::read_secret(&path)?,
        Given::Input => {
            // A token is a line: whoever types one ends it, and not the input.
            let mut line = String::new();
            BufReader::new(input.take(TOKEN_MAX)).read_line(&mut line).context("standard input")?;
            line
        }
    };
    Ok(text.trim().parse()?)
}

/// Joins a cluster.
pub fn join(args: JoinArgs) -> Result<ExitCode> {
    let from = found(args.token, args.token_file, std::env::var("HENGE_JOIN_TOKEN").ok());
    if from == Given::Input && std::io::stdin().is_terminal() {
        eprint!("the token that `henge ca invite` printed: ");
    }
    let token = token(from, std::io::stdin())?;
    if args.output.join("identity.pem").exists() {
        bail!(
            "{} holds an identity already; `henge renew` renews it, or take the folder away to join anew",
            args.output.display()
        );
    }
    let root = root_at(&args.url, &token)?;
    let api = Api::trusting(&args.url, &root)?;
    let request = Request::new()?;
    let body = json!({ "token": token.reveal(), "request": request.pem });
    let joined = api.ask("POST", "ca/join", Some(&body), &[])?.body;
    super::keep_files_private();
    let who = keep(&args.output, &request.key, &joined)?;
    henge_tls::signed_by(&args.output, api.first())?;
    let until = joined["until"].as_u64().map_or_else(String::new, |s| when(s.saturating_mul(1000)));
    println!(
        "joined the cluster {} as {} {}, until {until}: {}",
        who.cluster,
        who.role,
        who.name,
        args.output.display()
    );
    match who.role {
        henge_tls::Role::Node => {
            println!(
                "the node's configuration: identity = \"{}\"; it renews it itself",
                args.output.display()
            );
        }
        henge_tls::Role::Client => {
            println!("nbdinfo --tls-certificates={} nbds://NODE/DISK", args.output.display());
            println!("from a timer, each day: henge renew {}", args.output.display());
        }
        henge_tls::Role::Proxy => {
            println!(
                "the proxy's [cluster]: node = \"{}\", identity = \"{}\"; it renews it itself",
                who.name,
                args.output.display()
            );
        }
        henge_tls::Role::Manager => println!(
            "identity = \"{}\" in its configuration; from a timer, each day: henge renew",
            args.output.display()
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn keep(folder: &Path, key: &str, joined: &Value) -> Result<Identity> {
    let who = Identity::parse(text(&joined["identity"])).context("the manager's answer names nobody")?;
    henge_tls::believe(folder, who.role, text(&joined["ca"]), text(&joined["revoked"]))?;
    henge_tls::keep(folder, who.role, key, text(&joined["certificate"]))?;
    Ok(who)
}

/// Exchanges a certificate for a new one.
pub fn renew(args: RenewArgs) -> Result<ExitCode> {
    super::keep_files_private();
    let api = args.manager.showing(&args.folder)?;
    // Another root may sign now, and some certificates may count no more. A manager of an earlier release does not say.
    let heard = believe(&api, &args.folder);
    if !args.now && !is_due(&args.folder)? {
        heard?;
        println!("{} is not due yet", args.folder.join("identity.pem").display());
        return Ok(ExitCode::SUCCESS);
    }
    let (who, until) = exchange(&api, &args.folder)?;
    println!("{} {} is renewed, until {until}", who.role, who.name);
    Ok(ExitCode::SUCCESS)
}

/// Whether a certificate is to be renewed.
fn is_due(folder: &Path) -> Result<bool> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    Ok(henge_tls::is_due(folder, i64::try_from(now)?)?)
}

/// Who it is, and until when.
fn exchange(api: &Api, folder: &Path) -> Result<(Identity, String)> {
    let request = Request::new()?;
    let joined = api.ask("POST", "ca/renew", Some(&json!({ "request": request.pem })), &[])?.body;
    let who = keep(folder, &request.key, &joined)?;
    Ok((who, joined["until"].as_u64().map_or_else(String::new, |s| when(s.saturating_mul(1000)))))
}

/// Keeps the identity of a process that no manager speaks to: asks whom the cluster believes, and renews what is due.
pub fn follow(folder: PathBuf) -> std::io::Result<()> {
    const PAUSE: Duration = Duration::from_secs(5);
    let follow = move || {
        let (mut said, mut api) = (String::new(), None);
        loop {
            if let Err(why) = look(&folder, &mut api) {
                // Files may have changed: they are read again.
                api = None;
                let why = format!("{why:#}");
                if said != why {
                    eprintln!("henge: the identity in {} is not kept up to date: {why}", folder.display());
                    said = why;
                }
            } else {
                said.clear();
            }
            std::thread::sleep(PAUSE);
        }
    };
    std::thread::Builder::new().name("henge-identity".into()).spawn(follow).map(drop)
}

/// Hears whom the cluster believes.
fn believe(api: &Api, folder: &Path) -> Result<()> {
    let trust = api.get("ca/trust")?;
    let own = henge_tls::certificates(&folder.join("identity.pem"))?;
    let who = own.first().and_then(|own| Identity::of(&henge_tls::names(own)));
    let role = who.context("the certificate names nobody of a cluster")?.role;
    Ok(henge_tls::believe(folder, role, text(&trust["ca"]), text(&trust["revoked"]))?)
}

/// Looks once.
fn look(folder: &Path, kept: &mut Option<Api>) -> Result<()> {
    let manager = ManagerArg { manager: None, token_file: None, ca: None };
    if henge_tls::signer(folder).is_none() {
        bail!(
            "it does not say which manager signed it; join again, or write the manager's address to {}",
            folder.join("manager").display()
        );
    }
    let api = match kept.take() {
        Some(api) => api,
        None => manager.showing(folder)?,
    };
    let ca = std::fs::read_to_string(folder.join("ca.pem")).unwrap_or_default();
    believe(&api, folder)?;
    let same = std::fs::read_to_string(folder.join("ca.pem")).unwrap_or_default() == ca;
    if is_due(folder)? {
        let (who, until) = exchange(&api, folder)?;
        eprintln!("henge: the certificate of {} {} is renewed, until {until}", who.role, who.name);
    } else if same {
        // Who is believed has not changed: neither has the way to ask.
        *kept = Some(api);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_need_not_stand_where_others_read_it() {
        let text = |s: &str| Some(s.to_owned());
        let file = |s: &str| Some(PathBuf::from(s));
        for (argument, path, environment, from) in [
            (None, None, None, Given::Input),
            (text("-"), None, text("e"), Given::Input),
            (None, file("-"), text("e"), Given::Input),
            (None, file("f"), text("e"), Given::File("f".into())),
            (None, None, text("e"), Given::Environment("e".into())),
            (None, None, text(" "), Given::Input),
            (text("a"), None, text("e"), Given::Argument("a".into())),
        ] {
            assert_eq!(found(argument, path, environment), from);
        }
        let is = |at: &str| format!("henge-join.{at}{}.{}", "0".repeat(63), "1".repeat(64));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, format!("{}\n", is("2"))).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let typed = format!(" {}\nand more", is("3"));
        let none = || &b""[..];
        for (from, input, at) in [
            (Given::File(path.clone()), none(), "2"),
            (Given::Input, typed.as_bytes(), "3"),
            (Given::Environment(is("4")), none(), "4"),
            (Given::Argument(is("5")), none(), "5"),
        ] {
            assert_eq!(token(from, input).unwrap().reveal(), is(at));
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let why = token(Given::File(path), none()).unwrap_err().to_string();
        assert!(why.contains("chmod 600") && !why.contains(&is("2")), "{why}");
        assert!(token(Given::Input, none()).unwrap_err().to_string().contains("henge ca invite"));
    }
}

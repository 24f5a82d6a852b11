//! `henge proxy --check`: would it work here?

use crate::config::{Config, ListenConfig, Who};
use henge_pvfs2::{HEADER_LEN, Header, ServerLimits, encode_get_config, read_config};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// OrangeFS clients end a zone's name one byte beyond its block, which only these lengths show (`BMI_tcp_method_addr_lookup`
/// of 2.9 and 2.10, glibc on 64 bits, with its own allocator's header and without).
const ZONE_LENGTHS_THAT_CRASH: [usize; 2] = [6, 22];

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Whether it is as it should be.
    pub good: bool,
    /// What was found, and where it is wrong, what to do.
    pub text: String,
}

fn finding(good: bool, text: String) -> Finding {
    Finding { good, text }
}

/// Looks at ports, server, and the server's own configuration.
pub fn check(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Kept, so that an address that is stated twice is found to be taken.
    let mut taken = Vec::new();
    let links = config.peers.as_ref().map(|peers| peers.listen);
    for address in config.listen.iter().map(|l| l.address).chain(links) {
        match TcpListener::bind(address) {
            Ok(listener) => {
                taken.push(listener);
                findings.push(finding(true, format!("{address} is free to listen on")));
            }
            Err(e) => findings.push(finding(false, format!("cannot listen on {address}: {e}"))),
        }
    }
    for (name, address) in config.peers.iter().flat_map(|peers| &peers.peers) {
        let text = match TcpStream::connect_timeout(address, Duration::from_secs(1)) {
            Ok(_) => format!("peer {name} answers at {address}"),
            // Others may be started later.
            Err(e) => format!(
                "peer {name} does not answer at {address} yet ({e}); until it does, its service is not counted"
            ),
        };
        findings.push(finding(true, text));
    }
    match fetch(config) {
        Err(error) => findings.push(finding(
            false,
            format!("no PVFS2 server answers at {}: {error}; is pvfs2-server running there?", config.server),
        )),
        Ok(None) => findings.push(finding(
            false,
            format!(
                "the server at {} speaks another protocol version, or refuses to show its configuration",
                config.server
            ),
        )),
        Ok(Some(text)) => judge(config, &text, &mut findings),
    }
    findings
}

/// The server's configuration file, as it hands it to clients.
fn fetch(config: &Config) -> std::io::Result<Option<String>> {
    let patience = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&config.server, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(&encode_get_config(1))?;
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header)?;
    let Some(header) = Header::parse(&header).filter(|h| h.size <= 256 << 10) else { return Ok(None) };
    let mut payload = vec![0; header.size as usize];
    stream.read_exact(&mut payload)?;
    Ok(read_config(&payload))
}

fn judge(config: &Config, text: &str, findings: &mut Vec<Finding>) {
    let limits = ServerLimits::from_config(text);
    let seconds = |d: henge_core::Duration| d.as_nanos() / 1_000_000_000;
    findings.push(finding(
        true,
        format!(
            "the server at {} answers; clients wait {} s for a response, servers {} s for data",
            config.server,
            seconds(limits.client_message),
            seconds(limits.server_flow)
        ),
    ));
    if seconds(limits.client_message) < 30 {
        findings.push(finding(
            false,
            format!(
                "clients give up after {} s, so requests cannot wait longer; set ClientJobBMITimeoutSecs 300",
                seconds(limits.client_message)
            ),
        ));
    }
    judge_security(config, text, findings);
    let aliases: Vec<&str> = text.lines().map(str::trim).filter(|l| l.starts_with("Alias ")).collect();
    for zone in aliases.iter().flat_map(|alias| addresses(alias).filter_map(|a| a.zone)) {
        if ZONE_LENGTHS_THAT_CRASH.contains(&zone.len()) && !findings.iter().any(|f| f.text.contains(zone)) {
            findings.push(finding(
                false,
                format!(
                    "clients of zone {zone} may crash: OrangeFS writes one byte beyond a zone's name, which hits its heap at \
                     {} letters; take a name of another length",
                    zone.len()
                ),
            ));
        }
    }
    let aliases: Vec<Vec<Address>> = aliases.iter().map(|alias| addresses(alias).collect()).collect();
    for listen in &config.listen {
        findings.push(judge_port(config, listen, &aliases));
    }
}

/// What signatures of the site mean for whoever passes them on, and for rules.
fn judge_security(config: &Config, text: &str, findings: &mut Vec<Finding>) {
    let states = |option: &str| {
        text.lines().any(|line| line.split_whitespace().next().is_some_and(|word| word == option))
    };
    if !["ServerKey", "KeyStore", "CAFile"].into_iter().any(states) {
        return;
    }
    let signed = "the site uses keys; capabilities are signed, and pass unchanged".to_owned();
    findings.push(finding(true, signed));
    // Clients state the largest number, and servers take the user from the certificate, by LDAP (`pvfs2-gencred.c`).
    if states("CAFile") && config.rules.iter().any(|rule| matches!(rule.who, Who::User(_))) {
        let text = "the site uses certificates: requests hold no user's number there, so rules by user fit nobody; tell applications apart \
                    by ports or client addresses"
            .to_owned();
        findings.push(finding(false, text));
    }
}

/// Whether clients come to this port, and whether it is the port of the server behind it.
fn judge_port(config: &Config, listen: &ListenConfig, aliases: &[Vec<Address>]) -> Finding {
    let at = listen.address;
    if listen.redirected {
        let known = aliases.iter().flatten().any(|a| a.may_be(config.server));
        return finding(
            known,
            match known {
                true => format!(
                    "clients of {} are to be redirected to {at}; whether they are, shows when they come",
                    config.server
                ),
                false => format!(
                    "no alias of the server names {}: clients go elsewhere, and are not redirected",
                    config.server
                ),
            },
        );
    }
    let named = aliases.iter().find_map(|alias| Some((alias, alias.iter().find(|a| a.may_be(at))?)));
    let Some((alias, address)) = named else {
        return finding(
            false,
            format!(
                "no alias of the server names {at}: add an address of a zone to its Alias line, like tcp-app://HOST:{}; where \
                 packets are redirected to it, say so: redirected = true",
                at.port()
            ),
        );
    };
    if !alias.iter().any(|a| a.may_be(config.server)) {
        let others: Vec<String> = alias.iter().map(|a| format!("{}:{}", a.host, a.port)).collect();
        let others = others.join(", ");
        return finding(
            false,
            format!(
                "clients come to {at} for the server with the addresses {others}, which {} is not: requests would reach another \
                 server than they are for",
                config.server
            ),
        );
    }
    let flow = listen.flow.map(|flow| config.flows[flow].name.as_str());
    let zone = address.zone.filter(|zone| config.flows.iter().any(|f| f.name == *zone));
    match (flow, zone) {
        (Some(flow), Some(zone)) if flow != zone => finding(
            false,
            format!("clients of zone {zone} come to {at}, whose flow is {flow}; there is a flow {zone}, too"),
        ),
        _ => finding(true, format!("the server's aliases name {at}: clients of that zone come here")),
    }
}

/// One address of an alias line.
struct Address<'a> {
    zone: Option<&'a str>,
    host: &'a str,
    port: u16,
}

impl Address<'_> {
    /// Whether it can be this one: hosts that go by name may be any.
    fn may_be(&self, address: SocketAddr) -> bool {
        let host = self.host.trim_matches(['[', ']']).parse::<IpAddr>();
        let another = host.is_ok_and(|host| host != address.ip());
        self.port == address.port() && (address.ip().is_unspecified() || !another)
    }
}

/// The addresses of an alias line: `tcp-ZONE://HOST:PORT`, several with commas between.
fn addresses(alias: &str) -> impl Iterator<Item = Address<'_>> {
    alias.split([' ', '\t', ',']).filter_map(|address| {
        let (transport, rest) = address.split_once("://")?;
        let (host, port) = rest.rsplit_once(':')?;
        let port = port.split('/').next()?.parse().ok()?;
        Some(Address { zone: transport.split_once('-').map(|(_, zone)| zone), host, port })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(aliases: &str) -> Vec<Finding> {
        said_of("flow = \"sun\"", aliases)
    }

    fn said_of(listen: &str, aliases: &str) -> Vec<Finding> {
        let text = format!(
            "server = \"127.0.0.1:3334\"\n[[flow]]\nname = \"sun\"\n[[flow]]\nname = \"rain\"\n
            [[listen]]\naddress = \"127.0.0.1:4001\"\n{listen}\n"
        );
        let source = henge_config::Source::new("proxy.toml", text);
        let config = Config::parse(source).expect("a sound configuration");
        let mut findings = Vec::new();
        judge(&config, aliases, &mut findings);
        findings
    }

    #[test]
    fn what_is_wrong_with_the_servers_aliases_is_found() {
        let alias = |zone| format!("Alias io1 tcp-srv://127.0.0.1:3334,tcp-{zone}://127.0.0.1:4001\n");
        assert!(said(&alias("weather")).iter().all(|f| f.good));
        let findings = said(&alias("genome"));
        assert_eq!(findings.iter().filter(|f| !f.good).count(), 1, "{findings:?}");
        assert!(findings.iter().any(|f| f.text.starts_with("clients of zone genome may crash")));
        let text =
            |bad: &[Finding]| bad.iter().filter(|f| !f.good).map(|f| f.text.clone()).collect::<String>();
        // Another server's port; another host's; a zone that is another flow's.
        let other = "Alias io1 tcp-srv://127.0.0.1:3335,tcp-weather://127.0.0.1:4001\n";
        assert!(text(&said(other)).contains("requests would reach another server"), "{:?}", said(other));
        let host = "Alias io1 tcp-srv://127.0.0.1:3334,tcp-weather://127.0.0.9:4001\n";
        assert!(
            text(&said(host)).starts_with("no alias of the server names 127.0.0.1:4001"),
            "{:?}",
            said(host)
        );
        let zone = "Alias io1 tcp-srv://127.0.0.1:3334,tcp-rain://127.0.0.1:4001\n";
        assert!(text(&said(zone)).starts_with("clients of zone rain come to"), "{:?}", said(zone));
        let named = "Alias io1 tcp://io1:3334,tcp-weather://proxy1:4001\n";
        assert_eq!(text(&said(named)), "", "names may be any host");
        // Packets that are redirected need no alias here, but one of the server.
        let redirected = |alias| said_of("redirected = true", alias);
        assert_eq!(text(&redirected("Alias io1 tcp://127.0.0.1:3334\n")), "");
        assert!(text(&redirected("Alias io1 tcp://127.0.0.9:3334\n")).contains("clients go elsewhere"));
        // A security section that only lets capabilities live on is no site with keys.
        assert!(!said("<Security>\nTurnOffTimeouts yes\n").iter().any(|f| f.text.contains("keys")));
    }

    /// Options as `server-config.c` of 2.9 and 2.10 has them. Before, nothing was said of sites with keys: it was looked for other names.
    #[test]
    fn sites_with_keys_and_with_certificates_are_found() {
        let keys =
            "<Security>\n  KeyStore /etc/orangefs/keystore\n  ServerKey /etc/orangefs/key.pem\n</Security>\n";
        let certificates = "<Security>\n  CAFile /etc/orangefs/ca.pem\n  UserCertDN \"\"\n</Security>\n";
        let rule = "[[rule]]\nuser = 501\nflow = \"sun\"";
        for (rule, security, good) in
            [("", keys, true), (rule, keys, true), ("", certificates, true), (rule, certificates, false)]
        {
            let findings = said_of(
                rule,
                &format!("Alias io1 tcp://127.0.0.1:3334,tcp-sun://127.0.0.1:4001\n{security}"),
            );
            assert!(findings.iter().any(|f| f.text.starts_with("the site uses keys")), "{findings:?}");
            assert_eq!(findings.iter().all(|f| f.good), good, "{findings:?}");
            assert_eq!(findings.iter().any(|f| f.text.starts_with("the site uses certificates")), !good);
        }
    }
}

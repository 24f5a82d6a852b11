//! `henge proxy --check`: would it work here?

use crate::config::Config;
use henge_pvfs2::{HEADER_LEN, Header, ServerLimits, encode_get_config, read_config};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
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
    for listen in &config.listen {
        match TcpListener::bind(listen.address) {
            Ok(_) => findings.push(finding(true, format!("{} is free to listen on", listen.address))),
            Err(e) => findings.push(finding(false, format!("cannot listen on {}: {e}", listen.address))),
        }
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
    if ["ServerKeyPath", "KeystorePath", "CAFile"].iter().any(|key| text.contains(key)) {
        findings.push(finding(
            true,
            "the site uses keys; capabilities are signed, and pass unchanged".to_owned(),
        ));
    }
    let aliases: Vec<&str> = text.lines().map(str::trim).filter(|l| l.starts_with("Alias ")).collect();
    for zone in aliases.iter().flat_map(|alias| zones(alias)) {
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
    for listen in &config.listen {
        let port = format!(":{}", listen.address.port());
        let named =
            aliases.iter().any(|alias| alias.split([' ', ',']).any(|address| address.ends_with(&port)));
        let text = match named {
            true => format!(
                "the server's aliases name port {}: clients of that zone come here",
                listen.address.port()
            ),
            false => format!(
                "no alias of the server names port {}: add an address of a zone to its Alias line, like tcp-app://HOST{port}, \
                 or redirect clients otherwise",
                listen.address.port()
            ),
        };
        findings.push(finding(named, text));
    }
}

/// The zones of an alias line: `tcp-ZONE://HOST:PORT`.
fn zones(alias: &str) -> impl Iterator<Item = &str> {
    let transports = alias.split([' ', '\t', ',']).filter_map(|address| address.split_once("://"));
    transports.filter_map(|(transport, _)| transport.split_once('-').map(|(_, zone)| zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(aliases: &str) -> Vec<Finding> {
        let source = henge_config::Source::new(
            "proxy.toml",
            "server = \"127.0.0.1:3334\"\n[[listen]]\naddress = \"127.0.0.1:4001\"\n",
        );
        let config = Config::parse(source).expect("a sound configuration");
        let mut findings = Vec::new();
        judge(&config, aliases, &mut findings);
        findings
    }

    #[test]
    fn zone_names_that_crash_clients_are_found() {
        let alias = |zone| format!("Alias io1 tcp-srv://10.0.0.1:3334,tcp-{zone}://10.0.0.1:4001\n");
        assert!(said(&alias("weather")).iter().all(|f| f.good));
        let findings = said(&alias("genome"));
        assert_eq!(findings.iter().filter(|f| !f.good).count(), 1, "{findings:?}");
        assert!(findings.iter().any(|f| f.text.starts_with("clients of zone genome may crash")));
        // A security section that only lets capabilities live on is no site with keys.
        assert!(!said("<Security>\nTurnOffTimeouts yes\n").iter().any(|f| f.text.contains("keys")));
    }
}

//! Why a connection by TLS came to nothing, in words, and what to do about it.
//!
//! One end sees what is wrong with the other's certificate ([`refusal`]). The other one hears an alert of one word, and says what that means for
//! its own certificate: who dials otherwise ([`told`]) than who is dialled ([`of_client`]). Neither tells a stranger more than TLS does: these
//! texts are for logs and for who dials.

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Says of at most one refusal a second that it is worth a line of a log: who is refused may come again at once, and for ever.
#[derive(Debug, Default)]
pub struct OncePerSecond(AtomicU64);

impl OncePerSecond {
    /// Whether this is the first one of its second.
    pub fn is_due(&self, now: SystemTime) -> bool {
        let second = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs() + 1;
        self.0.swap(second, Ordering::Relaxed) != second
    }
}

/// Why somebody was refused by us. A certificate that is signed by itself, or by another cluster, is of a ca that we do not name.
pub fn refusal(why: &Error) -> String {
    use CertificateError as Wrong;
    let words = match why {
        Error::NoCertificatesPresented => {
            "it shows no certificate; give it one (in a cluster `henge ca invite` and `henge join`)"
        }
        Error::InvalidCertificate(wrong) => match wrong {
            Wrong::Expired | Wrong::ExpiredContext { .. } => {
                "its certificate has expired; issue a new one to it, or set this machine's clock if that is ahead"
            }
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
                "its certificate does not count yet; compare this machine's clock with that of who issued it"
            }
            Wrong::Revoked => "its certificate is revoked; issue a new one, if it may come",
            Wrong::UnknownIssuer | Wrong::BadSignature => {
                "its certificate is not signed by the ca that our file names; give it one of that ca, or add the other root to the file"
            }
            Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => {
                "its certificate is not for clients; issue one with the extended key usage clientAuth"
            }
            Wrong::ExpiredRevocationList | Wrong::ExpiredRevocationListContext { .. } => {
                "the list of revoked certificates has expired; write a new one"
            }
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                "its certificate is for another name, or another role; compare the address with who is meant to be there"
            }
            wrong => return format!("its certificate: {wrong}"),
        },
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered | PeerIncompatible::SupportedVersionsExtensionRequired,
        ) => "it does not speak TLS 1.3; use a client that does",
        Error::InvalidMessage(_) => "what it sends is not TLS",
        Error::AlertReceived(alert) => return of_client(*alert),
        why => return why.to_string(),
    };
    words.to_owned()
}

/// What a client's alert says of our own certificate.
fn of_client(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    let words = match alert {
        Alert::UnknownCA => {
            "it does not believe the root of our certificate; give it the roots of this cluster, or the ca that signed for us"
        }
        Alert::CertificateExpired => {
            "our certificate has expired, or does not count yet by its clock; compare the clocks, and renew ours"
        }
        Alert::CertificateRevoked => "it knows our certificate as revoked; join again, by an invitation",
        Alert::BadCertificate | Alert::CertificateUnknown | Alert::UnsupportedCertificate => {
            "it does not accept our certificate; compare the address that it dials with the names in that"
        }
        Alert::ProtocolVersion => "it speaks another version of TLS; TLS 1.3 is spoken here",
        other => return format!("it says {other:?}; its log says why"),
    };
    words.to_owned()
}

/// What an alert says of our own certificate.
fn told(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    let words = match alert {
        Alert::CertificateExpired => {
            "our certificate has expired, or does not count yet by its clock; compare the clocks, and renew, or join again"
        }
        Alert::CertificateRevoked => {
            "our certificate is revoked; ask for an invitation (`henge ca invite`), and join again"
        }
        Alert::UnknownCA => {
            "our certificate is not signed by a root that it believes; use one of this cluster (`henge ca invite`, `henge join`)"
        }
        Alert::CertificateRequired => "it wants a certificate; `henge join` fetches one, by an invitation",
        Alert::ProtocolVersion => "it speaks another version of TLS; TLS 1.3 is spoken here",
        Alert::BadCertificate
        | Alert::CertificateUnknown
        | Alert::AccessDenied
        | Alert::UnsupportedCertificate => "our certificate does not let us in there; its log says why",
        other => return format!("it says {other:?}; its log says why"),
    };
    words.to_owned()
}

/// Why a manager, or another server, was not reached: what is wrong with its certificate or with ours. `ca` names whom we believe.
pub fn failure(why: &Error, ca: &str) -> String {
    use CertificateError as Wrong;
    let Error::InvalidCertificate(wrong) = why else {
        return match why {
            Error::InvalidMessage(_) => {
                "what answers there is not TLS; compare the address, and http:// with https://".into()
            }
            Error::AlertReceived(alert) => format!("it refuses us: {}", told(*alert)),
            why => refusal(why),
        };
    };
    match wrong {
        Wrong::Expired | Wrong::ExpiredContext { .. } => {
            "its certificate has expired by this machine's clock; set the clock, or have a new one issued there".into()
        }
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            "its certificate does not count yet by this machine's clock; set the clock here, or there".into()
        }
        Wrong::UnknownIssuer | Wrong::BadSignature | Wrong::UnhandledCriticalExtension => format!(
            "its certificate is not signed by {ca}; name its cluster's roots (HENGE_CA=…/identity/ca.pem), or compare the address"
        ),
        Wrong::NotValidForNameContext { expected, presented } => format!(
            "its certificate is for {}, not for {}; dial one of those, or state this one in `hosts` there",
            if presented.is_empty() { "no host".to_owned() } else { hosts(presented) },
            expected.to_str()
        ),
        Wrong::NotValidForName => "its certificate is for another host; dial one that it names, or state this one in `hosts` there".into(),
        Wrong::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            format!("its certificate is signed by itself, not by {ca}; name its roots (HENGE_CA), or compare the address")
        }
        _ => refusal(why),
    }
}

/// Names as people write them: `DnsName("a.example.org")` is a.example.org.
fn hosts(presented: &[String]) -> String {
    let bare = |name: &String| {
        let (_, inner) = name.split_once('(').unwrap_or(("", name));
        inner.trim_end_matches(')').trim_matches('"').to_owned()
    };
    presented.iter().map(bare).collect::<Vec<_>>().join(", ")
}

/// The error of TLS in an error of a connection.
pub fn of_tls(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|why| why.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_refusals_one_a_second_is_told() {
        let (told, at) = (OncePerSecond::default(), |ms| UNIX_EPOCH + Duration::from_millis(ms));
        assert!(told.is_due(at(0)), "the first one, whatever the clock says");
        let due: Vec<u64> = (1..5000).step_by(10).filter(|ms| told.is_due(at(*ms))).collect();
        assert_eq!(due, [1001, 2001, 3001, 4001]);
        assert!(told.is_due(at(100)), "a clock that is set back silences nobody");
    }

    /// Each says what is wrong, and behind it what to do.
    #[test]
    fn each_refusal_says_what_to_do() {
        use CertificateError as Wrong;
        let cases = [
            (Wrong::Expired, "expired", "issue a new one"),
            (Wrong::NotValidYet, "not count yet", "clock"),
            (Wrong::Revoked, "revoked", "issue a new one"),
            (Wrong::UnknownIssuer, "not signed by the ca", "add the other root"),
            (Wrong::InvalidPurpose, "not for clients", "clientAuth"),
            (Wrong::NotValidForName, "another name", "compare the address"),
            (Wrong::ExpiredRevocationList, "list of revoked", "write a new one"),
        ];
        for (wrong, what, then) in cases {
            let said = refusal(&Error::InvalidCertificate(wrong));
            let (is, to_do) = said.split_once("; ").unwrap_or_default();
            assert!(is.contains(what) && to_do.contains(then), "{said}");
        }
        assert!(refusal(&Error::NoCertificatesPresented).contains("henge join"));
        for (alert, what, then) in [
            (AlertDescription::CertificateExpired, "expired", "join again"),
            (AlertDescription::CertificateRevoked, "revoked", "henge ca invite"),
            (AlertDescription::UnknownCA, "not signed", "of this cluster"),
            (AlertDescription::CertificateRequired, "wants a certificate", "henge join"),
            (AlertDescription::AccessDenied, "does not let us in", "its log"),
            (AlertDescription::InternalError, "InternalError", "its log"),
        ] {
            let said = failure(&Error::AlertReceived(alert), "ca.pem");
            let (is, to_do) = said.split_once("; ").unwrap_or_default();
            assert!(is.contains(what) && to_do.contains(then), "{said}");
        }
        // Who is dialled is no client: it is told what its client lacks.
        for (alert, what, then) in [
            (AlertDescription::UnknownCA, "does not believe the root", "give it the roots"),
            (AlertDescription::CertificateExpired, "expired", "renew ours"),
            (AlertDescription::BadCertificate, "does not accept", "address that it dials"),
            (AlertDescription::InternalError, "InternalError", "its log"),
        ] {
            let said = refusal(&Error::AlertReceived(alert));
            let (is, to_do) = said.split_once("; ").unwrap_or_default();
            assert!(is.contains(what) && to_do.contains(then) && !said.contains("henge join"), "{said}");
        }
        let presented = ["DnsName(\"a.example.org\")", "IpAddress(10.0.0.1)"].map(str::to_owned);
        assert_eq!(hosts(&presented), "a.example.org, 10.0.0.1");
        for (wrong, what, then) in [
            (Wrong::Expired, "expired", "set the clock"),
            (Wrong::NotValidYet, "not count yet", "set the clock"),
            (Wrong::UnknownIssuer, "not signed by ca.pem", "HENGE_CA"),
            (Wrong::NotValidForName, "another host", "`hosts`"),
            (Wrong::Revoked, "revoked", "issue a new one"),
        ] {
            let said = failure(&Error::InvalidCertificate(wrong), "ca.pem");
            let (is, to_do) = said.split_once("; ").unwrap_or_default();
            assert!(is.contains(what) && to_do.contains(then), "{said}");
        }
    }
}

//! What initiator and target agree on at login (RFC 7143, section 13).
//!
//! Each key has a *result function*: the smaller or the larger number, AND, OR, the first of a list that
//! both know, or a plain declaration. The initiator offers, we answer with the result.

use crate::text;

/// What a session has agreed on, with the protocol's defaults until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// CRC32C after each header.
    pub header_digest: bool,
    /// CRC32C after each data segment.
    pub data_digest: bool,
    /// Data-Out only when asked for.
    pub initial_r2t: bool,
    /// Data may come with the command.
    pub immediate_data: bool,
    /// Longest data segment that the initiator takes.
    pub send_max: u32,
    /// Longest sequence of data that is sent or asked for at a time.
    pub max_burst: u32,
    /// Longest unsolicited data of a command.
    pub first_burst: u32,
    /// R2Ts outstanding per command.
    pub max_r2t: u32,
}

impl Default for Negotiated {
    fn default() -> Self {
        Negotiated {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            send_max: 8192,
            max_burst: 262_144,
            first_burst: 65_536,
            max_r2t: 1,
        }
    }
}

/// What this target would like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Longest data segment that we take, in bytes.
    pub receive_max: u32,
    /// Longest burst, in bytes.
    pub max_burst: u32,
    /// Longest unsolicited data, in bytes.
    pub first_burst: u32,
    /// R2Ts outstanding per command.
    pub max_r2t: u32,
    /// Whether commands may carry data with them.
    pub immediate_data: bool,
    /// Whether all data must be asked for.
    pub initial_r2t: bool,
    /// Whether digests are computed when the initiator would.
    pub digests: bool,
}

impl Default for Offer {
    fn default() -> Self {
        Offer {
            receive_max: 256 * 1024,
            max_burst: 1024 * 1024,
            first_burst: 64 * 1024,
            max_r2t: 4,
            immediate_data: true,
            initial_r2t: false,
            digests: true,
        }
    }
}

/// What becomes of one offered key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Say this.
    Value(String),
    /// A declaration: nothing to say.
    Silent,
    /// No such key here.
    NotUnderstood,
    /// The value cannot be.
    Reject,
}

/// Answers one operational key, and notes the result.
pub fn negotiate(key: &str, value: &str, ours: &Offer, agreed: &mut Negotiated) -> Answer {
    match key {
        "HeaderDigest" => digest(value, ours, &mut agreed.header_digest),
        "DataDigest" => digest(value, ours, &mut agreed.data_digest),
        "InitialR2T" => boolean(value, |theirs| theirs || ours.initial_r2t, &mut agreed.initial_r2t),
        "ImmediateData" => boolean(value, |theirs| theirs && ours.immediate_data, &mut agreed.immediate_data),
        "MaxRecvDataSegmentLength" => match in_range(value, 512, 0x00ff_ffff) {
            Some(bytes) => {
                agreed.send_max = bytes;
                Answer::Silent
            }
            None => Answer::Reject,
        },
        "MaxBurstLength" => smaller(value, 512, 0x00ff_ffff, ours.max_burst, &mut agreed.max_burst),
        "FirstBurstLength" => smaller(value, 512, 0x00ff_ffff, ours.first_burst, &mut agreed.first_burst),
        "MaxOutstandingR2T" => smaller(value, 1, 65_535, ours.max_r2t, &mut agreed.max_r2t),
        "MaxConnections" => smaller(value, 1, 65_535, 1, &mut 0),
        "ErrorRecoveryLevel" => smaller(value, 0, 2, 0, &mut 0),
        "DefaultTime2Retain" => smaller(value, 0, 3600, 0, &mut 0),
        "DefaultTime2Wait" => match in_range(value, 0, 3600) {
            Some(seconds) => Answer::Value(seconds.max(2).to_string()),
            None => Answer::Reject,
        },
        "DataPDUInOrder" | "DataSequenceInOrder" => boolean(value, |_| true, &mut false),
        // Markers are gone since RFC 7143 (13.25); "No" is what either edition understands.
        "IFMarker" | "OFMarker" => boolean(value, |_| false, &mut false),
        "IFMarkInt" | "OFMarkInt" => Answer::Value("Irrelevant".into()),
        "TaskReporting" => {
            if value.split(',').any(|name| name == "RFC3720") {
                Answer::Value("RFC3720".into())
            } else {
                Answer::Reject
            }
        }
        "iSCSIProtocolLevel" => smaller(value, 0, 31, 1, &mut 0),
        "InitiatorAlias" => Answer::Silent,
        _ => Answer::NotUnderstood,
    }
}

fn in_range(value: &str, min: u32, max: u32) -> Option<u32> {
    text::number(value).ok().filter(|n| (min..=max).contains(n))
}

/// Result function minimum.
fn smaller(value: &str, min: u32, max: u32, ours: u32, agreed: &mut u32) -> Answer {
    match in_range(value, min, max) {
        Some(theirs) => {
            *agreed = theirs.min(ours);
            Answer::Value(agreed.to_string())
        }
        None => Answer::Reject,
    }
}

/// Result functions AND and OR.
fn boolean(value: &str, result: impl Fn(bool) -> bool, agreed: &mut bool) -> Answer {
    let theirs = match value {
        "Yes" => true,
        "No" => false,
        _ => return Answer::Reject,
    };
    *agreed = result(theirs);
    Answer::Value(if *agreed { "Yes" } else { "No" }.into())
}

/// A list: the first of theirs that we know.
fn digest(value: &str, ours: &Offer, agreed: &mut bool) -> Answer {
    for name in value.split(',') {
        match name {
            "CRC32C" if ours.digests => {
                *agreed = true;
                return Answer::Value("CRC32C".into());
            }
            "None" => {
                *agreed = false;
                return Answer::Value("None".into());
            }
            _ => {}
        }
    }
    Answer::Reject
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(key: &str, value: &str) -> (Answer, Negotiated) {
        let mut agreed = Negotiated::default();
        let answer = negotiate(key, value, &Offer::default(), &mut agreed);
        (answer, agreed)
    }

    #[test]
    fn result_functions_of_the_keys() {
        let value = |key, offer| match says(key, offer).0 {
            Answer::Value(v) => v,
            other => format!("{other:?}"),
        };
        assert_eq!(value("HeaderDigest", "CRC32C,None"), "CRC32C");
        assert_eq!(value("HeaderDigest", "None,CRC32C"), "None");
        assert_eq!(value("HeaderDigest", "MD5"), "Reject");
        assert_eq!(value("InitialR2T", "Yes"), "Yes"); // OR
        assert_eq!(value("InitialR2T", "No"), "No");
        assert_eq!(value("ImmediateData", "Yes"), "Yes"); // AND
        assert_eq!(value("ImmediateData", "No"), "No");
        assert_eq!(value("ImmediateData", "maybe"), "Reject");
        assert_eq!(value("MaxBurstLength", "16776192"), "1048576"); // minimum
        assert_eq!(value("FirstBurstLength", "511"), "Reject");
        assert_eq!(value("MaxConnections", "8"), "1");
        assert_eq!(value("ErrorRecoveryLevel", "2"), "0");
        assert_eq!(value("DefaultTime2Wait", "0"), "2"); // maximum
        assert_eq!(value("DataPDUInOrder", "No"), "Yes"); // OR
        assert_eq!(value("MaxRecvDataSegmentLength", "65536"), "Silent");
        assert_eq!(value("X-com.example.key", "1"), "NotUnderstood");
        assert_eq!(says("MaxRecvDataSegmentLength", "65536").1.send_max, 65_536);
    }
}

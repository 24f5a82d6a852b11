//! The calls of etcd's v3 interface that we use, by its JSON gateway: ranges, transactions, leases, logging in. Keys and values travel in
//! base64, whole numbers as texts.
//!
//! A user's token is asked for before the first call, goes with every one, and is asked for anew when etcd does not know it
//! any more (after five minutes without a call, by its default, or when users or roles were changed).

use super::StoreError;
use super::access::{Login, Tls};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest answer: a page of a load.
const ANSWER_MAX: u64 = 64 << 20;

/// Why etcd did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// Nobody answered in time, or nobody who could; whether it was done is not known.
    Away(String),
    /// It said no.
    No(String),
    /// It does not know our token (any more).
    Unknown(String),
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> StoreError {
        match trouble {
            Trouble::Away(why) => StoreError(format!("etcd does not answer: {why}")),
            Trouble::No(why) if why.contains("space exceeded") => StoreError(format!(
                "etcd: {why}; start it with --auto-compaction-retention=1h, compact, defragment and disarm it"
            )),
            Trouble::No(why) if why.contains("permission denied") => StoreError(format!(
                "etcd: {why}; its user's role needs readwrite on the prefix (etcdctl role grant-permission ROLE readwrite PREFIX --prefix)"
            )),
            Trouble::No(why) if why.contains("user name is empty") => {
                StoreError(format!("etcd: {why}; it asks who we are: state user and password_file in [etcd]"))
            }
            Trouble::No(why) | Trouble::Unknown(why) => StoreError(format!("etcd: {why}")),
        }
    }
}

/// A key and its value, as etcd has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub value: Vec<u8>,
    /// The revision at which it was made.
    pub created: u64,
}

/// What must hold for a transaction.
pub(super) enum If<'a> {
    /// The key was made at this revision; 0: there is none.
    Created(&'a str, u64),
    /// The key has this value.
    Is(&'a str, &'a [u8]),
}

/// What a transaction does.
#[derive(Clone, Copy)]
pub(super) enum Do<'a> {
    Put(&'a str, &'a [u8]),
    /// A key that is gone when the lease is.
    Hold(&'a str, &'a [u8], i64),
    Delete(&'a str),
    /// All keys that begin so.
    DeleteAll(&'a str),
}

/// A transaction's outcome.
pub(super) struct Outcome {
    pub succeeded: bool,
    /// The revision at which it was done.
    pub revision: u64,
    /// If it did not succeed: the keys that were asked for, as they are.
    pub found: Vec<Option<Entry>>,
}

/// An etcd of one or several members.
#[derive(Debug)]
pub(super) struct Gateway {
    members: Vec<String>,
    /// The member that answered last.
    at: usize,
    agent: ureq::Agent,
    login: Option<Login>,
    /// What etcd gave us for it.
    pub(super) token: Option<String>,
}

fn text(bytes: &[u8]) -> Value {
    Value::String(BASE64.encode(bytes))
}

fn bytes(value: &Value) -> Result<Vec<u8>, Trouble> {
    let strange = |_| Trouble::No("a value that is no base64".into());
    BASE64.decode(value.as_str().unwrap_or_default()).map_err(strange)
}

/// Whole numbers come as texts; what is zero does not come.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|t| t.parse().ok()).or(value.as_u64()).unwrap_or(0)
}

/// Where the keys that begin so end.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0] // all keys there are
}

impl Gateway {
    pub(super) fn new(
        members: Vec<String>,
        tls: Option<&Tls>,
        login: Option<Login>,
        patience: Duration,
    ) -> Result<Gateway, StoreError> {
        let mut config =
            ureq::Agent::config_builder().timeout_global(Some(patience)).http_status_as_error(false);
        if let Some(tls) = tls {
            config = config.tls_config(tls.config().map_err(StoreError)?);
        }
        Ok(Gateway { members, at: 0, agent: config.build().into(), login, token: None })
    }

    /// Asks, and once more with a new token where the old one has run out.
    pub(super) fn call(&mut self, path: &str, body: &Value) -> Result<Value, Trouble> {
        if self.token.is_none() {
            self.log_in()?;
        }
        match self.call_any(path, body) {
            Err(Trouble::Unknown(_)) if self.login.is_some() => {
                self.log_in()?;
                self.call_any(path, body)
            }
            answered => answered,
        }
    }

    fn log_in(&mut self) -> Result<(), Trouble> {
        let Some(Login { user, password }) = self.login.clone() else { return Ok(()) };
        self.token = None;
        let answer = self.call_any("auth/authenticate", &json!({ "name": user, "password": password }));
        let answer = answer.map_err(|trouble| match trouble {
            Trouble::No(why) if why.contains("not enabled") => Trouble::No(format!(
                "{why}; say `etcdctl auth enable`, or leave user and password out of [etcd]"
            )),
            Trouble::No(why) => Trouble::No(format!("user \"{user}\": {why}")),
            other => other,
        })?;
        self.token = answer["token"].as_str().map(str::to_owned);
        self.token.is_some().then_some(()).ok_or_else(|| Trouble::No("a login without a token".into()))
    }

    /// Asks the member that answered last, then the others.
    fn call_any(&mut self, path: &str, body: &Value) -> Result<Value, Trouble> {
        let mut last = Trouble::Away("no member is named".into());
        for _ in 0..self.members.len() {
            match self.call_at(&self.members[self.at], path, body) {
                Err(Trouble::Away(why)) => {
                    last = Trouble::Away(format!("{}: {why}", self.members[self.at]));
                    self.at = (self.at + 1) % self.members.len();
                }
                answered => return answered,
            }
        }
        Err(last)
    }

    fn call_at(&self, member: &str, path: &str, body: &Value) -> Result<Value, Trouble> {
        let away = |e: ureq::Error| Trouble::Away(e.to_string());
        let mut request = self.agent.post(format!("{member}/v3/{path}"));
        if let Some(token) = &self.token {
            request = request.header("Authorization", token);
        }
        let mut response = request.send_json(body).map_err(away)?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(ANSWER_MAX).read_to_string().map_err(away)?;
        let strange = |_| {
            let text: String = text.trim().chars().take(200).collect();
            Trouble::No(match text.contains("CommonName") {
                true => "it takes no certificate with a CommonName where users are enabled; have one made without (-subj /O=henge)".into(),
                false => format!("{status}, and no JSON (\"{text}\"); is this etcd 3.4 or newer?"),
            })
        };
        let answer: Value = serde_json::from_str(&text).map_err(strange)?;
        // A stream's error stands in its one message.
        let error = answer.get("error").filter(|e| !e.is_null());
        if status < 300 && error.is_none() {
            return Ok(answer);
        }
        let why = ["message", "error"].iter().find_map(|key| answer[*key].as_str());
        let why = why.map_or_else(|| answer.to_string(), str::to_owned);
        // gRPC's numbers: 16 unauthenticated; 4 deadline exceeded and 14 unavailable: another member may do, or the same one soon.
        match answer["code"].as_u64() {
            Some(16) => Err(Trouble::Unknown(why)),
            _ if why.contains("revision of auth store is old") => Err(Trouble::Unknown(why)),
            Some(4 | 14) => Err(Trouble::Away(why)),
            _ if status >= 500 => Err(Trouble::Away(why)),
            _ => Err(Trouble::No(why)),
        }
    }

    fn entry(value: &Value) -> Result<Entry, Trouble> {
        let key = String::from_utf8(bytes(&value["key"])?);
        Ok(Entry {
            key: key.map_err(|_| Trouble::No("a key under our prefix that is none of ours".into()))?,
            value: bytes(&value["value"])?,
            created: number(&value["create_revision"]),
        })
    }

    /// One key.
    pub(super) fn get(&mut self, key: &str) -> Result<Option<Entry>, Trouble> {
        let answer = self.call("kv/range", &json!({ "key": text(key.as_bytes()) }))?;
        answer["kvs"].get(0).map(Self::entry).transpose()
    }

    /// At most so many of the keys that begin so, from one on; whether there are more.
    pub(super) fn page(
        &mut self,
        prefix: &str,
        from: &[u8],
        most: u32,
    ) -> Result<(Vec<Entry>, bool), Trouble> {
        let body =
            json!({ "key": text(from), "range_end": text(&end_of(prefix)), "limit": most.to_string() });
        let answer = self.call("kv/range", &body)?;
        let entries = answer["kvs"].as_array().into_iter().flatten().map(Self::entry);
        Ok((entries.collect::<Result<_, _>>()?, answer["more"] == true))
    }

    /// All of `then` if all of `when` holds, else nothing but a look at `look`.
    pub(super) fn transact(
        &mut self,
        when: &[If<'_>],
        then: &[Do<'_>],
        look: &[&str],
    ) -> Result<Outcome, Trouble> {
        let compare = when.iter().map(|one| match one {
            If::Created(key, at) => {
                json!({ "target": "CREATE", "result": "EQUAL", "key": text(key.as_bytes()),
                "create_revision": at.to_string() })
            }
            If::Is(key, value) => json!({ "target": "VALUE", "result": "EQUAL", "key": text(key.as_bytes()),
                "value": text(value) }),
        });
        let success = then.iter().map(|one| match one {
            Do::Put(key, value) => {
                json!({ "requestPut": { "key": text(key.as_bytes()), "value": text(value) } })
            }
            Do::Hold(key, value, lease) => json!({ "requestPut": { "key": text(key.as_bytes()),
                "value": text(value), "lease": lease.to_string() } }),
            Do::Delete(key) => json!({ "requestDeleteRange": { "key": text(key.as_bytes()) } }),
            Do::DeleteAll(prefix) => json!({ "requestDeleteRange": { "key": text(prefix.as_bytes()),
                "range_end": text(&end_of(prefix)) } }),
        });
        let failure = look.iter().map(|key| json!({ "requestRange": { "key": text(key.as_bytes()) } }));
        let body = json!({ "compare": compare.collect::<Vec<_>>(), "success": success.collect::<Vec<_>>(),
            "failure": failure.collect::<Vec<_>>() });
        let answer = self.call("kv/txn", &body)?;
        let succeeded = answer["succeeded"] == true;
        let responses = answer["responses"].as_array().into_iter().flatten();
        let ranges = responses.filter_map(|r| r.get("response_range"));
        let found = ranges.map(|r| r["kvs"].get(0).map(Self::entry).transpose());
        Ok(Outcome {
            succeeded,
            revision: number(&answer["header"]["revision"]),
            found: if succeeded { Vec::new() } else { found.collect::<Result<_, _>>()? },
        })
    }

    /// A lease of `seconds` seconds.
    pub(super) fn grant(&mut self, seconds: u64) -> Result<i64, Trouble> {
        let answer = self.call("lease/grant", &json!({ "TTL": seconds.to_string() }))?;
        let id = answer["ID"].as_str().and_then(|id| id.parse().ok());
        id.ok_or_else(|| Trouble::No("a lease without a number".into()))
    }

    /// Whether the lease still runs; for its full time from now on, if it does.
    pub(super) fn keep_alive(&mut self, lease: i64) -> Result<bool, Trouble> {
        let answer = self.call("lease/keepalive", &json!({ "ID": lease.to_string() }))?;
        Ok(number(&answer["result"]["TTL"]) > 0)
    }

    /// Ends the lease, and with it the keys that it holds.
    pub(super) fn revoke(&mut self, lease: i64) -> Result<(), Trouble> {
        self.call("lease/revoke", &json!({ "ID": lease.to_string() })).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_before_the_next_one() {
        assert_eq!(end_of("henge/"), b"henge0");
        assert_eq!(end_of(""), [0]);
    }

    #[test]
    fn numbers_come_as_texts() {
        let of = |v: Value| number(&v);
        assert_eq!((of(json!("42")), of(json!(7)), of(Value::Null)), (42, 7, 0));
    }
}

//! The API without a network, for whoever tries what bodies do to it: a core in memory that is its cluster's authority, two nodes that are
//! here and never answer, and disks. `fuzz/rest_bodies` and the test below feed it.

use super::router;
use crate::audit::{Audit, AuditTo};
use crate::authority::Authority;
use crate::core::Core;
use crate::machine::{Caller, Machine, Settings};
use crate::model::DiskSpec;
use crate::store::MemoryStore;
use crate::tokens::{self, Scope};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use henge_api::manager::{Pool, Profile, Register};
use std::io;
use tower_service::Service;

/// Requests that take a body; none of them waits for a node.
pub const ASKED: [(&str, &str); 17] = [
    ("POST", "/disks?wait=0"),
    ("PUT", "/disks/web?wait=0"),
    ("PATCH", "/disks/web?wait=0"),
    ("POST", "/disks/web/access?wait=0"),
    ("POST", "/admit"),
    ("POST", "/tokens"),
    ("PATCH", "/tenants/ann"),
    ("DELETE", "/tenants/bob"),
    ("POST", "/nodes/a/drain"),
    ("POST", "/ca/invitations"),
    ("POST", "/ca/join"),
    ("POST", "/ca/renew"),
    ("POST", "/ca/revoke"),
    ("POST", "/ca/rotate"),
    ("POST", "/ca/retire"),
    ("GET", "/disks"),
    ("GET", "/events"),
];

/// What was answered.
#[derive(Debug)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// The API, and who asks.
pub struct Harness {
    router: Router,
    core: Core,
    runtime: tokio::runtime::Runtime,
    /// The administrator's token, a tenant's, and one that is none.
    tokens: [String; 3],
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.core.stop();
    }
}

fn register(node: &str) -> Register {
    let profile = Some(Profile { iops: 500.0, service: 0.014 });
    let capacity = 300_000_000_000;
    let pool = Pool {
        name: "p".into(),
        capacity,
        copies: 1,
        scheduler: "cvc".into(),
        keeps: None,
        profile,
        shared: None,
    };
    let (addresses, link) = (vec![format!("nbd://{node}/%")], Some(format!("{node}:1")));
    Register {
        name: node.into(),
        addresses,
        link,
        pools: vec![pool],
        disks: Vec::new(),
        speaks: henge_api::manager::speaks(),
    }
}

/// Two nodes, a disk of the administrator and one of a tenant; their tokens.
fn furnish(machine: &mut Machine) -> io::Result<[String; 3]> {
    for (session, node) in ["a", "b"].into_iter().enumerate() {
        machine.register(session as u64, register(node));
    }
    let spec = DiskSpec { capacity: "10GB".into(), rate: Some("5/s".into()), ..DiskSpec::default() };
    for who in [Caller::Administrator, Caller::Tenant("ann".into())] {
        machine
            .create_for(&who, "web", &spec, None, None, crate::model::Begins::default())
            .map_err(io::Error::other)?;
    }
    let mut token = |tenant: Option<&str>| {
        let scope = Scope { tenant: tenant.map(str::to_owned), ..Scope::default() };
        let (token, record) = tokens::create(scope, machine.journal.now(), None)?;
        machine.tokens.put(&mut machine.journal, record);
        io::Result::Ok(token)
    };
    Ok([token(None)?, token(Some("ann"))?, format!("henge_{}", "0".repeat(64))])
}

impl Harness {
    /// A new one.
    pub fn open() -> io::Result<Harness> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let core = Core::start(Settings::default(), MemoryStore::default()).map_err(io::Error::other)?;
        let authority = Authority::new(core.clone());
        runtime.block_on(authority.begin("demo")).map_err(io::Error::other)?;
        let tokens = core.call_and_wait(furnish).map_err(io::Error::other)??;
        let router = router(core.clone(), Audit::new(AuditTo::Nobody)?, authority);
        Ok(Harness { router, core, runtime, tokens })
    }

    /// Asks one of [`ASKED`] as the administrator, a tenant, or nobody.
    pub fn ask(&mut self, which: usize, who: usize, body: Vec<u8>) -> io::Result<Answered> {
        let (method, path) = ASKED[which % ASKED.len()];
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.tokens[who % 3]))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(io::Error::other)?;
        let mut router = self.router.clone();
        self.runtime.block_on(async {
            let answer = match router.call(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), 64 << 20).await.map_err(io::Error::other)?;
            Ok(Answered { status, body: body.to_vec() })
        })
    }
}

impl Answered {
    /// Whether it is an answer that people can use: no fault of ours, and a refusal says why.
    pub fn is_sound(&self) -> bool {
        let why =
            || serde_json::from_slice::<serde_json::Value>(&self.body).ok()?["detail"].as_str().map(str::len);
        match self.status {
            200..=299 => true,
            400..=499 => why().is_some_and(|len| (4..8192).contains(&len)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use serde_json::{Value, json};

    fn sound() -> Vec<Value> {
        let spec = json!({ "capacity": "1GB", "rate": "5/s", "latency": "120ms", "percentile": 95, "weight": 2, "parts": 1 });
        let request = henge_tls::Request::new().unwrap().pem;
        let token = format!("henge-join.{}.{}", "0".repeat(64), "0".repeat(64));
        vec![
            json!({ "name": "d", "tenant": "ann", "spec": spec, "nbd": ["CN=ann"] }),
            spec,
            json!({ "nbd": ["anyone"] }),
            json!({ "tenant": "ann", "read": true, "disk": "web", "lasts": "1h" }),
            json!({ "disks": 3, "bytes": "1TB", "rate": "50/s", "limit": "90/s", "weight": 7, "latency": "5ms" }),
            json!({ "role": "client", "name": "laptop", "tenant": "bob", "hosts": ["h.example.org"], "lasts": "1h" }),
            json!({ "token": token, "request": request }),
            json!({ "request": request }),
            json!({ "whose": "client/laptop" }),
            json!({ "anyway": true }),
            json!({}),
        ]
    }

    fn anything(rng: &mut Pcg64Mcg) -> Value {
        const TEXTS: [&str; 12] = [
            "",
            "../x",
            "1e300GB",
            "18446744073709551616B",
            "-1/s",
            "0ms",
            "none",
            "anyone",
            "node/n1",
            "CN=",
            "a\u{0}b",
            "\u{1b}[2J",
        ];
        match rng.random_range(0..10u32) {
            0 => Value::Null,
            1 => json!(-1),
            2 => json!(u64::MAX),
            3 => json!(1e300),
            4 => json!("x".repeat(rng.random_range(0..9000))),
            5 => json!([[], {}]),
            6 => json!({ "x": 1 }),
            7 => json!(rng.random::<u32>()),
            _ => json!(TEXTS[rng.random_range(0..TEXTS.len())]),
        }
    }

    fn spoil(value: &mut Value, rng: &mut Pcg64Mcg) {
        match value {
            Value::Object(fields) if !fields.is_empty() && rng.random_range(0..6u32) > 0 => {
                let at = rng.random_range(0..fields.len());
                let key = fields.keys().nth(at).cloned().unwrap_or_default();
                match rng.random_range(0..8u32) {
                    0 => drop(fields.remove(&key)),
                    1 => drop(fields.insert("more".into(), anything(rng))),
                    _ => fields.get_mut(&key).into_iter().for_each(|field| spoil(field, rng)),
                }
            }
            other => *other = anything(rng),
        }
    }

    #[test]
    fn the_document_is_told_to_anybody() {
        let mut harness = Harness::open().unwrap();
        let mut router = harness.router.clone();
        let answer = harness.runtime.block_on(async {
            let request = Request::get("/api/v1/openapi.json").body(Body::empty()).unwrap();
            let answer = router.call(request).await.unwrap();
            assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json");
            axum::body::to_bytes(answer.into_body(), 64 << 20).await.unwrap()
        });
        let told: Value = serde_json::from_slice(&answer).unwrap();
        let kept: Value = serde_json::from_str(&crate::openapi()).unwrap();
        assert_eq!(told, kept);
        assert_eq!(harness.ask(15, 2, Vec::new()).unwrap().status, 401);
    }

    #[test]
    fn who_sends_a_body_slowly_keeps_nobody_out() {
        let mut harness = Harness::open().unwrap();
        let router = harness.router.clone();
        let nothing = futures_util::stream::pending::<io::Result<Vec<u8>>>;
        harness.runtime.block_on(async {
            for i in 0..crate::rest::REQUESTS_MAX {
                let request = Request::builder()
                    .method("POST")
                    .uri("/api/v1/disks")
                    .header(header::AUTHORIZATION, format!("Bearer henge_{i}"))
                    .body(Body::from_stream(nothing()))
                    .unwrap();
                tokio::spawn(router.clone().call(request));
            }
            // Each is looked at: a turn of the runtime looks at some of them.
            for _ in 0..crate::rest::REQUESTS_MAX {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(harness.ask(15, 1, Vec::new()).unwrap().status, 200);
    }

    /// As long as they may be; the last is one that somebody may mean.
    #[test]
    fn bodies_of_thousands_of_values_are_not_read() {
        let mut harness = Harness::open().unwrap();
        let many =
            |of: &str| (0..3000).map(|i| of.replace('%', &i.to_string())).collect::<Vec<_>>().join(",");
        let crowds = [
            format!(r#"{{"name":"d","spec":{{{}}}}}"#, many(r#""a%":[[[[[]]]]]"#)),
            format!("{{{}}}", many(r#""a%":{}"#)),
            format!(r#"{{"nbd":[{}]}}"#, many("0")),
        ];
        // Changes of disks, tokens and quotas, questions for admission, invitations, and who joins.
        for which in (0..7).chain([9, 10]) {
            for crowd in &crowds {
                let answer = harness.ask(which, 0, crowd.clone().into_bytes()).unwrap();
                let why = String::from_utf8_lossy(&answer.body);
                assert!(answer.status == 413 && why.contains("values"), "{:?}: {why}", ASKED[which]);
            }
        }
        let names: Vec<String> = (0..64).map(|i| format!("CN={i:0>250}")).collect();
        let body = json!({ "name": "d", "spec": { "capacity": "1GB", "rate": "5/s" }, "nbd": names });
        let answer = harness.ask(0, 0, serde_json::to_vec(&body).unwrap()).unwrap();
        assert_eq!(answer.status, 202, "{}", String::from_utf8_lossy(&answer.body));
    }

    #[test]
    fn whatever_bodies_say_each_is_answered() {
        let bodies = sound();
        let (mut done, mut refused) = (0u32, 0u32);
        for seed in 0..6 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut harness = Harness::open().unwrap();
            for _ in 0..150 {
                let mut body = bodies[rng.random_range(0..bodies.len())].clone();
                for _ in 0..rng.random_range(0..3u32) {
                    spoil(&mut body, &mut rng);
                }
                let mut bytes = serde_json::to_vec(&body).unwrap();
                if rng.random_range(0..10u32) == 0 {
                    bytes.truncate(rng.random_range(0..=bytes.len()));
                }
                let (which, who) = (rng.random_range(0..ASKED.len()), rng.random_range(0..3usize));
                let answer = harness.ask(which, who, bytes.clone()).unwrap();
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                let asked = || {
                    format!(
                        "{:?} {}: {} {text}",
                        ASKED[which],
                        String::from_utf8_lossy(&bytes),
                        answer.status
                    )
                };
                assert!(answer.is_sound(), "{}", asked());
                assert!(
                    who != 2 || which == 10 || answer.status == 401 || ASKED[which].1 == "/ca/renew",
                    "{}",
                    asked()
                );
                if answer.status < 300 { done += 1 } else { refused += 1 }
            }
        }
        assert!(done > 50 && refused > 200, "{done} done, {refused} refused");
    }
}

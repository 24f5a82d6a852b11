//! Real traffic, decoded and compared with what the servers themselves logged.

use crate::pcap;
use henge_pvfs2::{Connection, ConnectionEvent, Direction, IoRequest, News, RequestBody};
use serde_json::Value;
use std::collections::BTreeMap;

/// One I/O request as a connection decoded it.
struct Seen {
    client_port: u16,
    server_port: u16,
    tag: i64,
    io: IoRequest,
    metafile: Option<u64>,
    uid: Option<u32>,
    moved: Option<Result<u64, i32>>,
}

/// A capture fed through connections; the bytes that came out must be the bytes that went in.
#[derive(Default)]
struct Decoded {
    seen: Vec<Seen>,
    messages_withheld: usize,
}

/// Feeds what is unread; what needs more stays.
fn drain(buffer: &mut Vec<u8>, out: &mut Vec<u8>, mut step: impl FnMut(&[u8]) -> usize) {
    loop {
        let len = step(buffer);
        if len == 0 {
            return;
        }
        out.extend(buffer.drain(..len));
        if buffer.is_empty() {
            return;
        }
    }
}

fn decode(streams: &[pcap::Stream], cut: usize) -> Decoded {
    let mut decoded = Decoded::default();
    let mut owners: BTreeMap<henge_pvfs2::Capability, Option<u32>> = BTreeMap::new();
    for stream in streams {
        let mut connection = Connection::new();
        let (mut up, mut down, mut up_out, mut down_out) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut sides = (Vec::new(), Vec::new());
        let first = decoded.seen.len();
        for (to_server, data) in &stream.segments {
            for piece in data.chunks(cut) {
                if *to_server {
                    sides.0.extend_from_slice(piece);
                    up.extend_from_slice(piece);
                    drain(&mut up, &mut up_out, |bytes| {
                        let step = connection.from_client(bytes);
                        match step.what {
                            ConnectionEvent::Hold { tag, request } => {
                                connection.release(tag);
                                let RequestBody::Io(io) = request.body else { panic!("only I/O is held") };
                                let uid = request
                                    .user
                                    .map(|u| u.uid)
                                    .or_else(|| owners.get(&request.capability).copied().flatten());
                                decoded.seen.push(Seen {
                                    client_port: stream.client_port,
                                    server_port: stream.server_port,
                                    tag,
                                    io: *io,
                                    metafile: request.hints.handle,
                                    uid,
                                    moved: None,
                                });
                            }
                            ConnectionEvent::HoldAlone { .. }
                            | ConnectionEvent::Opaque
                            | ConnectionEvent::Refuse => {
                                panic!("{}: not understood", stream.client_port)
                            }
                            ConnectionEvent::Answer { why } => panic!("{}: {why}", stream.client_port),
                            ConnectionEvent::Pass | ConnectionEvent::NeedMore(_) => {}
                        }
                        step.len
                    });
                } else {
                    sides.1.extend_from_slice(piece);
                    down.extend_from_slice(piece);
                    drain(&mut down, &mut down_out, |bytes| {
                        let (step, news) = connection.from_server(bytes);
                        match news {
                            Some(News::Over { tag, result, .. }) => {
                                let seen = decoded.seen[first..]
                                    .iter_mut()
                                    .find(|s| s.tag == tag)
                                    .expect("a request that was seen");
                                assert_eq!(seen.moved, None, "over twice");
                                seen.moved = Some(result);
                            }
                            Some(News::Identity { capability, credential }) => {
                                let owner = owners.entry(*capability).or_insert(Some(credential.uid));
                                if *owner != Some(credential.uid) {
                                    *owner = None; // ambiguous: two users were given the same
                                }
                            }
                            Some(News::Accepted { .. } | News::Limits(_)) | None => {}
                        }
                        step.len
                    });
                }
            }
        }
        assert_eq!(connection.stats().malformed, 0, "requests that were not understood");
        assert_eq!(connection.under_way(), 0, "requests that are never over");
        assert!(up_out == sides.0 && down_out == sides.1, "bytes were changed or lost");
        decoded.messages_withheld += up.len() + down.len();
    }
    decoded
}

fn number(truth: &Value, key: &str) -> Option<u64> {
    truth[key].as_u64()
}

/// Compares one request with its ground truth.
fn check(name: &str, truth: &Value, seen: &Seen) {
    let io = &seen.io;
    let what = format!("{name} tag {} port {}", seen.tag, seen.client_port);
    assert_eq!(number(truth, "datafile_handle"), Some(io.handle), "{what}");
    assert_eq!(truth["kind"] == "small_io", io.small, "{what}");
    if let Some(op) = truth["op"].as_str() {
        assert_eq!(op == "write", io.direction == Direction::Write, "{what}");
    }
    for (key, value) in [
        ("server_nr", u64::from(io.server_nr)),
        ("server_ct", u64::from(io.server_ct)),
        ("file_req_offset", io.file_req_offset),
        ("aggregate_size", io.aggregate_size),
    ] {
        if let Some(expected) = number(truth, key) {
            assert_eq!(value, expected, "{what}: {key}");
        }
    }
    assert_eq!(seen.metafile, number(truth, "metafile_handle"), "{what}");
    let here = number(truth, "bytes_on_this_server").expect("the truth has it");
    assert_eq!(seen.moved, Some(Ok(here)), "{what}: bytes moved");
    // The servers' logs have no size for small requests; those cannot be above what a long enough file would give.
    match (io.direction, number(truth, "bstream_size_before")) {
        (Direction::Write, _) => assert_eq!(io.bytes_here(u64::MAX), Some(here), "{what}: arithmetic"),
        (Direction::Read, Some(size)) => assert_eq!(io.bytes_here(size), Some(here), "{what}: arithmetic"),
        (Direction::Read, None) => assert!(io.bytes_here(u64::MAX) >= Some(here), "{what}: arithmetic"),
    }
}

#[test]
fn every_request_of_every_capture_is_decoded_as_the_servers_logged_it() {
    let Some(folder) = pcap::captures() else {
        println!("skipped: every_request_of_every_capture needs HENGE_DATA");
        return;
    };
    let mut matched = 0;
    for name in pcap::names(&folder) {
        let truth = std::fs::read(folder.join(format!("{name}.truth.json"))).expect("a truth file");
        let truth: Value = serde_json::from_slice(&truth).expect("JSON");
        let capture = std::fs::read(folder.join(format!("{name}.pcapng"))).expect("a capture");
        let ports =
            truth["ports"].as_object().expect("ports").values().map(|p| p.as_u64().expect("a port") as u16);
        let streams = pcap::read(&capture, &ports.collect::<Vec<_>>());
        let decoded = decode(&streams, usize::MAX);
        assert_eq!(decoded.messages_withheld, 0, "{name}: half messages at the end");
        let requests = truth["requests"].as_array().expect("requests");
        assert_eq!(decoded.seen.len(), requests.len(), "{name}: number of I/O requests");
        for request in requests {
            let seen = decoded.seen.iter().find(|s| {
                number(request, "tag") == Some(s.tag as u64)
                    && number(request, "client_port") == Some(u64::from(s.client_port))
                    && number(request, "port") == Some(u64::from(s.server_port))
            });
            check(&name, request, seen.unwrap_or_else(|| panic!("{name}: {request} was not decoded")));
            matched += 1;
        }
    }
    println!("{matched} of 127 I/O requests decoded as the ground truth says");
    assert_eq!(matched, 127);
}

#[test]
fn users_are_found_by_the_capability_they_were_given() {
    let Some(folder) = pcap::captures() else {
        println!("skipped: users_are_found_by_the_capability needs HENGE_DATA");
        return;
    };
    let mut found = 0;
    for name in ["d-two-uids-concurrent-write", "i-fuse-two-uids-one-connection", "j-two-uids-read-same-file"]
    {
        let truth: Value = serde_json::from_slice(
            &std::fs::read(folder.join(format!("{name}.truth.json"))).expect("a truth file"),
        )
        .expect("JSON");
        let capture = std::fs::read(folder.join(format!("{name}.pcapng"))).expect("a capture");
        let ports =
            truth["ports"].as_object().expect("ports").values().map(|p| p.as_u64().expect("a port") as u16);
        let mut streams = pcap::read(&capture, &ports.collect::<Vec<_>>());
        // The proxies of data servers learn it from the metadata server's: hear that one out first.
        streams.sort_by_key(|s| s.server_port);
        for seen in decode(&streams, usize::MAX).seen {
            let truth = truth["requests"].as_array().expect("requests").iter().find(|r| {
                number(r, "tag") == Some(seen.tag as u64)
                    && number(r, "client_port") == Some(u64::from(seen.client_port))
            });
            let expected = number(truth.expect("a request"), "uid").map(|uid| uid as u32);
            assert_eq!(
                seen.uid, expected,
                "{name} tag {}: None where two users were given the same",
                seen.tag
            );
            found += usize::from(seen.uid.is_some());
        }
    }
    assert_eq!(found, 32);
}

#[test]
fn however_the_stream_is_cut_the_same_is_decoded() {
    let Some(folder) = pcap::captures() else {
        println!("skipped: however_the_stream_is_cut needs HENGE_DATA");
        return;
    };
    for name in ["c-small-1KiB-write-read", "e1-vector-small-r", "f-metadata"] {
        let capture = std::fs::read(folder.join(format!("{name}.pcapng"))).expect("a capture");
        let streams = pcap::read(&capture, &[33410, 33411, 33412]);
        let whole = decode(&streams, usize::MAX);
        for cut in [1, 7, 23, 24, 25, 64] {
            let cut_up = decode(&streams, cut);
            assert_eq!(whole.seen.len(), cut_up.seen.len(), "{name} cut at {cut}");
            for (a, b) in whole.seen.iter().zip(&cut_up.seen) {
                assert!(a.io == b.io && a.moved == b.moved && a.tag == b.tag, "{name} cut at {cut}");
            }
        }
    }
}

#[test]
fn both_sides_of_a_forwarding_proxy_carry_the_same_requests() {
    let Some(folder) = pcap::captures() else {
        println!("skipped: both_sides_of_a_forwarding_proxy needs HENGE_DATA");
        return;
    };
    let capture = std::fs::read(folder.join("z-zone-through-proxy-512KiB.pcapng")).expect("a capture");
    let outside = decode(&pcap::read(&capture, &[34410, 34411, 34412]), usize::MAX);
    let inside = decode(&pcap::read(&capture, &[33410, 33411, 33412]), usize::MAX);
    let of = |d: &Decoded| {
        let mut all: Vec<_> =
            d.seen.iter().map(|s| (s.server_port % 1000, s.tag, s.io.aggregate_size, s.moved)).collect();
        all.sort_by_key(|s| (s.0, s.1));
        all
    };
    assert!(!outside.seen.is_empty());
    assert_eq!(of(&outside), of(&inside));
}

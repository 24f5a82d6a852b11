//! The same requests from independent copies in different formats; counts that the data's description states.

use crate::common::{SHARED, Skip, open_shared};
use henge_core::{Duration, Op};
use henge_workload::{Format, Packing, Record, Records, Replay, ReplayOptions, Stats, Trace, TraceOptions};

fn all(name: &str, options: &TraceOptions) -> Option<Vec<Record>> {
    Some(open_shared(name, options)?.map(Result::unwrap).collect())
}
fn usual(name: &str) -> Option<Vec<Record>> {
    all(name, &TraceOptions::default())
}
fn pages() -> TraceOptions {
    TraceOptions { size_unit: Some(4096), ..TraceOptions::default() }
}

#[test]
fn spc_and_ssdsim_copies_of_financial_agree() {
    let (Some(spc), Some(ssd)) = (usual("financial1-snippet.spc"), usual("financial1-snippet.ssdsim.ascii"))
    else {
        return Skip("spc_and_ssdsim_copies_of_financial_agree").report();
    };
    assert_eq!((spc.len(), ssd.len()), (10_000, 10_000));
    let mut worst = 0;
    for (a, b) in spc.iter().zip(&ssd) {
        assert_eq!((a.device, a.offset, a.len, a.op), (b.device, b.offset, b.len, b.op));
        worst = worst.max(a.at.as_nanos().abs_diff(b.at.as_nanos()));
    }
    assert!(worst <= 8_750, "{worst} ns"); // what the source's own rounding amounts to
}

#[test]
fn the_disksim_copy_of_financial_is_the_spc_one_from_the_third_record_on() {
    let (Some(long), Some(spc)) =
        (all("financial1-50k-4kpages.disksim.trace", &pages()), usual("financial1-snippet.spc"))
    else {
        return Skip("the_disksim_copy_of_financial_is_the_spc_one_from_the_third_record_on").report();
    };
    for (i, (a, b)) in long.iter().zip(&spc[2..]).enumerate() {
        assert_eq!((a.at, a.offset, a.op), (b.at, b.offset, b.op), "record {i}");
    }
    assert_eq!(spc[2..].len(), 9_998);
}

#[test]
fn both_copies_of_websearch_agree() {
    let (Some(long), Some(short)) =
        (all("websearch1-50k-4kpages.disksim.trace", &pages()), usual("websearch1-60s.ns.ascii"))
    else {
        return Skip("both_copies_of_websearch_agree").report();
    };
    for (i, (a, b)) in long.iter().zip(&short).enumerate() {
        assert_eq!((a.at, a.offset, a.op), (b.at, b.offset, b.op), "record {i}");
    }
    assert_eq!(short.len(), 24_783);
}

#[test]
fn vscsi_binary_and_csv_agree() {
    let (Some(binary), Some(csv)) = (usual("cloudphysics-2h.vscsi"), usual("cloudphysics-2h.csv")) else {
        return Skip("vscsi_binary_and_csv_agree").report();
    };
    assert_eq!((binary.len(), csv.len()), (113_872, 113_872));
    for (a, b) in binary.iter().zip(&csv) {
        assert_eq!((a.op, a.offset, a.len), (b.op, b.offset, b.len));
        // The CSV has whole seconds alone.
        assert_eq!(a.at.as_nanos() / 1_000_000_000, b.at.as_nanos() / 1_000_000_000);
    }
}

#[test]
fn blkparse_counts_the_event_that_is_asked_for() {
    let name = "hadoop-50k-events.blkparse";
    let event =
        |e: u8| all(name, &TraceOptions { event: Some(e), ..TraceOptions::default() }).map(|r| r.len());
    let (Some(q), Some(d)) = (event(b'Q'), event(b'D')) else {
        return Skip("blkparse_counts_the_event_that_is_asked_for").report();
    };
    assert_eq!((q, d), (15_524, 170));
}

#[test]
fn stacked_devices_are_deduplicated_on_demand() {
    let Some(trace) = open_shared("linux-webserver-2.load", &TraceOptions::default()) else {
        return Skip("stacked_devices_are_deduplicated_on_demand").report();
    };
    let options = ReplayOptions { dedup: Some(Duration::from_millis(1)), ..ReplayOptions::default() };
    let records: Records = Box::new(trace);
    let mut replay = Replay::new(records, options, 0, u64::MAX, henge_core::Instant::ZERO);
    let mut stats = Stats::default();
    while let Some(record) = replay.next_record().unwrap() {
        stats.count(&record);
    }
    assert_eq!(stats.requests(), 194_539);
    assert_eq!(stats.read_percent().round(), 43.0);
}

#[allow(clippy::type_complexity, reason = "a table")]
/// Name, POSIX requests, read %, mean KiB, files, seconds; MPI-IO requests, mean KiB. From the data's description.
const DXT: [(&str, u64, f64, f64, usize, f64, u64, f64); 6] = [
    ("openpmd-8a-write-384r", 17_525, 9.1, 16_272.0, 2, 11.4, 8_448, 29_789.0),
    ("io_test5-hdf5-192r", 77_696, 43.5, 428.5, 5, 152.9, 13_184, 1_296.0),
    ("openpmd-8-read-1024r", 123_166, 99.8, 42.2, 1, 3.8, 153_716, 19.1),
    ("nonmpi-1r", 17_652, 44.3, 13.3, 75, 26.4, 0, 0.0),
    ("mpi-io-test-32r", 320, 40.0, 13_107.0, 33, 13.6, 256, 16_384.0),
    ("ior-hdf5-4r", 59, 61.0, 139.0, 1, 0.26, 59, 139.0),
];

#[test]
fn darshan_logs_have_the_stated_amounts() {
    for (name, posix, read, kib, files, seconds, mpiio, mpi_kib) in DXT {
        let file = format!("{name}.dxt.txt");
        let Some(trace) = open_shared(&file, &TraceOptions::default()) else {
            return Skip("darshan_logs_have_the_stated_amounts").report();
        };
        assert_eq!(trace.format(), Format::Dxt);
        let mut s = Stats::default();
        trace.for_each(|r| s.count(&r.unwrap()));
        assert_eq!((s.requests(), s.devices().0), (posix, files), "{name}");
        assert!((s.read_percent() - read).abs() <= 0.05, "{name}: {}", s.read_percent());
        let mean = s.all().mean_kib().unwrap();
        assert!((mean / kib - 1.0).abs() < 0.005, "{name}: {mean}");
        // The description counts to the end of the last call, a start is all that a request has.
        assert!(s.duration().as_secs_f64() <= seconds * 1.01, "{name}: {}", s.duration());
        let options = TraceOptions { mpiio: true, ..TraceOptions::default() };
        let calls = open_shared(&file, &options).unwrap();
        let mut s = Stats::default();
        let outcome = calls.map(|r| r.map(|r| s.count(&r))).find(Result::is_err);
        assert_eq!((s.requests(), outcome.is_some()), (mpiio, mpiio == 0), "{name}: MPI-IO");
        if mpiio > 0 {
            assert!((s.all().mean_kib().unwrap() / mpi_kib - 1.0).abs() < 0.005, "{name}: MPI-IO");
        }
    }
}

#[test]
fn all_packings_read_the_same() {
    use std::io::Write;
    let Some(packed) = SHARED.read("traces/financial1-snippet.spc.zst") else {
        return Skip("all_packings_read_the_same").report();
    };
    let plain = zstd::decode_all(&packed[..]).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let gzip = gzip.finish().unwrap();
    let read = |bytes: Vec<u8>| {
        let trace =
            Trace::open("t", Box::new(std::io::Cursor::new(bytes)), &TraceOptions::default()).unwrap();
        (trace.packing(), trace.map(Result::unwrap).collect::<Vec<_>>())
    };
    let (a, b, c) = (read(plain), read(gzip), read(packed));
    assert_eq!((a.0, b.0, c.0), (Packing::Plain, Packing::Gzip, Packing::Zstd));
    assert!(a.1 == b.1 && b.1 == c.1 && a.1.len() == 10_000);
}

#[test]
fn every_trace_is_recognized() {
    for (file, format) in [
        ("financial1-snippet.spc", Format::Spc),
        ("financial1-snippet.ssdsim.ascii", Format::Ssdsim),
        ("tpcc-7k.ns.ascii", Format::Ssdsim),
        ("websearch1-60s.ns.ascii", Format::Ssdsim),
        ("financial1-50k-4kpages.disksim.trace", Format::Disksim),
        ("websearch1-50k-4kpages.disksim.trace", Format::Disksim),
        ("postmark.disksim.trace", Format::Disksim),
        ("iozone-write.disksim.trace", Format::Disksim),
        ("msr-hm_0-1k.csv", Format::Msr),
        ("msr-cut-10k.rw_20_80.105.replayer.trace", Format::Replayer),
        ("msr-cut-10k.rw_40_60.1370.replayer.trace", Format::Replayer),
        ("msr-cut-10k.most_thpt_rand_iops.1006.replayer.trace", Format::Replayer),
        // The replayer's columns with sectors in them are DiskSim's.
        ("msnfs-150k.replayer.trace", Format::Disksim),
        ("tencent-cbs-50k.csv", Format::Tencent),
        ("systor17-1k.csv", Format::Systor),
        ("systor17-additional-1k.csv", Format::Systor),
        ("cloudphysics-2h.vscsi", Format::Vscsi),
        ("cloudphysics-2h.csv", Format::VscsiCsv),
        ("ycsb-rocksdb-10k-events.blkparse", Format::Blkparse),
        ("hadoop-50k-events.blkparse", Format::Blkparse),
        ("linux-webserver-2.load", Format::Blkreplay),
        ("linux-mysql.load", Format::Blkreplay),
        ("windows-shared-server.load", Format::Blkreplay),
        ("hplajw-1992-week.srt", Format::Srt),
        ("cello2003-hour.srt", Format::Srt),
        ("selfmade-fio3.iolog", Format::Iolog),
    ] {
        let Some(trace) = open_shared(file, &TraceOptions::default()) else {
            return Skip("every_trace_is_recognized").report();
        };
        assert_eq!(trace.format(), format, "{file}");
        assert_eq!(trace.sizes_look_like_pages(), file.contains("4kpages"), "{file}");
    }
}

#[test]
fn the_fio_sample_is_what_it_was_made_as() {
    // randrw, 8 KiB, rate_iops=200 for 5 s; fio keeps that rate for reads and for writes, so that a mix of 70/30
    // that was asked for as well had no effect.
    let Some(records) = usual("selfmade-fio3.iolog") else {
        return Skip("the_fio_sample_is_what_it_was_made_as").report();
    };
    let mut s = Stats::default();
    records.iter().for_each(|r| s.count(r));
    assert_eq!(s.of(Op::Read).largest, 8192);
    assert_eq!((s.of(Op::Read).requests, s.of(Op::Write).requests), (1000, 1000));
    assert!((s.duration().as_secs_f64() - 5.0).abs() < 0.1, "{}", s.duration());
}

//! Readers on lines as people's files have them, and on input that is wrong.

use henge_core::{Instant, Op};
use henge_workload::{Format, OwnWriter, Record, Trace, TraceError, TraceOptions};
use proptest::prelude::*;

fn open(bytes: &[u8], options: &TraceOptions) -> Result<Trace, TraceError> {
    Trace::open("t", Box::new(std::io::Cursor::new(bytes.to_vec())), options)
}
fn read_as(bytes: &[u8], format: Option<Format>) -> Result<Vec<Record>, TraceError> {
    open(bytes, &TraceOptions { format, ..TraceOptions::default() })?.collect()
}
fn read(text: &str) -> (Format, Vec<Record>) {
    let trace = open(text.as_bytes(), &TraceOptions::default()).unwrap();
    (trace.format(), trace.map(Result::unwrap).collect())
}
fn r(at: u64, device: u32, op: Op, offset: u64, len: u64) -> Record {
    Record { at: Instant::from_nanos(at), device, op, offset, len }
}
fn error(text: &str, format: Option<Format>) -> String {
    read_as(text.as_bytes(), format).unwrap_err().to_string()
}

#[test]
fn alibaba_is_read_by_its_schema() {
    let line = "0,R,126703644672,4096,1577808000000626\n";
    let expected = vec![r(1_577_808_000_000_626_000, 0, Op::Read, 126_703_644_672, 4096)];
    assert_eq!(read(line), (Format::Alibaba, expected.clone()));
    assert_eq!(
        read(&format!("device_id,opcode,offset,length,timestamp\r\n{line}")),
        (Format::Alibaba, expected)
    );
}

#[test]
fn iolog_2_waits_move_the_clock() {
    let text = "fio version 2 iolog\n/dev/sda add\n/dev/sdb add\n/dev/sda open\n/dev/sda write 8192 4096\n\
                /dev/sda wait 1500 0\n/dev/sdb read 0 512\n/dev/sda wait 500 0\n/dev/sda sync 0 0\n\
                /dev/sda trim 4096 1048576\n/dev/sda close\n";
    let expected = vec![
        r(0, 0, Op::Write, 8192, 4096),
        r(1_500_000, 1, Op::Read, 0, 512),
        r(2_000_000, 0, Op::Flush, 0, 0),
        r(2_000_000, 0, Op::Trim, 4096, 1 << 20),
    ];
    assert_eq!(read(text), (Format::Iolog, expected));
}

#[test]
fn variations_that_real_files_have_are_accepted() {
    // Byte order mark, Windows line ends, blanks, comments, a header, no newline at the end, further columns.
    let spc = "\u{feff}ASU,LBA,Size,Opcode,Timestamp\r\n# made by hand\r\n\r\n 3, 8 ,4096,W,1.5,extra,columns\r\n3,16,512,r,2";
    let expected = vec![r(1_500_000_000, 3, Op::Write, 4096, 4096), r(2_000_000_000, 3, Op::Read, 8192, 512)];
    assert_eq!(read(spc), (Format::Spc, expected));
    let msr = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n128166372003061629,usr,0,Read,7014609920,24576,41286\n\
               128166372016382155,usr,1,write,2657792,512,703\n";
    let (format, records) = read(msr);
    assert_eq!((format, records[0].device, records[1].device), (Format::Msr, 0, 1));
    assert_eq!(records[0].at.as_nanos(), 128_166_372_003_061_629 * 100);
    // Systor: the response time may be empty.
    let systor = "Timestamp,Response,IOType,LUN,Offset,Size\n1456095145.133076000,,R,2,899056122368,131072\n";
    let holes =
        "Timestamp,Response,IOType,LUN,Offset,Size\n1.5,,,0,4096,512\n1.5,,R,0,,512\n2.5,0.1,W,,4096,512\n";
    let mut trace = open(holes.as_bytes(), &TraceOptions::default()).unwrap();
    let records: Vec<_> = trace.by_ref().map(Result::unwrap).collect();
    assert_eq!((records, trace.incomplete()), (vec![r(2_500_000_000, 0, Op::Write, 4096, 512)], 2));
    assert!(error("1.5,,W,0,4096\n", Some(Format::Systor)).contains("fewer than six columns"));
    assert_eq!(read(systor).1, [r(1_456_095_145_133_076_000, 2, Op::Read, 899_056_122_368, 131_072)]);
    // DiskSim: tabs, flags in hexadecimal.
    let disksim = "0.5\t1\t8\t16\t0\n 1.25  1  24 8 41\n";
    let expected = vec![r(500_000, 1, Op::Write, 4096, 8192), r(1_250_000, 1, Op::Read, 12288, 4096)];
    assert_eq!(read(disksim), (Format::Disksim, expected));
    // blkparse: summary at the end, a flush without a range, a write with all its letters.
    let blkparse = "  8,0    3        1     0.000000000   697  Q FWFSM 223490 + 8 [kjournald]\n  8,0    3        2     0.1   697  Q FWS [kjournald]\n\
                    \nCPU3 (8,0):\n Reads Queued:           0,        0KiB\n\nThroughput (R/W): 0KiB/s / 4KiB/s\nEvents (8,0): 2 entries\n";
    assert_eq!(read(blkparse), (Format::Blkparse, vec![r(0, 8 << 20, Op::Write, 223_490 * 512, 4096)]));
    // DXT: OSTs behind the columns, names in the file comment, modules mixed.
    let dxt = "# DXT, file_id: 77, file_name: /a\n# DXT, rank: 0, hostname: x\n# Module    Rank  Wt/Rd  Segment  Offset  Length  Start(s)  End(s)\n\
               X_MPIIO 0 write 0 0 100 0.5 0.6\n X_POSIX 0 write 0 4096 100 0.5 0.6 [ 12, 13]\n# DXT, file_id: 78, file_name: /b\n X_POSIX 1 read 0 0 10 0.7 0.8\n";
    let expected = vec![r(500_000_000, 0, Op::Write, 4096, 100), r(700_000_000, 1, Op::Read, 0, 10)];
    assert_eq!(read(dxt), (Format::Dxt, expected));
}

#[test]
fn other_separators_and_headers_are_accepted() {
    let expected = vec![r(1_500_000_000, 3, Op::Write, 4096, 4096), r(2_000_000_000, 3, Op::Read, 8192, 512)];
    for by in [",", ";", "\t", " ; "] {
        let spc = format!("3{by}8{by}4096{by}W{by}1.5\n3{by}16{by}512{by}r{by}2\n");
        assert_eq!(read(&spc), (Format::Spc, expected.clone()), "{by:?}");
    }
    let header = "time device lba size op\n1500000000 3 8 8 0\n2000000000 3 16 1 1\n";
    assert_eq!(read(header), (Format::Ssdsim, expected));
    assert!(
        error("time\ndevice\n1 2 3 4 0\n", Some(Format::Ssdsim)).contains("not a time"),
        "one line at most"
    );
    let upper = "VERSION,TIME,OP,SIZE,LBN\n1,5.5,2A,512,8\n";
    assert_eq!(read(upper), (Format::VscsiCsv, vec![r(5_500_000_000, 0, Op::Write, 4096, 512)]));
    let iolog = "\n# made by hand\nfio version 3 iolog\n\n10 a add\n12 a read 4096 512\n";
    assert_eq!(read(iolog), (Format::Iolog, vec![r(12_000, 0, Op::Read, 4096, 512)]));
}

#[test]
fn what_was_not_asked_for_is_named() {
    let blkparse = "  8,0    3        1     0.5   697  D  WS 8 + 8 [x]\n  8,0    3        2     0.6   697  C  WS 8 + 8 [0]\n";
    assert_eq!(error(blkparse, None), "t: no event Q in it, but C, D; choose one with --event");
    let options = TraceOptions { event: Some(b'D'), ..TraceOptions::default() };
    assert_eq!(open(blkparse.as_bytes(), &options).unwrap().count(), 1);
    let dxt = "# DXT, file_id: 77, file_name: /a\n X_MPIIO -1 write 0 0 100 0.5 0.6\n";
    assert!(error(dxt, None).contains("--mpiio"));
    let options = TraceOptions { mpiio: true, ..TraceOptions::default() };
    assert_eq!(open(dxt.as_bytes(), &options).unwrap().count(), 1);
}

#[test]
fn units_can_be_set() {
    let options = TraceOptions {
        time_unit: Some(1_000),
        size_unit: Some(4096),
        offset_unit: Some(1),
        ..TraceOptions::default()
    };
    let records: Vec<_> = open(b"7 1 8192 2 1\n", &options).unwrap().map(Result::unwrap).collect();
    assert_eq!(records, [r(7_000, 1, Op::Read, 8192, 8192)]);
}

#[test]
fn damage_names_file_line_and_field() {
    let text = "0,1,512,r,0.0\n0,2,512,q,0.1\n0,3,512,r,0.2\n0,x,512,r,0.3\n";
    assert_eq!(error(text, None), "t:2: Opcode: neither read nor write: \"0,2,512,q,0.1\"");
    let options = TraceOptions { skip_damaged: true, ..TraceOptions::default() };
    let mut trace = open(text.as_bytes(), &options).unwrap();
    let good: Vec<_> = trace.by_ref().map(|r| r.unwrap().offset / 512).collect();
    assert_eq!((good, trace.damaged()), (vec![1, 3], 2));
    assert!(trace.first_damage().unwrap().to_string().starts_with("t:2: Opcode"));
}

#[test]
fn what_is_no_trace_is_said() {
    assert_eq!(error("", None), "t: the file is empty");
    assert_eq!(error("# nothing\n", Some(Format::Spc)), "t: no request in it");
    let unknown = error("Dear diary,\ntoday was fine.\n", None);
    assert!(
        unknown.contains("no format that is known fits; it begins \"Dear diary,\"")
            && unknown.contains("blkparse")
    );
    let wrong = error("0,1,512,r,0.0\n0,2,512,r,0.1\n", Some(Format::Disksim));
    assert!(wrong.contains("t:1: time") && wrong.contains("not disksim; it looks like spc"), "{wrong}");
    assert!(error("BZh91AY&SY", None).contains("bunzip2"));
    let binary: Vec<u8> = (0..4096u32).map(|i| (i * 7 % 251) as u8).collect();
    assert!(read_as(&binary, None).is_err());
    for format in Format::ALL {
        let error = read_as(b"Dear diary,\ntoday was fine, or was it; it was.\n", Some(format)).unwrap_err();
        assert!(error.to_string().starts_with("t:"), "{format:?}: {error}");
    }
}

#[test]
fn quotes_around_fields_are_no_part_of_them() {
    let lines = "0,1,512,r,0.0\n0,2,512,w,0.5\n";
    let quoted: String =
        lines.lines().map(|l| format!("\"{}\"\n", l.split(',').collect::<Vec<_>>().join("\",\""))).collect();
    assert_eq!(read(&quoted), read(lines));
    let named = format!("\"ASU\",\"LBA\",\"Size\",\"Opcode\",\"Timestamp\"\n{quoted}");
    assert_eq!(read(&named), read(lines));
}

#[test]
fn what_nearly_fits_is_told_what_would() {
    for (text, field, why) in [
        ("0;1;512;r;0,5\n", "Timestamp", "behind a point, not a comma"),
        ("0,0x10,512,r,0.5\n", "LBA", "hexadecimal"),
        ("0,-8,512,r,0.5\n", "LBA", "below zero"),
        ("0,1,512,r,-0.5\n", "Timestamp", "a time below zero"),
        ("ASU,LBA,Size,Opcode,Timestamp\n0,1,512,r,12:30:01\n", "Timestamp", "not a date"),
        ("0,1,512,x,0.5\n", "Opcode", "neither read nor write"),
    ] {
        let error = error(text, None);
        let columns = "Read as spc (ASU,LBA,Size,Opcode,Timestamp)";
        assert!(
            error.contains(columns) && error.contains(&format!("{field} is ")) && error.contains(why),
            "{error}"
        );
    }
    let spreadsheet = error("1.28166372003e+17,usr,0,Read,512,512,10\n", None);
    assert!(spreadsheet.contains("without an exponent"), "{spreadsheet}");
    let blank = error("fio version 3 iolog\n0 /mnt/a disk add\n1 /mnt/a disk read 0 4096\n", None);
    assert_eq!(blank, "t:2: action: unknown: \"0 /mnt/a disk add\"");
    assert!(error("time,op,offset,size\n0.5,R,4096,512\n", None).contains("Known: spc"));
}

#[test]
fn what_is_taken_for_a_trace_by_mistake_is_told_apart() {
    let blktrace = [b"\x07tae".as_slice(), &[0; 44]].concat();
    for (bytes, what) in [
        (blktrace.as_slice(), "blkparse"),
        (b"\xff\xfe0\0,\0", "iconv"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "git lfs pull"),
        (b"<!DOCTYPE html>\n<html>", "a web page"),
        (b"\x04\x22\x4d\x18\x64", "unlz4"),
    ] {
        let error = read_as(bytes, None).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_truncated_archive_is_an_error_after_what_could_be_read() {
    let text: String = (0..50_000).map(|i| format!("0,{},512,r,{i}.0\n", i * 7919 % 100_003)).collect();
    let zst = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, text.as_bytes()).unwrap();
    let gz = gz.finish().unwrap();
    for packed in [zst, gz] {
        let cut = &packed[..packed.len() * 2 / 3];
        let mut n = 0;
        let mut last = None;
        for item in open(cut, &TraceOptions::default()).unwrap() {
            match item {
                Ok(_) => n += 1,
                Err(error) => last = Some(error.to_string()),
            }
        }
        // The last line before the cut may itself be cut, which is then what is said.
        let error = last.expect("an error");
        assert!(n > 1000 && error.starts_with("t: truncated after"), "{error}");
    }
}

#[test]
fn our_own_format_comes_back_as_it_went() {
    let records = [
        r(5, 1, Op::Read, u64::MAX, 512),
        r(6, u32::MAX, Op::Write, 0, u64::MAX),
        r(7, 0, Op::Flush, 0, 0),
        r(8, 0, Op::Trim, 1, 2),
        r(u64::MAX, 0, Op::WriteZeroes, 3, 4),
    ];
    let mut writer = OwnWriter::new(Vec::new()).unwrap();
    for record in &records {
        writer.write(record).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let trace = open(&bytes, &TraceOptions::default()).unwrap();
    assert_eq!(trace.format(), Format::Henge);
    assert_eq!(trace.map(Result::unwrap).collect::<Vec<_>>(), records);
    for cut in [bytes.len() - 1, bytes.len() - 32, bytes.len() - 33, bytes.len() - 64] {
        let error = read_as(&bytes[..cut], None).unwrap_err().to_string();
        assert!(error.contains("truncated after"), "{cut}: {error}");
    }
}

#[test]
fn a_line_without_end_is_refused_in_constant_memory() {
    let long = [b"0,1,512,r,0.0\n".to_vec(), vec![b'1'; 1 << 20]].concat();
    let error = read_as(&long, None).unwrap_err().to_string();
    assert!(error.contains("more than 64 KiB"), "{error}");
}

/// Lines of every text format, to be damaged.
const LINES: [&str; 11] = [
    "0,303567,3584,w,0.000000",
    "7961.833 0 20228336 8 0",
    "26214000 0 303574 7 0",
    "128166385295514663,hm,0,Write,9056014336,2048,2833",
    "1538323200,4247200,128,1,1058",
    "0,R,126703644672,4096,1577808000000626",
    "1456095145.133076000,0.000806000,R,0,899056122368,131072",
    "259,2    0        1     0.000000000  4020  Q   R 282624 + 8 [java]",
    "      0.000000000 ;    481999264 ;   16 ; R ; 0.0 ; 0.0",
    "183 t.dat read 4046848 8192",
    " X_POSIX       0  write        0            2104        55296      5.1959      5.1994",
];

proptest! {
    #[test]
    fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..2048), format in 0..=Format::ALL.len()) {
        let format = Format::ALL.get(format).copied();
        let options = TraceOptions { format, skip_damaged: true, ..TraceOptions::default() };
        if let Ok(trace) = open(&bytes, &options) {
            prop_assert!(trace.count() <= bytes.len() + 1);
        }
    }

    #[test]
    fn damaged_lines_never_panic(
        lines in prop::collection::vec((0..LINES.len(), 0..80usize, any::<u8>()), 1..40),
        skip in any::<bool>(),
        format in 0..=Format::ALL.len(),
    ) {
        let mut bytes = Vec::new();
        for (which, place, byte) in lines {
            let mut line = LINES[which].as_bytes().to_vec();
            if let Some(b) = line.get_mut(place) {
                *b = byte;
            }
            bytes.extend(line);
            bytes.push(b'\n');
        }
        let options = TraceOptions { format: Format::ALL.get(format).copied(), skip_damaged: skip, ..TraceOptions::default() };
        if let Ok(trace) = open(&bytes, &options) {
            let _ = trace.count();
        }
    }

    #[test]
    fn own_records_round_trip(at: u64, device: u32, offset: u64, len: u64) {
        let record = r(at, device, Op::Write, offset, len);
        let mut writer = OwnWriter::new(Vec::new()).unwrap();
        writer.write(&record).unwrap();
        let bytes = writer.finish().unwrap();
        prop_assert_eq!(read_as(&bytes, None).unwrap(), vec![record]);
    }
}

proptest! {
    #[test]
    fn every_written_format_reads_back(
        requests in prop::collection::vec((0..1u64 << 40, 0..8u32, any::<bool>(), 0..1u64 << 30, 1..1000u64), 1..50),
    ) {
        // Whole blocks and whole microseconds are what all of them can say.
        let records: Vec<_> = requests
            .into_iter()
            .map(|(us, device, read, block, blocks)| {
                r(us * 1000, device, if read { Op::Read } else { Op::Write }, block * 512, blocks * 512)
            })
            .collect();
        for format in henge_workload::WRITABLE {
            let mut writer = henge_workload::TraceWriter::new(format, Vec::new()).unwrap().unwrap();
            for record in &records {
                writer.write(record).unwrap();
            }
            prop_assert_eq!(writer.left_out(), 0);
            let mut back = read_as(&writer.finish().unwrap(), Some(format)).unwrap();
            if format == Format::Iolog {
                // Files are numbered as they appear.
                let mut seen = Vec::new();
                for (b, r) in back.iter_mut().zip(&records) {
                    if !seen.contains(&r.device) {
                        seen.push(r.device);
                    }
                    b.device = seen[b.device as usize];
                }
            }
            prop_assert_eq!(&back, &records, "{}", format.name());
        }
    }
}

#[test]
fn what_blkparse_does_not_print_is_damage() {
    let event = "  8,0    3        1     0.000000000   697  Q  WS 8 + 8 [x]\n";
    let around = "Input file sda.blktrace.0 added\n\n# kept\nCPU3 (8,0):\n Reads Queued:           0,        0KiB\t Writes Queued:  1\n \
                  PC Reads Queued:  0\n IO unplugs: 1  Timer unplugs: 0\n\njava (4020, 4021)\n  Allocation wait: 0.1\nTotal (8,0):\n\
                  Throughput (R/W): 0KiB/s / 4KiB/s\nEvents (8,0): 2 entries\nSkips: 0 forward (0 -   0.0%)\n";
    assert_eq!(read(&format!("{event}{around}")).1.len(), 1);
    assert_eq!(read(&format!("{around}{event}")).1.len(), 1);
    let text = format!("{event}{event}gar bage\n{event}");
    assert_eq!(error(&text, None), "t:3: device: no event and no summary: \"gar bage\"");
    let options = TraceOptions { skip_damaged: true, ..TraceOptions::default() };
    let mut trace = open(text.as_bytes(), &options).unwrap();
    assert_eq!((trace.by_ref().filter(Result::is_ok).count(), trace.damaged()), (3, 1));
}

#[test]
fn events_are_read_alike_however_they_are_spaced() {
    let expected = vec![r(1_500_000_000, 8 << 20 | 16, Op::Read, 4096, 4096)];
    for line in [
        "  8,16   3        1     1.500000000   697  Q   R 8 + 8 [x]",
        "8,16 3 1 1.5 697 Q R 8 + 8",
        "8,16\t3\t1\t1.500000000\t697\tQ\tR\t8 + 8 [x]\r",
        "   8,16  3  1  1.500000000  697  Q  r  8 + 8 [a b]",
        "8,16 3 1 1.50000000000 697 Q RM 8 + 8 [x]",
    ] {
        assert_eq!(read(&format!("{line}\n")), (Format::Blkparse, expected.clone()), "{line}");
    }
}

#[test]
fn tencent_may_be_separated_by_tabs() {
    let text = "1538323200,4247200,128,1,1058\n1538323199,13896880,8,0,1063\n";
    let expected = read(text);
    assert_eq!(expected.0, Format::Tencent);
    for by in ["\t", ";", " , "] {
        assert_eq!(read(&text.replace(',', by)), expected, "{by:?}");
    }
    let header = format!("Timestamp\tOffset\tSize\tIOType\tVolumeID\r\n{}", text.replace(',', "\t"));
    assert_eq!(read(&header), expected);
    // Sizes of one page, which could be Tencent's 0 and 1, are DiskSim's or SSDSim's after all.
    assert_eq!(read("26.214000\t0\t303574\t1\t0\n26.5\t0\t240840\t1\t1\n").0, Format::Disksim);
    assert_eq!(read("26214000\t0\t303574\t1\t0\n26500000\t0\t240840\t1\t1\n").0, Format::Ssdsim);
}

/// DiskSim reads a time by `%lf`, in milliseconds: a trace may have none with a point, and is no faster for it.
#[test]
fn disksim_s_times_are_milliseconds_with_and_without_a_point() {
    let expected = vec![
        r(0, 0, Op::Write, 8 * 512, 512),
        r(2_000_000, 0, Op::Read, 0, 512),
        r(9_000_000, 0, Op::Read, 512, 512),
    ];
    for text in ["0 0 8 1 0\n2 0 0 1 1\n9 0 1 1 1\n", "0.0 0 8 1 0\n2.0 0 0 1 1\n9.0 0 1 1 1\n"] {
        assert_eq!(read(text), (Format::Disksim, expected.clone()), "{text}");
        assert_eq!(read(&text.replace(' ', "\t")), (Format::Disksim, expected.clone()), "{text}");
        let named: Vec<_> = read_as(text.as_bytes(), Some(Format::Disksim)).unwrap();
        assert_eq!(named, expected, "{text}");
    }
    // A million requests a second, or all at one time, are SSDSim's.
    for text in ["0 0 8 1 0\n1000 0 0 1 1\n2000 0 1 1 1\n", "5 0 8 1 0\n5 0 0 1 1\n"] {
        assert_eq!(read(text).0, Format::Ssdsim, "{text}");
    }
}

/// Both versions of the same three commands: a read, one that moves no blocks, and a write.
#[test]
fn vscsi_is_read_by_its_version() {
    let commands: [(u16, u32, u64, u64); 3] = [(0x28, 4096, 8, 5), (0x12, 36, 0, 6), (0x8a, 512, 1 << 33, 7)];
    let first = |(op, len, lba, time): (u16, u32, u64, u64)| {
        let head =
            [&7u32.to_le_bytes()[..], &len.to_le_bytes(), &1u32.to_le_bytes(), &op.to_le_bytes()].concat();
        [&head, &0x100u16.to_le_bytes()[..], &lba.to_le_bytes(), &time.to_le_bytes()].concat()
    };
    let second = |(op, len, lba, time): (u16, u32, u64, u64)| {
        let head = [&op.to_le_bytes()[..], &0x200u16.to_le_bytes(), &7u32.to_le_bytes(), &len.to_le_bytes()]
            .concat();
        let end = [lba.to_le_bytes(), time.to_le_bytes(), 900u64.to_le_bytes()].concat();
        [&head, &1u32.to_le_bytes()[..], &end].concat()
    };
    let expected = [r(5000, 0, Op::Read, 4096, 4096), r(7000, 0, Op::Write, 512 << 33, 512)];
    for bytes in [commands.map(first).concat(), commands.map(second).concat()] {
        let trace = open(&bytes, &TraceOptions::default()).unwrap();
        assert_eq!(trace.format(), Format::Vscsi);
        assert_eq!(trace.map(Result::unwrap).collect::<Vec<_>>(), expected);
    }
    let mixed = [commands.map(second).concat(), first(commands[0]), vec![0; 8]].concat();
    let why = read_as(&mixed, Some(Format::Vscsi)).unwrap_err().to_string();
    assert!(why.contains("version"), "{why}");
}

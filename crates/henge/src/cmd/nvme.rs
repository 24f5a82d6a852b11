//! `henge nvme`: what a disk that is attached by NVMe tells of its service.

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use henge_core::{Duration, WaitReason, format_size};
use henge_nvme::{Service, service_log};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What the disk is promised, what it has got, and why it waits
    ///
    /// Asked of the disk itself, on the machine where it is attached: of a device like /dev/nvme0n1 (as root), or of what
    /// `nvme get-log DEVICE --log-id=0xc0 --log-len=512 --raw-binary` has written into a file ("-": standard input).
    Log {
        /// A device, or a file
        from: PathBuf,
    },
}

pub fn run(args: Args) -> Result<ExitCode> {
    let Command::Log { from } = args.command;
    let page = read(&from).with_context(|| from.display().to_string())?;
    let service = service_log::decode(&page).map_err(|why| anyhow::anyhow!("{}: {why}", from.display()))?;
    lines(&service).iter().for_each(|(what, value)| println!("{what:<10} {value}"));
    Ok(ExitCode::SUCCESS)
}

fn read(from: &Path) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    if from == Path::new("-") {
        std::io::stdin().take(service_log::LEN as u64).read_to_end(&mut page)?;
        return Ok(page);
    }
    let file = File::open(from)?;
    let kind = file.metadata()?.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return ask(&file);
    }
    file.take(service_log::LEN as u64).read_to_end(&mut page)?;
    Ok(page)
}

/// `struct nvme_passthru_cmd` of `linux/nvme_ioctl.h`.
#[repr(C)]
#[derive(Default)]
struct Passthru {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

/// `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const ADMIN_COMMAND: libc::c_ulong = 0xc048_4e41;
const _: () = assert!(size_of::<Passthru>() == 0x48, "the size is part of the call's number");

/// Get Log Page of a device.
fn ask(device: &File) -> Result<Vec<u8>> {
    let mut page = vec![0_u8; service_log::LEN];
    let dwords = (service_log::LEN / 4 - 1) as u32;
    let mut command = Passthru {
        opcode: 0x02,
        nsid: u32::MAX,
        addr: page.as_mut_ptr() as u64,
        data_len: service_log::LEN as u32,
        cdw10: u32::from(service_log::PAGE) | dwords << 16,
        ..Passthru::default()
    };
    #[allow(unsafe_code)] // the kernel's own interface
    // SAFETY: the command is what the call's number says, and `addr` and `data_len` are those of `page`, which outlives the call.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), ADMIN_COMMAND, &mut command) };
    match status {
        0 => Ok(page),
        1.. => bail!("the device has no such log page (status {status:#x}): this is no disk of Henge's"),
        _ => {
            let error = std::io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOTTY) => bail!("this is no NVMe device"),
                _ => Err(error.into()),
            }
        }
    }
}

fn lines(service: &Service) -> Vec<(&'static str, String)> {
    let contract = &service.contract;
    let mut promised = vec![format!("weight {}", contract.weight())];
    promised.extend(contract.rate.map(|rate| format!("rate {rate}")));
    promised.extend(contract.limit.map(|limit| format!("limit {limit}")));
    promised.extend(contract.latency.map(|latency| {
        format!(
            "{} of commands within {}",
            format_args!("{}%", f64::from(latency.percentile) / 1e4),
            latency.bound
        )
    }));
    let seconds = (service.since.as_nanos() as f64 / 1e9).max(1e-9);
    let rate = |n: u64| n as f64 / seconds;
    let [mean, half, p95, p99, p999, longest] = service.latency;
    let waited = WaitReason::ALL.iter().zip(service.waited).filter(|(_, time)| *time > Duration::ZERO);
    let waited: Vec<String> = waited.map(|(reason, time)| format!("{} {time}", reason.as_str())).collect();
    vec![
        ("promised", promised.join(", ")),
        (
            "received",
            format!(
                "{} commands ({} reads), {} in {}: {:.1} commands/s, {}/s",
                service.commands,
                service.reads,
                format_size(service.bytes),
                service.since,
                rate(service.commands),
                format_size(rate(service.bytes) as u64),
            ),
        ),
        (
            "latency",
            format!("mean {mean}, median {half}, 95% {p95}, 99% {p99}, 99.9% {p999}, longest {longest}"),
        ),
        ("late", format!("{} commands later than promised, {} failed", service.late, service.failed)),
        (
            "now",
            match service.waits {
                Some(reason) => {
                    format!("{} commands pending; the oldest waits for: {}", service.pending, reason.as_str())
                }
                None => format!("{} commands pending; none waits", service.pending),
            },
        ),
        ("has waited", if waited.is_empty() { "for nothing".into() } else { waited.join(", ") }),
    ]
}

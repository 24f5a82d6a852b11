//! What a disk was promised, what it got, and why it waits: as its hosts are told.

use crate::plane::Plane;
use henge_core::{Instant, WaitReason};
use henge_nvme::Service;

/// What it takes to find percentiles, as bytes that are copied meanwhile, …
const PERCENTILES: u64 = 16 << 10;
/// … and to ask a gate.
const GATE: u64 = 512;

/// Of one disk, at this moment, for which it is charged. What its requests wait for is known where its gates are: here, or at its owners here.
pub(crate) fn service(plane: &mut Plane, number: usize, now: Instant) -> Service {
    let (service, gates) = gather(plane, number, now);
    plane.round.note(number, PERCENTILES + GATE * gates);
    service
}

/// The same, and how many gates were asked.
fn gather(plane: &Plane, number: usize, now: Instant) -> (Service, u64) {
    let Some(disk) = plane.disks.get(number).and_then(Option::as_ref) else { return Default::default() };
    let meters = &disk.meters;
    let quantile = |q| meters.latency.quantile(q).unwrap_or_default();
    let (mean, longest) =
        (meters.latency.mean().unwrap_or_default(), meters.latency.max().unwrap_or_default());
    let mut service = Service {
        contract: disk.config.contract.clone(),
        since: now.since(meters.since),
        commands: meters.commands,
        reads: meters.reads,
        bytes: meters.bytes,
        bytes_read: meters.bytes_read,
        failed: meters.failed,
        late: meters.late,
        latency: [mean, quantile(0.5), quantile(0.95), quantile(0.99), quantile(0.999), longest],
        pending: u32::try_from(disk.vdisk.pending()).unwrap_or(u32::MAX),
        ..Service::default()
    };
    let mut asked = 0;
    let mut owners = plane.disks.owners(number);
    if disk.spread.is_none() {
        owners.push(number);
    }
    let owners = owners.iter().filter_map(|owner| plane.disks[*owner].as_ref());
    for owner in owners.filter(|owner| owner.spread.is_none()) {
        let flow = owner.vdisk.flow();
        for gate in owner.vdisk.layout().gates() {
            asked += 1;
            let gate = plane.pools.gates[gate.index()].pipeline.gate();
            service.waits = service.waits.or(gate.waiting(flow, now));
            let Some(meters) = gate.flow_meters(flow) else { continue };
            service.wait += meters.wait_time();
            service.service += meters.completed.service_time;
            for (sum, reason) in service.waited.iter_mut().zip(WaitReason::ALL) {
                *sum += gate.waited(flow, reason, now);
            }
        }
    }
    (service, asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;
    use henge_config::Source;

    /// A host asks for the page in 72 bytes, as often as it likes.
    #[test]
    fn a_page_of_the_service_is_charged() {
        let text = "[link]\nname = \"n1\"\nlisten = \"127.0.0.1:0\"\nsecret = \"a secret of sixteen bytes and more\"\n\
             [[pool]]\nname = \"a\"\nmemory = true\ncapacity = \"8MiB\"\n[[pool]]\nname = \"b\"\nmemory = true\ncapacity = \"8MiB\"\n\
             [[disk]]\nname = \"one\"\npool = \"a\"\ncapacity = \"1MiB\"\n\
             [[disk]]\nname = \"two\"\npools = [\"n1/a\", \"n1/b\"]\nstripe = \"64KiB\"\ncapacity = \"1MiB\"\n";
        let config =
            NodeConfig::parse(Source::new("node.toml", text.to_owned())).unwrap_or_else(|e| panic!("{e}"));
        let mut plane = Plane::open(&config, 1, false, Instant::ZERO)
            .unwrap_or_else(|e| panic!("{}", config.source.point(e)));
        for (name, gates) in [("one", 1), ("two", 2)] {
            let number = plane.disks.number(name).unwrap();
            service(&mut plane, number, Instant::ZERO);
            let charged = std::iter::from_fn(|| plane.round.next_copied()).collect::<Vec<_>>();
            assert_eq!(charged, [(number, PERCENTILES + gates * GATE)]);
        }
    }
}

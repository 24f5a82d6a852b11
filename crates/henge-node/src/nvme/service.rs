//! What a disk was promised, what it got, and why it waits: as its hosts are told.

use crate::plane::Plane;
use henge_core::{Instant, WaitReason};
use henge_nvme::Service;

/// Of one disk, at this moment. What its requests wait for is known where its gates are: here, or at its owners here.
pub(crate) fn service(plane: &Plane, number: usize, now: Instant) -> Service {
    let Some(disk) = plane.disks.get(number).and_then(Option::as_ref) else { return Service::default() };
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
    let mut owners = plane.disks.owners(number);
    if disk.spread.is_none() {
        owners.push(number);
    }
    let owners = owners.iter().filter_map(|owner| plane.disks[*owner].as_ref());
    for owner in owners.filter(|owner| owner.spread.is_none()) {
        let flow = owner.vdisk.flow();
        for gate in owner.vdisk.layout().gates() {
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
    service
}

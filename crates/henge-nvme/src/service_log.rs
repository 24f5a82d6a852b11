//! The log page of our own, C0h: what a disk was promised, what it got, and why it waits.
//!
//! `docs/nvme.md` says what each byte means. A page of another version has the same bytes where this one has them, and more
//! behind.

use crate::namespace::Service;
use crate::wire::{le16, le32, le64, put};
use henge_core::{Contract, CostUnit, Duration, Latency, Rate, WaitReason};

/// Its number among the log pages.
pub const PAGE: u8 = 0xc0;
/// Its bytes.
pub const LEN: usize = 512;
/// What it begins with.
const MAGIC: &[u8; 8] = b"HENGEQOS";
const VERSION: u16 = 1;
/// Where the numbers of 64 bits begin, and how many there are.
const NUMBERS: usize = 32;
const COUNT: usize = 18 + WaitReason::ALL.len();

/// The page.
pub(crate) fn encode(service: &Service) -> Vec<u8> {
    let mut b = vec![0; LEN];
    let contract = &service.contract;
    let of = |rate: Option<Rate>| rate.map_or((0, 0), |rate| (number_of(rate.unit), rate.per_second));
    let ((rate_unit, rate), (limit_unit, limit)) = (of(contract.rate), of(contract.limit));
    let (bound, percentile) = contract.latency.map_or((Duration::ZERO, 0), |l| (l.bound, l.percentile));
    b[..8].copy_from_slice(MAGIC);
    put(&mut b, 8, VERSION.to_le_bytes());
    b[10] = service.waits.map_or(0, |reason| reason as u8 + 1);
    (b[11], b[12]) = (rate_unit, limit_unit);
    put(&mut b, 16, service.pending.to_le_bytes());
    put(&mut b, 20, contract.weight.unwrap_or(1).to_le_bytes());
    put(&mut b, 24, percentile.to_le_bytes());
    put(&mut b, 28, contract.pending.unwrap_or(0).to_le_bytes());
    let counts =
        [service.commands, service.reads, service.bytes, service.bytes_read, service.failed, service.late];
    let times = [service.wait, service.service].into_iter().chain(service.latency).chain(service.waited);
    let first = [rate, limit, bound.as_nanos(), service.since.as_nanos()].into_iter().chain(counts);
    let numbers = first.chain(times.map(Duration::as_nanos));
    for (place, number) in b[NUMBERS..].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    b
}

/// What a page says.
pub fn decode(page: &[u8]) -> Result<Service, &'static str> {
    if page.get(..8) != Some(MAGIC) {
        return Err("the page does not begin with HENGEQOS: this is no disk of Henge's");
    }
    if page.len() < NUMBERS + COUNT * 8 {
        return Err("the page is cut short: 512 bytes are needed");
    }
    if le16(page, 8) == 0 {
        return Err("the page has no version");
    }
    let n = |i: usize| le64(page, NUMBERS + i * 8);
    let time = |i: usize| Duration::from_nanos(n(i));
    let rate = |unit: u8, per_second: u64| unit_of(unit).map(|unit| Rate { per_second, unit });
    let percentile = le32(page, 24);
    let reason = |number: u8| WaitReason::ALL.get(usize::from(number).wrapping_sub(1)).copied();
    Ok(Service {
        contract: Contract {
            weight: Some(le32(page, 20)),
            rate: rate(page[11], n(0)),
            limit: rate(page[12], n(1)),
            latency: (percentile > 0).then(|| Latency { bound: time(2), percentile }),
            pending: Some(le32(page, 28)).filter(|n| *n > 0),
            ..Contract::best_effort()
        },
        since: time(3),
        commands: n(4),
        reads: n(5),
        bytes: n(6),
        bytes_read: n(7),
        failed: n(8),
        late: n(9),
        wait: time(10),
        service: time(11),
        latency: std::array::from_fn(|i| time(12 + i)),
        pending: le32(page, 16),
        waits: reason(page[10]),
        waited: std::array::from_fn(|i| time(18 + i)),
    })
}

fn number_of(unit: CostUnit) -> u8 {
    match unit {
        CostUnit::Requests => 1,
        CostUnit::Bytes => 2,
        CostUnit::DiskTime => 3,
    }
}

fn unit_of(number: u8) -> Option<CostUnit> {
    [CostUnit::Requests, CostUnit::Bytes, CostUnit::DiskTime]
        .into_iter()
        .find(|unit| number_of(*unit) == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every field has another value, and each is where `docs/nvme.md` says.
    #[test]
    fn what_is_written_is_read_and_stands_where_it_should() {
        let time = |n: u64| Duration::from_nanos(n);
        let service = Service {
            contract: Contract {
                weight: Some(7),
                rate: Some(Rate::bytes(11)),
                limit: Some(Rate::requests_micro(13)),
                latency: Some(Latency { bound: time(17), percentile: 950_000 }),
                pending: Some(19),
                ..Contract::best_effort()
            },
            since: time(23),
            commands: 29,
            reads: 31,
            bytes: 37,
            bytes_read: 41,
            failed: 43,
            late: 47,
            latency: [53, 59, 61, 67, 71, 73].map(time),
            wait: time(79),
            service: time(83),
            pending: 89,
            waits: Some(WaitReason::DeviceBusy),
            waited: [97, 101, 103, 107, 109, 113].map(time),
        };
        let page = encode(&service);
        assert_eq!(decode(&page), Ok(service));
        assert_eq!((page.len(), &page[..8], page[10], page[11], page[12]), (512, &MAGIC[..], 3, 2, 1));
        let at = |at: usize| le64(&page, at);
        assert_eq!(
            (le32(&page, 16), le32(&page, 20), le32(&page, 24), le32(&page, 28)),
            (89, 7, 950_000, 19)
        );
        assert_eq!([at(32), at(40), at(48), at(56), at(64)], [11, 13, 17, 23, 29]);
        assert_eq!([at(72), at(80), at(88), at(96), at(104)], [31, 37, 41, 43, 47]);
        assert_eq!([at(112), at(120), at(128), at(168)], [79, 83, 53, 73]);
        assert_eq!([at(176), at(216)], [97, 113]);
    }

    #[test]
    fn what_is_no_page_of_ours_is_refused() {
        assert!(decode(&[0; 512]).is_err());
        assert!(decode(&encode(&Service::default())[..200]).is_err());
    }
}

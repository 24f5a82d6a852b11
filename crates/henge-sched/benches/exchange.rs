//! How long a gate pauses while its scheduler is exchanged for another of the kind: `make bench-exchange`.
//!
//! Every flow has two requests waiting. Printed are the longest step and all of them together, once in steps of 256 flows, as
//! a node does it, and once in a single step.
use henge_core::{Contract, Dispatch, FlowId, Gate, Instant, Op, Params, Pending, Request};
use henge_sched::build;
use rustix::time::{ClockId, clock_gettime};

const STEP: usize = 256;

fn cpu_ms() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
}

fn gate(name: &str, flows: u32) -> Gate {
    let parts = build(name, Params::new(name)).expect("defaults are valid");
    let (mut gate, mut ids) = (Gate::new(parts), Pending::new());
    for flow in (0..flows).map(FlowId) {
        gate.set_flow(flow, &Contract::best_effort(), Instant::ZERO).expect("best effort");
        for _ in 0..2 {
            let id = ids.insert(());
            let request = Request::new(id, flow, Op::Read, 0, 4096, Instant::ZERO);
            gate.submit(request, Instant::ZERO).expect("room for two");
        }
    }
    gate
}

/// The longest of the steps and their sum, in ms.
fn exchange(name: &str, flows: u32, step: usize) -> (f64, f64) {
    let mut gate = gate(name, flows);
    let (mut longest, mut sum) = (0f64, 0f64);
    let mut timed = |work: &mut dyn FnMut() -> bool| {
        let begin = cpu_ms();
        let more = work();
        let took = cpu_ms() - begin;
        (longest, sum) = (longest.max(took), sum + took);
        more
    };
    gate.prepare(build(name, Params::new(name)).expect("defaults are valid"), step);
    while timed(&mut || !gate.prepare_step(Instant::ZERO).expect("contracts of the same kind")) {}
    gate.take_over(Instant::ZERO);
    while gate.is_exchanging() {
        let over = timed(&mut || match gate.next(Instant::ZERO) {
            Dispatch::Ready(request) => {
                gate.complete(request.id, false, Instant::ZERO);
                true
            }
            other => panic!("flows have something waiting: {other:?}"),
        });
        assert!(over);
    }
    (longest, sum)
}

fn main() {
    println!("CPU ms of an exchange; every flow has two requests waiting");
    println!("{:<10}{:>10}{:>16}{:>12}{:>22}", "", "flows", "longest step", "all steps", "in a single step");
    for name in ["fifo", "sfq", "vc", "mclock"] {
        for flows in [1_000, 10_000, 100_000] {
            let best = |step| {
                let mut rounds: [(f64, f64); 5] = std::array::from_fn(|_| exchange(name, flows, step));
                rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
                rounds[2]
            };
            let ((longest, sum), (whole, _)) = (best(STEP), best(usize::MAX));
            println!("{name:<10}{flows:>10}{longest:>16.3}{sum:>12.2}{whole:>22.2}");
        }
    }
}

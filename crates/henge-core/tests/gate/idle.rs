//! Requests without bytes: their turn is all that they want, and nobody waits for it to be over.

use super::*;

/// Storage that has finished whatever it has, once it is asked.
#[derive(Default)]
struct Quick(VecDeque<RequestId>);

impl Backend for Quick {
    type Payload = ();
    fn submit(&mut self, request: &Request, (): (), _: Instant) {
        self.0.push_back(request.id);
    }
    fn reap(&mut self, _: Instant) -> Option<Done<()>> {
        let id = self.0.pop_front()?;
        Some(Done { id, outcome: Ok(()), busy: None, payload: () })
    }
    fn wake_at(&self) -> Option<Instant> {
        None
    }
    fn capacity(&self) -> u64 {
        u64::MAX
    }
}

/// A client asks again each time that it is answered, so that there is always one more, and the loop polls a few times a round.
#[test]
fn who_asks_for_nothing_without_end_keeps_no_data_at_the_storage() {
    let mut gate = gate(4, &Contract::best_effort());
    gate.set_flow(FlowId(1), &Contract::best_effort(), ms(0)).unwrap();
    let (mut pipeline, mut ids) = (Pipeline::new(gate, Quick::default()), Pending::new());
    let nothing = |pipeline: &mut Pipeline<Quick>, ids: &mut Pending<()>| {
        pipeline.submit(Request::new(ids.insert(()), FlowId(0), Op::Read, 0, 0, ms(0)), (), ms(0)).unwrap();
    };
    (0..64).for_each(|_| nothing(&mut pipeline, &mut ids));
    for polls in 1..4 {
        let read = ids.insert(());
        pipeline.submit(Request::new(read, FlowId(1), Op::Read, 0, 1, ms(0)), (), ms(0)).unwrap();
        let mut answered = 0;
        let over = 'rounds: loop {
            for _ in 0..polls {
                match pipeline.poll(ms(0)) {
                    Some(finished) if finished.served.request.id == read => break 'rounds true,
                    Some(finished) => {
                        ids.remove(finished.served.request.id);
                        answered += 1;
                        nothing(&mut pipeline, &mut ids);
                    }
                    None => break,
                }
            }
            if answered > 512 {
                break false;
            }
        };
        // This scheduler lets those before it go first.
        assert!(over && answered <= 64 + 8, "{polls} polls a round: {answered} were answered before it");
    }
}

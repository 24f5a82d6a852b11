//! Who has the disks that several gateways can serve: a thread for each shared pool, which may wait for the storage as the loop must not.
//!
//! In each round of half a second it writes this node's word into the pool and reads the others' ([`henge_link::lives`]). It asks the loop
//! which disks nobody has, and tells it which of them to claim. It tells it what part this node has of a depth that all gateways share
//! ([`henge_link::depths`]). Where this node is drained, it tells who else takes disks. A pool that answers
//! that this node was shut out ends that, and the loop lets go of the disks.

use crate::message::{Message, Seats};
use crate::shards::Loop;
use crate::spread::seat::Vacant;
use henge_backend::{Claim, Register};
use henge_core::{Duration, Instant};
use henge_link::depths;
use henge_link::lives::{Life, Lives, ROUND, Word};
use rustix::io::Errno;
use std::io;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration as Real;

/// How long the end waits for a last word, so that others need not wait for this node.
const FAREWELL: Real = Real::from_secs(1);

/// In one of so many rounds a node looks at its own word.
const LOOKS: u64 = 16;

/// Threads that end with the loop; this waits a little for them.
pub(crate) struct SeatThreads(Receiver<()>);

impl Drop for SeatThreads {
    fn drop(&mut self) {
        // Hung up on once the last of them has ended; storage that hangs holds nobody up.
        let _ = self.0.recv_timeout(FAREWELL);
    }
}

/// Begins a thread for each shared pool of a loop.
pub(crate) fn begin(shard: &Loop) -> io::Result<Option<SeatThreads>> {
    let Some(shared) = shard.ask(Message::Shared) else { return Ok(None) };
    if shared.is_empty() {
        return Ok(None);
    }
    let (alive, ended) = mpsc::channel();
    for (gate, register) in shared {
        let (shard, alive) = (shard.clone(), alive.clone());
        let watch = move || {
            watch(gate, &*register, &shard);
            drop(alive);
        };
        std::thread::Builder::new().name("henge-seats".into()).spawn(watch)?;
    }
    Ok(Some(SeatThreads(ended)))
}

/// Rounds, until the loop has ended or the pool shuts this node out.
fn watch(gate: usize, register: &dyn Register, shard: &Loop) {
    let (mut lives, started, mut count) = (Lives::new(), std::time::Instant::now(), 0);
    let clock = || Instant::ZERO + Duration::from_nanos(started.elapsed().as_nanos() as u64);
    let mut last: Option<(String, u64)> = None;
    loop {
        let began = clock();
        let Some(seats) = shard.ask(|reply| Message::Seats { gate, reply }) else { break };
        let Seats { me, epoch, others, vacant, serves, drained, demand } = seats;
        count += 1;
        match round(register, &mut lives, (&me, Word { epoch, count, serves, demand }), &others, &clock) {
            Ok(()) => {
                if let Some(demand) = demand {
                    let part = depths::part(&demand, lives.demands());
                    shard.send(Message::DepthPart { gate, part });
                }
                let claim = claim_of(&lives, &others);
                for Vacant { name, gateways, time } in vacant {
                    let mine = serves && lives.is_mine(&me, &gateways, time);
                    if mine || drained && lives.is_left_to(&me, &gateways, time) {
                        shard.send(Message::Claimed(name, claim.clone()));
                    }
                }
                if drained {
                    // Our word that says so is written.
                    let to = lives.serving().map(str::to_owned).collect();
                    shard.send(Message::LetGo { gate, to });
                }
            }
            Err(e) if e.raw_os_error() == Some(Errno::SHUTDOWN.raw_os_error()) => {
                shard.send(Message::ShutOut { gate });
                return;
            }
            Err(e) => {
                tracing::debug!(gate, error = %e, "a shared pool does not answer");
                lives.interrupted();
            }
        }
        last = Some((me, epoch));
        let spent = clock().since(began);
        if spent > ROUND {
            tracing::debug!(gate, took = ?Real::from_nanos(spent.as_nanos()), "a shared pool is slow");
        }
        std::thread::sleep(Real::from_nanos(ROUND.saturating_sub(spent).as_nanos()));
    }
    if let Some((me, epoch)) = last {
        // Its images are closed: whoever is next need not wait until this node is missed.
        let _ = register.write(&me, &Word { epoch, count: count + 1, serves: false, demand: None }.text());
    }
}

/// One round: our word, then the others'.
fn round(
    register: &dyn Register,
    lives: &mut Lives,
    (me, word): (&str, Word),
    others: &[String],
    clock: &impl Fn() -> Instant,
) -> io::Result<()> {
    let began = clock();
    if word.count.is_multiple_of(LOOKS) && has_namesake(register, me, word)? {
        tracing::warn!(
            storage = register.store(),
            "another node writes as \"{me}\" there: gateways of one Ceph pool need names of their own, also those of different clusters"
        );
    }
    register.write(me, &word.text())?;
    let mut heard = Vec::new();
    for node in others {
        let word = register.read(node)?;
        heard.push((node.as_str(), word.as_deref().and_then(Word::parse)));
    }
    lives.round(heard, began, clock());
    Ok(())
}

/// Whether somebody else writes by this node's name. Others would take the two for one, and break its locks as those of a former start.
fn has_namesake(register: &dyn Register, me: &str, word: Word) -> io::Result<bool> {
    let found = register.read(me)?.as_deref().and_then(Word::parse);
    Ok(found.is_some_and(|found| found.epoch != word.epoch))
}

/// What is known of the others, for the storage to judge whose locks may be broken.
fn claim_of(lives: &Lives, others: &[String]) -> Claim {
    let mut claim = Claim::default();
    for node in others {
        match lives.of(node) {
            Life::Dead => claim.dead.push(node.clone()),
            Life::Alive(word) => claim.alive.push((node.clone(), word.epoch)),
            Life::Unknown => {}
        }
    }
    claim
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Words(Mutex<BTreeMap<String, String>>);

    impl Register for Words {
        fn store(&self) -> &str {
            "words"
        }
        fn write(&self, node: &str, word: &str) -> io::Result<()> {
            self.0.lock().unwrap().insert(node.into(), word.into());
            Ok(())
        }
        fn read(&self, node: &str) -> io::Result<Option<String>> {
            Ok(self.0.lock().unwrap().get(node).cloned())
        }
    }

    #[test]
    fn a_node_notices_who_writes_by_its_name() {
        let (words, mut lives) = (Words::default(), Lives::new());
        let word = |epoch, count| Word { epoch, count, serves: true, demand: None };
        let mut write = |epoch, count| {
            round(&words, &mut lives, ("n1", word(epoch, count)), &[], &|| Instant::ZERO).unwrap();
            has_namesake(&words, "n1", word(7, count)).unwrap()
        };
        assert!(!write(7, 1));
        assert!(write(8, 40));
        assert!(!write(7, 2));
    }
}

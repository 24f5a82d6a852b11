//! Places for connections: so many in all, of one address no more than a part of them.
//!
//! Where all are taken and somebody comes, the address that has the most, the newcomer's among them, loses the connection that came first of
//! those whose client is waited for. So whoever comes from a few addresses, and opens as many connections as there are places, keeps nobody
//! else out. A connection whose answer is being made is not sent away.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// All places.
pub struct Places {
    most: usize,
    each: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    count: usize,
    next: u64,
    /// By address, in the order in which they came.
    by: BTreeMap<IpAddr, BTreeMap<u64, Arc<Held>>>,
}

/// What a place's owner hears.
#[derive(Default)]
struct Held {
    answering: AtomicBool,
    sent_away: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// The address has as many as one may have.
    Address,
    /// All are taken by connections whose answers are being made.
    All,
}

impl Places {
    /// So many, and so many of each address; of IPv6, of each network of 64 bits, which one machine may have for itself.
    pub fn new(most: usize, each: usize) -> Arc<Places> {
        Arc::new(Places { most, each, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.taken().count
    }

    /// One more from this address. Whoever makes way for it hears that.
    pub fn enter(self: &Arc<Self>, address: SocketAddr) -> Result<Place, Full> {
        let address = match address.ip().to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
            v4 => v4,
        };
        let mut taken = self.taken();
        if taken.by.get(&address).map_or(0, BTreeMap::len) >= self.each {
            return Err(Full::Address);
        }
        if taken.count >= self.most && !taken.make_way(address) {
            return Err(Full::All);
        }
        let (number, held) = (taken.next, Arc::new(Held::default()));
        taken.next += 1;
        taken.count += 1;
        taken.by.entry(address).or_default().insert(number, Arc::clone(&held));
        Ok(Place { places: Arc::clone(self), address, number, held })
    }
}

impl Taken {
    /// Sends one away for a newcomer from this address. False where nobody's client is waited for.
    fn make_way(&mut self, newcomer: IpAddr) -> bool {
        let waited_for = |held: &&Arc<Held>| !held.answering.load(Ordering::Relaxed);
        let candidates = self.by.iter().filter_map(|(address, each)| {
            let (number, _) = each.iter().find(|(_, held)| waited_for(held))?;
            Some((each.len() + usize::from(*address == newcomer), std::cmp::Reverse(*number), *address))
        });
        let Some((_, std::cmp::Reverse(number), address)) = candidates.max() else { return false };
        if let Some(held) = self.remove(address, number) {
            held.sent_away.store(true, Ordering::Release);
            if let Some(waker) = held.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
                waker.wake();
            }
        }
        true
    }

    fn remove(&mut self, address: IpAddr, number: u64) -> Option<Arc<Held>> {
        let each = self.by.get_mut(&address)?;
        let held = each.remove(&number)?;
        if each.is_empty() {
            self.by.remove(&address);
        }
        self.count -= 1;
        Some(held)
    }
}

/// One of them, until this is dropped, or its owner is sent away.
pub struct Place {
    places: Arc<Places>,
    address: IpAddr,
    number: u64,
    held: Arc<Held>,
}

impl Place {
    /// Until its owner is to go.
    pub fn poll_sent_away(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waker = self.held.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if self.held.sent_away.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The same.
    pub async fn sent_away(&self) {
        poll_fn(|cx| self.poll_sent_away(cx)).await;
    }

    pub(crate) fn answering(&self) -> Answering {
        Answering(Arc::clone(&self.held))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().remove(self.address, self.number);
    }
}

/// Whether an answer is being made: then it is not the client who is silent.
#[derive(Clone)]
pub(crate) struct Answering(Arc<Held>);

impl Answering {
    pub(crate) fn is(&self) -> bool {
        self.0.answering.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, answering: bool) {
        self.0.answering.store(answering, Ordering::Relaxed);
    }

    /// What `answer` comes to.
    pub(crate) async fn during<T>(&self, answer: impl Future<Output = T>) -> T {
        self.set(true);
        let answer = answer.await;
        self.set(false);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), 9)
    }

    fn gone(place: &Place) -> bool {
        place.poll_sent_away(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_has_the_most_makes_way_and_nobody_else() {
        let places = Places::new(6, 4);
        let enter = |address| places.enter(from(address));
        let many: Vec<_> = (0..4).map(|_| enter("192.0.2.1").unwrap()).collect();
        let few: Vec<_> = (0..2).map(|_| enter("192.0.2.2").unwrap()).collect();
        assert_eq!(enter("192.0.2.1").err(), Some(Full::Address));
        // Its first answer is being made: the second makes way.
        many[0].answering().set(true);
        let other = enter("192.0.2.3").unwrap();
        assert_eq!([0, 1, 2, 3].map(|i| gone(&many[i])), [false, true, false, false]);
        // Who comes again loses one of its own.
        let again = enter("192.0.2.1").unwrap();
        assert!(gone(&many[2]) && !gone(&other) && !few.iter().any(gone));
        drop(many);
        drop((again, other, few));
        assert!(places.taken().by.is_empty() && places.count() == 0);
    }

    #[test]
    fn an_answer_that_is_being_made_makes_no_way() {
        let places = Places::new(1, 1);
        let place = places.enter(from("192.0.2.1")).unwrap();
        place.answering().set(true);
        assert_eq!(places.enter(from("192.0.2.2")).err(), Some(Full::All));
        place.answering().set(false);
        assert!(places.enter(from("192.0.2.2")).is_ok() && gone(&place));
    }

    #[test]
    fn a_network_of_64_bits_is_one_address() {
        let places = Places::new(4, 1);
        let _one = places.enter(from("2001:db8::1")).unwrap();
        assert_eq!(places.enter(from("2001:db8::2")).err(), Some(Full::Address));
        assert!(places.enter(from("2001:db8:0:1::1")).is_ok());
    }
}

//! One request, many members: carries out what an array planned.
//!
//! A plan is a list of parts that start at once, and a second list that starts when all of the first are done
//! (RAID-5 reads before it writes). The request is over when its last part is. Its device time is the sum, over
//! the two lists, of the longest part's: what the array as a whole was busy with it. The first fault of any part
//! is the request's, and the second list is then not started.

use crate::completions::Completions;
use henge_core::{Duration, Fault, Instant, Model, Op, Pending, Request, RequestId};

/// What one member has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub member: usize,
    pub op: Op,
    pub offset: u64,
    pub len: u64,
}

struct Job {
    request: Request,
    left: u32,
    longest: Duration,
    busy: Duration,
    outcome: Result<(), Fault>,
    then: Vec<Part>,
}

/// The members and what is under way on them.
pub(crate) struct Fan {
    members: Vec<Model>,
    jobs: Pending<Job>,
    /// The part's job and member.
    parts: Pending<(RequestId, usize)>,
    /// Parts under way on each member.
    load: Vec<u32>,
    done: Completions,
}

impl Fan {
    pub fn new(members: Vec<Model>) -> Self {
        assert!(!members.is_empty(), "an array has members");
        let load = vec![0; members.len()];
        Fan { members, jobs: Pending::new(), parts: Pending::new(), load, done: Completions::default() }
    }
    pub fn len(&self) -> usize {
        self.members.len()
    }
    /// Parts under way on a member.
    pub fn load(&self, member: usize) -> u32 {
        self.load[member]
    }
    pub fn smallest(&self) -> u64 {
        self.members.iter().map(|m| m.capacity()).min().unwrap_or(0)
    }
    /// What is cut for one member.
    pub fn quantum(&self) -> u64 {
        self.members.iter().map(|m| m.quantum()).min().unwrap_or(u64::MAX)
    }
    pub fn into_members(self) -> Vec<Model> {
        self.members
    }

    /// Ends a request without doing anything.
    pub fn refuse(&mut self, request: &Request, fault: Fault, now: Instant) {
        self.done.push(now, request.id, Err(fault), Duration::ZERO);
    }

    /// Starts `first`; `then` follows when all of it is done.
    pub fn start(
        &mut self,
        request: &Request,
        first: impl Iterator<Item = Part>,
        then: Vec<Part>,
        now: Instant,
    ) {
        let zero = Duration::ZERO;
        let job = Job { request: *request, left: 0, longest: zero, busy: zero, outcome: Ok(()), then };
        let id = self.jobs.insert(job);
        let mut started = 0;
        for part in first {
            self.submit(id, request, part, now);
            started += 1;
        }
        self.jobs.get_mut(id).expect("the job was just inserted").left = started;
        if started == 0 {
            self.stage_over(id, now);
        }
    }

    fn submit(&mut self, job: RequestId, request: &Request, part: Part, now: Instant) {
        let Part { member, op, offset, len } = part;
        let id = self.parts.insert((job, member));
        self.load[member] += 1;
        let request = Request { id, op, offset, len, ..*request };
        self.members[member].submit(&request, (), now);
    }

    /// All parts of a list are done: goes on to the next list, or ends the request.
    fn stage_over(&mut self, id: RequestId, now: Instant) {
        let job = self.jobs.get_mut(id).expect("a job lives until its last part is done");
        job.busy += job.longest;
        job.longest = Duration::ZERO;
        if job.outcome.is_err() || job.then.is_empty() {
            let job = self.jobs.remove(id).expect("the job was just found");
            return self.done.push(now, job.request.id, job.outcome, job.busy);
        }
        let (request, then) = (job.request, std::mem::take(&mut job.then));
        job.left = then.len() as u32;
        for part in then {
            self.submit(id, &request, part, now);
        }
    }

    /// Collects from the members what is done by `now`.
    pub fn reap(&mut self, now: Instant) -> Option<henge_core::Done<()>> {
        // A second list starts when its owner comes to reap, which is at `wake_at`: members in turn, earliest first.
        while let Some((member, at)) = self.next_member().filter(|(_, at)| *at <= now) {
            let mut any = false;
            while let Some(done) = self.members[member].reap(at) {
                any = true;
                let (job_id, member) = self.parts.remove(done.id).expect("a member finishes each part once");
                self.load[member] -= 1;
                let job = self.jobs.get_mut(job_id).expect("a job lives until its last part is done");
                job.longest = job.longest.max(done.busy.unwrap_or(Duration::ZERO));
                job.outcome = job.outcome.and(done.outcome);
                job.left -= 1;
                if job.left == 0 {
                    self.stage_over(job_id, at);
                }
            }
            let moved = self.members[member].wake_at().is_none_or(|next| next > at);
            assert!(any || moved, "a model that asks to be woken makes progress when it is");
        }
        self.done.pop(now)
    }

    fn next_member(&self) -> Option<(usize, Instant)> {
        let due = self.members.iter().enumerate().filter_map(|(i, m)| Some((i, m.wake_at()?)));
        due.min_by_key(|(_, at)| *at)
    }

    pub fn wake_at(&self) -> Option<Instant> {
        let member = self.next_member().map(|(_, at)| at);
        match (self.done.next_at(), member) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

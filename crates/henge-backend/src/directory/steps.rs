//! A part's file is made, named, lengthened and removed by a thread that may block, beside those that are served. Each is one step: what the
//! file system does with a file it does whole or not at all, after what [`maker`](super::maker) says.

use super::{Directory, manage};
use crate::open;
use crate::space::check_name;
use crate::store::{Chore, Step, is_of, put_aside};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is under way with the part of that name.
pub(super) enum Half {
    /// The part, and whether it was made: it may have been there.
    Making(String, Arc<AtomicBool>),
    /// What a former disk left gets its name again.
    Adopting(String),
    /// Its file gets its name.
    Claiming(String),
    Lengthening(String, u64),
    Removing(String),
    /// What nobody has opened of the disk of that name gets other names: those of its parts that were kept.
    Keeping(String, Arc<Mutex<Vec<String>>>),
}

impl Directory {
    pub(super) fn begin_steps(&mut self, name: &str, len: u64) -> io::Result<Step> {
        check_name(name)?;
        let (maker, of) = (self.maker(), name.to_owned());
        let Some(i) = self.place(name) else {
            let i = self.space.allocate(name, len)?;
            self.parts.insert(i, None);
            let is_new = Arc::new(AtomicBool::new(false));
            self.half = Some(Half::Making(of.clone(), Arc::clone(&is_new)));
            return Ok(Step::Run(Box::new(move || {
                let (file, made) = maker.find_or_make(&of, len)?;
                is_new.store(made, Ordering::Relaxed);
                Ok(file)
            })));
        };
        let part = &self.space.extents()[i];
        let (has, base) = (part.len, part.base);
        if has < len && self.unclaimed.contains(name) {
            return Err(io::Error::other(format!("\"{name}\" was just made with {has} bytes, for another")));
        }
        let Some(file) = self.parts[i].as_ref().filter(|_| has < len) else { return Ok(Step::There(base)) };
        self.space.could_grow(name, len)?;
        let (fd, file) = (file.as_raw_fd(), Arc::clone(file));
        self.files.elsewhere(fd);
        self.half = Some(Half::Lengthening(of.clone(), len));
        Ok(Step::Run(Box::new(move || maker.lengthen(&file, &of, len).map(|()| None))))
    }

    /// What a former disk left is a disk's again, unless there is a part of that name.
    pub(super) fn begin_adopting(&mut self, name: &str) -> io::Result<Step> {
        check_name(name)?;
        if self.place(name).is_some() && !self.unclaimed.contains(name) {
            return Ok(Step::There(0));
        }
        let (path, of) = (self.path.clone(), name.to_owned());
        self.half = Some(Half::Adopting(of.clone()));
        Ok(Step::Run(Box::new(move || match std::fs::symlink_metadata(path.join(&of)) {
            Ok(_) => Ok(None),
            Err(_) => manage::adopt_named(&path, &of).map(|()| None),
        })))
    }

    /// The part is a disk's from now on.
    pub(super) fn begin_naming(&mut self, name: &str) -> Step {
        if !self.unclaimed.contains(name) {
            return Step::There(0);
        }
        let (maker, of) = (self.maker(), name.to_owned());
        self.half = Some(Half::Claiming(of.clone()));
        Step::Run(Box::new(move || maker.claim(&of).map(|()| None)))
    }

    pub(super) fn begin_removing(&mut self, name: &str) -> io::Result<Step> {
        check_name(name)?;
        // Whoever closes the last descriptor of a file without a name waits until its space is given back.
        let file = self.place(name).and_then(|i| self.parts[i].take());
        if let Some(file) = &file {
            self.files.forget(file.as_raw_fd());
        }
        let (directory, path) = (self.path.clone(), self.path.join(name));
        let beside = manage::beside(&self.path, name);
        self.half = Some(Half::Removing(name.to_owned()));
        let chore: Chore = Box::new(move || {
            manage::unlink(&path)?;
            manage::unlink(&beside)?;
            drop(file);
            open::sync_directory(&directory).map(|()| None)
        });
        Ok(Step::Run(chore))
    }

    /// What nobody has opened of a disk is nobody's by its name.
    pub(super) fn begin_keeping_of(&mut self, disk: &str) -> Step {
        let opened: Vec<String> = self.space.extents().iter().map(|part| part.name.clone()).collect();
        let (path, of) = (self.path.clone(), disk.to_owned());
        let names = Arc::new(Mutex::new(Vec::new()));
        self.half = Some(Half::Keeping(of.clone(), Arc::clone(&names)));
        Step::Run(Box::new(move || {
            let kept =
                manage::keep_unclaimed(&path, &|part| !is_of(part, &of) || opened.iter().any(|o| o == part))?;
            *names.lock().unwrap_or_else(PoisonError::into_inner) = kept;
            Ok(None)
        }))
    }

    pub(super) fn next_step(&mut self, name: &str, outcome: io::Result<Option<File>>) -> io::Result<Step> {
        let there = |own: &Self| Step::There(own.space.find(name).map_or(0, |part| part.base));
        match self.half.take() {
            Some(Half::Making(of, is_new)) if of == name => match outcome {
                Ok(file) => {
                    if is_new.load(Ordering::Relaxed) {
                        self.unclaimed.insert(of);
                    }
                    let i = self.place(name).expect("its place was kept");
                    self.parts[i] = file.map(Arc::new);
                    Ok(there(self))
                }
                Err(e) => {
                    self.leave(name);
                    Err(e)
                }
            },
            Some(Half::Keeping(of, names)) if of == name => {
                let kept = std::mem::take(&mut *names.lock().unwrap_or_else(PoisonError::into_inner));
                self.notices.extend(kept.iter().map(|part| put_aside(part)));
                outcome.map(|_| Step::There(0))
            }
            Some(Half::Adopting(of)) if of == name => outcome.map(|_| Step::There(0)),
            // After an error it may have its name or not, is still unclaimed, and can be removed.
            Some(Half::Claiming(of)) if of == name => {
                outcome?;
                self.unclaimed.remove(name);
                Ok(there(self))
            }
            Some(Half::Lengthening(of, len)) if of == name => {
                let fd = self.place(name).and_then(|i| self.parts[i].as_ref()).map(AsRawFd::as_raw_fd);
                match fd {
                    Some(fd) => self.files.heed_elsewhere(fd, outcome)?,
                    None => outcome?,
                };
                self.space.grow(name, len)?;
                Ok(there(self))
            }
            Some(Half::Removing(of)) if of == name => {
                self.unclaimed.remove(name);
                if let Err(e) = outcome {
                    // What is left is no part, whoever comes by its name; its room is taken until it is removed.
                    self.space.rename(name, remains(name));
                    return Err(e);
                }
                self.leave(name);
                self.leave(&remains(name));
                Ok(Step::There(0))
            }
            _ => Err(io::Error::other(format!("nothing is under way with \"{name}\""))),
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.space.extents().iter().position(|part| part.name == name)
    }

    /// Its space is nobody's, all of it.
    fn leave(&mut self, name: &str) {
        while let Some(i) = self.space.free(name) {
            self.parts.remove(i);
        }
    }
}

/// What the place of a part goes by that could not be removed: no part has such a name.
pub(super) fn remains(name: &str) -> String {
    format!(".{name}.remains")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Options, Store};
    use henge_core::{Backend, FlowId, Instant, Op, Request, RequestId};
    use std::os::unix::fs::FileExt;

    /// Carries out the one step there is, or lets it fail.
    fn carry_out(pool: &mut Directory, name: &str, begun: io::Result<Step>, fails: bool) -> io::Result<u64> {
        match begun? {
            Step::There(base) => Ok(base),
            Step::Zero { .. } => unreachable!("a file reads as zeroes"),
            Step::Run(_) if fails => pool.go_on(name, Err(io::Error::other("it fails"))).map(|_| 0),
            Step::Run(chore) => {
                let outcome = std::thread::spawn(chore).join().unwrap();
                match pool.go_on(name, outcome)? {
                    Step::There(base) => Ok(base),
                    _ => unreachable!("one step"),
                }
            }
        }
    }

    #[test]
    fn files_are_made_lengthened_and_removed_in_a_step_each_that_may_fail() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { direct: false, apart: true, ..Options::default() };
        let mut pool = Directory::open(dir.path(), "p", 16 << 20, options).unwrap();
        let file = dir.path().join("a");
        for fails in [true, false] {
            let begun = pool.begin_part("a", 1 << 20);
            assert_eq!(carry_out(&mut pool, "a", begun, fails).is_err(), fails);
            assert_eq!((pool.has_part("a"), pool.parts.len()), (false, usize::from(!fails)));
        }
        for fails in [true, false] {
            assert!(!file.exists(), "it is nobody's yet");
            let begun = pool.begin_claim("a");
            assert_eq!(carry_out(&mut pool, "a", begun, fails).is_err(), fails);
            assert_eq!((pool.has_part("a"), file.exists()), (!fails, !fails));
        }
        pool.parts[0].as_ref().unwrap().write_all_at(&[7; 100], 0).unwrap();
        let base = pool.open_part("a", 1 << 20).unwrap();
        for (fails, len) in [(true, 1 << 20), (false, 2 << 20)] {
            let begun = pool.begin_part("a", 2 << 20);
            assert_eq!(carry_out(&mut pool, "a", begun, fails).is_err(), fails);
            assert_eq!(pool.space.find("a").unwrap().len, len);
        }
        assert_eq!((file.metadata().unwrap().len(), std::fs::read(&file).unwrap()[99]), (2 << 20, 7));
        assert_eq!(pool.open_part("a", 2 << 20).unwrap(), base, "what was made is found");
        for fails in [true, false] {
            let begun = pool.begin_removal("a");
            assert_eq!(carry_out(&mut pool, "a", begun, fails).is_err(), fails);
            assert_eq!((file.exists(), pool.parts.len()), (fails, usize::from(fails)));
        }
        assert!(pool.go_on("a", Ok(None)).is_err());
        let begun = pool.begin_part("a", 1 << 20);
        carry_out(&mut pool, "a", begun, false).unwrap();
        pool.open_part("a", 1 << 20).unwrap();
        assert!(std::fs::read(&file).unwrap().iter().all(|byte| *byte == 0), "another file");
    }

    /// A removal that failed has closed the file. Whoever comes by the name gets a file of his own, and no place without one.
    #[test]
    fn a_place_that_could_not_be_given_back_is_nobodys() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { direct: false, apart: true, ..Options::default() };
        let mut pool = Directory::open(dir.path(), "p", 3 << 20, options).unwrap();
        let begun = pool.begin_part("a", 1 << 20);
        let former = carry_out(&mut pool, "a", begun, false).unwrap();
        let begun = pool.begin_removal("a");
        assert!(carry_out(&mut pool, "a", begun, true).is_err());
        assert!(!pool.has_part("a") && !pool.is_new("a"));
        let begun = pool.begin_part("a", 3 << 20);
        assert!(carry_out(&mut pool, "a", begun, false).is_err(), "its room is counted");
        let begun = pool.begin_part("a", 1 << 20);
        let base = carry_out(&mut pool, "a", begun, false).unwrap();
        assert_ne!(base, former);
        let i = pool.place("a").unwrap();
        assert!(pool.parts[i].is_some() && pool.is_new("a"), "it has a file");
        let begun = pool.begin_removal("a");
        carry_out(&mut pool, "a", begun, false).unwrap();
        assert!(pool.space.extents().is_empty() && pool.parts.is_empty(), "now all of it is gone");
    }

    /// As on a device: a part that was made and that nobody has claimed goes when the node begins again, also where the file system
    /// does not know whether anything was written.
    #[test]
    fn what_nobody_has_claimed_goes_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { direct: false, apart: true, ..Options::default() };
        let mut pool = Directory::open(dir.path(), "p", 16 << 20, options).unwrap();
        for name in ["a.part0", "b.part0", "c.part0"] {
            let begun = pool.begin_part(name, 1 << 20);
            let base = carry_out(&mut pool, name, begun, false).unwrap();
            let i = pool.place(name).unwrap();
            pool.parts[i].as_ref().unwrap().write_all_at(&[0; 4096], 0).unwrap();
            assert!(
                matches!(pool.begin_part(name, 1 << 20), Ok(Step::There(at)) if at == base),
                "it is found"
            );
            assert!(pool.begin_part(name, 2 << 20).is_err(), "whoever wants another one waits");
        }
        let begun = pool.begin_claim("a.part0");
        carry_out(&mut pool, "a.part0", begun, false).unwrap();
        let begun = pool.begin_removal("c.part0");
        carry_out(&mut pool, "c.part0", begun, false).unwrap();
        drop(pool);
        let mut pool = Directory::open(dir.path(), "p", 16 << 20, options).unwrap();
        assert_eq!(
            pool.settle(&|_| false).unwrap(),
            ["a.part0"],
            "no disk has it, and what is written there is kept"
        );
        assert!(manage::kept(dir.path()).unwrap().iter().all(|kept| kept.name == "a.part0"));
        pool.open_part("b.part0", 1 << 20).unwrap();
    }

    /// Looking for it, its new name and its sync are another thread's.
    #[test]
    fn what_was_kept_is_adopted_in_a_step_that_may_fail() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { direct: false, ..Options::default() };
        let mut pool = Directory::open(dir.path(), "p", 16 << 20, options).unwrap();
        std::fs::write(dir.path().join("a.part0"), [7; 4096]).unwrap();
        assert_eq!(pool.settle(&|_| false).unwrap(), ["a.part0"]);
        for fails in [true, false] {
            assert!(!pool.has_part("a.part0"));
            let begun = pool.begin_adoption("a.part0");
            assert!(matches!(begun, Ok(Step::Run(_))));
            assert_eq!(carry_out(&mut pool, "a.part0", begun, fails).is_err(), fails);
        }
        // Whether a name is there that nobody has opened, the file system is asked by the step. Then what is kept stays so.
        let kept = dir.path().join(format!(".a.part0.kept.{}", uuid::Uuid::new_v4()));
        std::fs::write(&kept, [9; 4096]).unwrap();
        let begun = pool.begin_adoption("a.part0");
        assert!(matches!(begun, Ok(Step::Run(_))));
        carry_out(&mut pool, "a.part0", begun, false).unwrap();
        assert!(kept.exists());
        pool.open_part("a.part0", 4096).unwrap();
        assert!(matches!(pool.begin_adoption("a.part0"), Ok(Step::There(_))), "it is open");
        assert_eq!(std::fs::read(dir.path().join("a.part0")).unwrap(), [7; 4096]);
    }

    /// What nobody opened of one disk is put aside, and said; what others have, or could not open, stays.
    #[test]
    fn what_nobody_opened_is_kept_in_a_step_that_may_fail() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { direct: false, ..Options::default() };
        let mut pool = Directory::open(dir.path(), "p", 16 << 20, options).unwrap();
        for name in ["a.part0", "a.part1", "a.part2", "b.part0"] {
            std::fs::write(dir.path().join(name), [7; 4096]).unwrap();
        }
        pool.open_part("a.part1", 4096).unwrap();
        let there = || ["a.part0", "a.part1", "a.part2", "b.part0"].map(|n| dir.path().join(n).exists());
        for fails in [true, false] {
            assert_eq!(there(), [true; 4]);
            let begun = pool.begin_keeping("a");
            assert!(matches!(begun, Ok(Step::Run(_))));
            assert_eq!(carry_out(&mut pool, "a", begun, fails).is_err(), fails);
        }
        assert_eq!(there(), [false, true, false, true]);
        let said: Vec<String> = std::iter::from_fn(|| pool.notice()).collect();
        assert_eq!(said, ["a.part0", "a.part2"].map(put_aside));
        assert_eq!(manage::kept(dir.path()).unwrap().len(), 2);
    }

    #[test]
    fn a_growth_whose_sync_failed_ends_flushes_and_one_without_room_does_not() {
        let eio = || io::Error::from_raw_os_error(libc::EIO);
        let no_room = || io::Error::from_raw_os_error(libc::ENOSPC);
        for (outcome, flushed) in
            [(open::synced(Err(eio())), false), (open::synced(Err(no_room())), false), (Err(no_room()), true)]
        {
            let dir = tempfile::tempdir().unwrap();
            let options = Options { direct: false, ..Options::default() };
            let mut pool = Directory::open(dir.path(), "p", 16 << 20, options).unwrap();
            let base = pool.open_part("a", 1 << 20).unwrap();
            assert!(matches!(pool.begin_part("a", 2 << 20), Ok(Step::Run(_))));
            let said = outcome.map(|()| None).map_err(|e| open::named(dir.path(), &e));
            assert!(pool.go_on("a", said).is_err());
            let flush = Request::new(RequestId::default(), FlowId(0), Op::Flush, base, 0, Instant::ZERO);
            pool.submit(&flush, Buffer::empty(), Instant::ZERO);
            let done = loop {
                if let Some(done) = pool.reap(Instant::ZERO) {
                    break done;
                }
                std::thread::yield_now();
            };
            assert_eq!(done.outcome.is_ok(), flushed);
        }
    }
}

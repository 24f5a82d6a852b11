//! The medium as a file system that a real process uses: everything passes here, by whatever system call it came.

use crate::medium::{Medium, ROOT};
use crate::plan::{Kind, Part, Plan, What};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nothing is cached: the medium changes under the kernel when the power goes.
const TTL: Duration = Duration::ZERO;
/// Room on the file system.
const ROOM: u64 = 1 << 30;

/// The medium and what is to go wrong with it.
pub struct Storage {
    pub medium: Medium,
    pub plans: Vec<Plan>,
    /// The process that uses it.
    pub process: Option<u32>,
    /// The power is off.
    pub is_cut: bool,
    /// Whether holes can be punched and ranges zeroed.
    pub allocates: bool,
    /// How long each hole hangs, while everything else is done.
    pub hangs: Duration,
    /// Operations that went wrong, as text.
    pub hits: Vec<String>,
    /// By file: whose it is.
    parts: BTreeMap<u64, Part>,
}

impl Storage {
    pub fn new(medium: Medium, allocates: bool) -> Storage {
        Storage {
            medium,
            plans: Vec::new(),
            process: None,
            is_cut: false,
            allocates,
            hangs: Duration::ZERO,
            hits: Vec::new(),
            parts: BTreeMap::new(),
        }
    }

    /// The process has ended; the power goes where it has not, and comes back; nothing is to go wrong any more.
    pub fn heal(&mut self, cut: bool) {
        if cut || self.is_cut {
            self.medium.cut();
        }
        (self.is_cut, self.process) = (false, None);
        self.plans.clear();
    }

    fn part(&self, file: u64) -> Part {
        self.parts.get(&file).copied().unwrap_or(Part::State)
    }

    fn adopt(&mut self, file: u64, folder: u64, name: &str) {
        let part = match (folder, name) {
            (ROOT, "pool") => Part::Folder,
            (ROOT, name) if name.starts_with("device") => Part::Device,
            (folder, _) => self.part(folder),
        };
        self.parts.insert(file, part);
    }

    /// What becomes of an operation: done or not, its error, and how long it takes.
    fn decide(&mut self, file: u64, kind: Kind, name: &str) -> (bool, Option<Errno>, Duration) {
        if self.is_cut {
            return (false, Some(Errno::EIO), Duration::ZERO);
        }
        let part = self.part(file);
        let Some(what) = self
            .plans
            .iter_mut()
            .fold(None, |found, plan| plan.hits(part, kind).then_some(plan.what).or(found))
        else {
            return (true, None, Duration::ZERO);
        };
        self.hits.push(format!("{what:?} at {name} of {part:?}"));
        match what {
            What::Fail(errno, _) => {
                if kind == Kind::Sync {
                    self.medium.sync(file, false);
                }
                (false, Some(Errno::from_i32(errno)), Duration::ZERO)
            }
            What::Stall(time) => (true, None, time),
            What::Kill | What::KillAfter | What::Cut => {
                self.is_cut |= what == What::Cut;
                self.kill();
                (what == What::KillAfter, (what != What::KillAfter).then_some(Errno::EIO), Duration::ZERO)
            }
        }
    }

    fn kill(&mut self) {
        let process = self.process.take().and_then(|id| rustix::process::Pid::from_raw(id as i32));
        if let Some(process) = process {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }

    fn attributes(&self, file: u64) -> Option<FileAttr> {
        let is_folder = self.medium.file(file)?.is_folder;
        let len = self.medium.len(file);
        Some(FileAttr {
            ino: INodeNo(file),
            size: len,
            blocks: len.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_folder { FileType::Directory } else { FileType::RegularFile },
            perm: if is_folder { 0o700 } else { 0o600 },
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

/// The file system's side of the kernel.
#[derive(Clone)]
pub struct Mounted(pub Arc<Mutex<Storage>>);

impl Mounted {
    pub fn lock(&self) -> MutexGuard<'_, Storage> {
        self.0.lock().expect("nobody panics with the storage in hand")
    }

    pub fn mount(&self, at: &Path) -> io::Result<BackgroundSession> {
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("henge-faults".into())];
        config.n_threads = Some(2);
        fuser::spawn_mount(self.clone(), at, &config)
    }

    /// Does an operation, or does not, as planned.
    fn perform(
        &self,
        file: u64,
        kind: Kind,
        name: &str,
        doing: impl FnOnce(&mut Storage),
    ) -> Result<(), Errno> {
        let mut storage = self.lock();
        let (done, error, time) = storage.decide(file, kind, name);
        if time > Duration::ZERO {
            drop(storage);
            std::thread::sleep(time);
            storage = self.lock();
            if storage.is_cut {
                return Err(Errno::EIO);
            }
        }
        if done {
            doing(&mut storage);
        }
        error.map_or(Ok(()), Err)
    }

    fn make(&self, parent: INodeNo, name: &OsStr, is_folder: bool) -> Result<FileAttr, Errno> {
        let name = name.to_string_lossy().into_owned();
        let mut made = Err(Errno::EIO);
        self.perform(parent.0, Kind::Shape, "create", |storage| {
            let file = storage.medium.create((parent.0, name.clone()), is_folder);
            storage.adopt(file, parent.0, &name);
            made = storage.attributes(file).ok_or(Errno::EIO);
        })?;
        made
    }

    fn take_away(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = (parent.0, name.to_string_lossy().into_owned());
        if self.lock().medium.find(&name).is_none() {
            return reply.error(Errno::ENOENT);
        }
        answer(reply, self.perform(parent.0, Kind::Shape, "unlink", |storage| storage.medium.remove(name)));
    }
}

fn answer(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

impl Filesystem for Mounted {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let storage = self.lock();
        let found = storage.medium.find(&(parent.0, name.to_string_lossy().into_owned()));
        match found.and_then(|file| storage.attributes(file)) {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.lock().attributes(ino.0) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let outcome = match size {
            Some(len) => self.perform(ino.0, Kind::Shape, "truncate", |s| s.medium.set_len(ino.0, len)),
            None => Ok(()),
        };
        match outcome.and_then(|()| self.lock().attributes(ino.0).ok_or(Errno::ENOENT)) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(e) => reply.error(e),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        match self.make(parent, name, true) {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        match self.make(parent, name, false) {
            Ok(attributes) => {
                reply.created(&TTL, &attributes, Generation(0), FileHandle(0), FopenFlags::empty())
            }
            Err(e) => reply.error(e),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.take_away(parent, name, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.take_away(parent, name, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = (parent.0, name.to_string_lossy().into_owned());
        let to = (newparent.0, newname.to_string_lossy().into_owned());
        let outcome = self.perform(parent.0, Kind::Shape, "rename", |s| s.medium.rename(from, to));
        answer(reply, outcome);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut data = Vec::new();
        let outcome = self.perform(ino.0, Kind::Read, "read", |storage| {
            data = storage.medium.read(ino.0, offset, u64::from(size));
        });
        match outcome {
            Ok(()) => reply.data(&data),
            Err(e) => reply.error(e),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut outcome =
            self.perform(ino.0, Kind::Write, "write", |storage| storage.medium.write(ino.0, offset, data));
        // With O_DSYNC the kernel asks for a sync after it, with fsync; some say it in the flags alone.
        if outcome.is_ok() && flags.0 & libc::O_DSYNC != 0 {
            outcome = self.perform(ino.0, Kind::Sync, "dsync", |storage| storage.medium.sync(ino.0, true));
        }
        match outcome {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.perform(ino.0, Kind::Sync, "fsync", |storage| storage.medium.sync(ino.0, true)));
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.perform(ino.0, Kind::Sync, "fsync of the folder", |s| s.medium.sync_names()));
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.perform(ino.0, Kind::Open, "open", |_| ()) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(e) => reply.error(e),
        }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let storage = self.lock();
        for (i, (name, file)) in storage.medium.list(ino.0).into_iter().enumerate().skip(offset as usize) {
            let is_folder = storage.medium.file(file).is_some_and(|f| f.is_folder);
            let kind = if is_folder { FileType::Directory } else { FileType::RegularFile };
            if reply.add(INodeNo(file), (i + 1) as u64, kind, &name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(ROOM / 4096, ROOM / 4096, ROOM / 4096, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if !self.lock().allocates {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let zeroes = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
        let own = self.clone();
        let does = move || {
            let outcome = own.perform(ino.0, Kind::Shape, "fallocate", |storage| {
                if mode & libc::FALLOC_FL_KEEP_SIZE == 0 && offset + length > storage.medium.len(ino.0) {
                    storage.medium.set_len(ino.0, offset + length);
                }
                if zeroes {
                    storage.medium.zero(ino.0, offset, length);
                }
            });
            answer(reply, outcome);
        };
        let hangs = self.lock().hangs;
        if zeroes && !hangs.is_zero() {
            std::thread::spawn(move || {
                std::thread::sleep(hangs);
                does();
            });
        } else {
            does();
        }
    }
}

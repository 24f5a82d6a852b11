//! What the node asks of the pool, part by part.

use super::Rbd;
use super::cluster::Origin;
use super::metadata::OfImage;
use super::parts::{Handed, Opening};
use crate::space::check_name;
use crate::store::{Chore, Step};
use crate::{Claim, ImageMetadata, Register, Store};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, PoisonError};

impl Store for Rbd {
    fn set_origin(&mut self, name: &str, origin: &Origin) -> io::Result<()> {
        self.origins.insert(name.to_owned(), origin.clone());
        Ok(())
    }
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        match self.space.find(name).map(|part| part.len) {
            Some(has) if has < len => {
                self.growing(name, len)?()?;
                self.grown(name, len)?;
            }
            Some(_) => {}
            None => {
                let plan = self.plan(name, len);
                self.may_open(&plan)?;
                match self.having(plan)()? {
                    Some(had) => self.attach(name, len, had)?,
                    // It would be made.
                    None => {
                        let i = self.space.allocate(name, len)?;
                        return Ok(self.space.extents()[i].base);
                    }
                }
            }
        }
        Ok(self.base(name))
    }
    fn could_grow(&self, name: &str, len: u64) -> io::Result<()> {
        self.space.could_grow(name, len)
    }
    fn remove_part(&mut self, name: &str) -> io::Result<()> {
        if let Some(removing) = self.removing(name) {
            removing()?;
            self.forget(name);
        }
        Ok(())
    }
    fn begin_part(&mut self, name: &str, len: u64) -> io::Result<Step> {
        match self.space.find(name).map(|part| part.len) {
            Some(has) if has < len => {
                let growing = self.growing(name, len)?;
                self.opening = Some(Opening::Growth { name: name.to_owned(), len });
                Ok(Step::Run(Box::new(move || growing().map(|()| None))))
            }
            Some(_) => Ok(Step::There(self.base(name))),
            None => {
                let plan = self.plan(name, len);
                self.may_open(&plan)?;
                let having = self.having(plan);
                let had: Handed = Arc::default();
                self.opening = Some(Opening::Part { name: name.to_owned(), len, had: Arc::clone(&had) });
                let chore: Chore = Box::new(move || {
                    *had.lock().unwrap_or_else(PoisonError::into_inner) = having()?;
                    Ok(None)
                });
                Ok(Step::Run(chore))
            }
        }
    }
    fn begin_removal(&mut self, name: &str) -> io::Result<Step> {
        let Some(removing) = self.removing(name) else { return Ok(Step::There(0)) };
        self.opening = Some(Opening::Removal { name: name.to_owned() });
        Ok(Step::Run(Box::new(move || removing().map(|()| None))))
    }
    fn begin_release(&mut self, name: &str) -> io::Result<Step> {
        let Some(releasing) = self.releasing(name) else { return Ok(Step::There(0)) };
        self.opening = Some(Opening::Removal { name: name.to_owned() });
        Ok(Step::Run(Box::new(move || releasing().map(|()| None))))
    }
    fn claim_part(&mut self, name: &str, claim: &Claim) -> io::Result<()> {
        check_name(name)?;
        self.claims.insert(name.to_owned(), claim.clone());
        Ok(())
    }
    fn register(&self) -> Option<Arc<dyn Register>> {
        self.cluster.register()
    }
    fn metadata(&self, name: &str) -> Option<Arc<dyn ImageMetadata>> {
        let i = self.space.extents().iter().position(|part| part.name == name)?;
        let disk = self.disks[self.slots[i]].as_ref()?;
        Some(Arc::new(OfImage::new(Arc::clone(&disk.image), &self.called(&disk.called))))
    }
    fn go_on(&mut self, name: &str, outcome: io::Result<Option<File>>) -> io::Result<Step> {
        let opening = self.opening.take();
        outcome?;
        let strange = || io::Error::other(format!("nothing is under way with \"{name}\""));
        match opening {
            Some(Opening::Part { name: of, len, had }) if of == name => {
                let had = had.lock().unwrap_or_else(PoisonError::into_inner).take();
                self.attach(name, len, had.ok_or_else(strange)?)?;
                Ok(Step::There(self.base(name)))
            }
            Some(Opening::Growth { name: of, len }) if of == name => {
                self.grown(name, len)?;
                Ok(Step::There(self.base(name)))
            }
            Some(Opening::Removal { name: of }) if of == name => {
                self.forget(name);
                Ok(Step::There(0))
            }
            _ => Err(strange()),
        }
    }
    fn has_part(&self, name: &str) -> bool {
        self.space.find(name).is_some()
    }
    fn is_new(&self, name: &str) -> bool {
        let i = self.space.extents().iter().position(|part| part.name == name);
        i.and_then(|i| self.disks[self.slots[i]].as_ref()).is_some_and(|disk| disk.made)
    }
    fn forget_part(&mut self, name: &str) {
        // One that is open, or whose image is still to be removed, is known by it.
        if self.space.find(name).is_none() && !self.doomed.contains(name) {
            self.forget(name);
        }
    }
    fn adopt_part(&mut self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.adopted.insert(name.to_owned());
        Ok(())
    }
    fn opens_elsewhere(&self) -> bool {
        true
    }
    fn settle(&mut self, _is_spared: &dyn Fn(&str) -> bool) -> io::Result<Vec<String>> {
        self.settled = true;
        Ok(Vec::new())
    }
    fn notice(&mut self) -> Option<String> {
        self.notices.pop_front()
    }
    fn extent(&self, offset: u64, len: u64) -> (u64, bool) {
        let found = self.space.locate(offset, len);
        let disk =
            found.and_then(|(i, part)| Some((self.disks[self.slots[i]].as_ref()?, offset - part.base)));
        disk.map_or((len, true), |(disk, at)| disk.objects.extent(at, len))
    }
    fn event_fd(&self) -> Option<RawFd> {
        Some(self.completions.bell())
    }
    fn signalled(&mut self) {
        self.signalled = true;
    }
    fn describe(&self) -> String {
        format!("{} {}, an image for each disk", self.cluster.name(), self.user)
    }
}

//! What the node asks of the pool, part by part.

use super::Rbd;
use super::metadata::OfImage;
use super::steps::{Handed, Opening, closing, growing, having, looking};
use crate::origin::Origin;
use crate::space::check_name;
use crate::store::{Chore, Step};
use crate::{Claim, ImageMetadata, Register, Store};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, PoisonError};

impl Store for Rbd {
    fn set_origin(&mut self, name: &str, origin: &Origin) -> io::Result<()> {
        self.plans.set_origin(name, origin);
        Ok(())
    }
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        match self.parts.len(name) {
            Some(has) if has < len => {
                self.parts.could_grow(name, len)?;
                growing(self.parts.image(name), self.cluster.called(name), len)()?;
                self.parts.grown(name, len)?;
            }
            Some(_) => {}
            None => {
                let plan = self.plans.plan(name, len);
                self.parts.may_open(&plan, &*self.cluster)?;
                match having(&self.cluster, plan)()? {
                    Some(had) => self.attach(name, len, had)?,
                    // It would be made.
                    None => self.parts.reserve(name, len)?,
                }
            }
        }
        Ok(self.parts.base(name))
    }
    fn could_grow(&self, name: &str, len: u64) -> io::Result<()> {
        self.parts.could_grow(name, len)
    }
    fn remove_part(&mut self, name: &str) -> io::Result<()> {
        if let Some(removing) = self.removing(name) {
            removing()?;
            self.plans.forget(name);
        }
        Ok(())
    }
    fn begin_part(&mut self, name: &str, len: u64) -> io::Result<Step> {
        match self.parts.len(name) {
            Some(has) if has < len => {
                self.parts.could_grow(name, len)?;
                let growing = growing(self.parts.image(name), self.cluster.called(name), len);
                self.opening = Some(Opening::Growth { name: name.to_owned(), len });
                Ok(Step::Run(Box::new(move || growing().map(|()| None))))
            }
            Some(_) => Ok(Step::There(self.parts.base(name))),
            None => {
                let plan = self.plans.plan(name, len);
                self.parts.may_open(&plan, &*self.cluster)?;
                let having = having(&self.cluster, plan);
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
    fn begin_look(&mut self, name: &str, len: u64) -> io::Result<Step> {
        let looking = looking(&self.cluster, self.plans.plan(name, len));
        self.opening = Some(Opening::Look { name: name.to_owned() });
        Ok(Step::Run(Box::new(move || looking().map(|()| None))))
    }
    fn begin_removal(&mut self, name: &str) -> io::Result<Step> {
        let Some(removing) = self.removing(name) else { return Ok(Step::There(0)) };
        self.opening = Some(Opening::Removal { name: name.to_owned() });
        Ok(Step::Run(Box::new(move || removing().map(|()| None))))
    }
    fn begin_release(&mut self, name: &str) -> io::Result<Step> {
        let Some(open) = self.parts.take(name) else { return Ok(Step::There(0)) };
        self.plans.forget(name);
        self.opening = Some(Opening::Removal { name: name.to_owned() });
        let closing = closing(open.image, self.cluster.called(&open.called));
        Ok(Step::Run(Box::new(move || closing().map(|()| None))))
    }
    fn claim_part(&mut self, name: &str, claim: &Claim) -> io::Result<()> {
        check_name(name)?;
        self.plans.claim(name, claim);
        Ok(())
    }
    fn register(&self) -> Option<Arc<dyn Register>> {
        self.cluster.register()
    }
    fn metadata(&self, name: &str) -> Option<Arc<dyn ImageMetadata>> {
        let open = self.parts.get(name)?;
        Some(Arc::new(OfImage::new(Arc::clone(&open.image), &self.cluster.called(&open.called))))
    }
    fn go_on(&mut self, name: &str, outcome: io::Result<Option<File>>) -> io::Result<Step> {
        let opening = self.opening.take();
        outcome?;
        let strange = || io::Error::other(format!("nothing is under way with \"{name}\""));
        match opening {
            Some(Opening::Part { name: of, len, had }) if of == name => {
                let had = had.lock().unwrap_or_else(PoisonError::into_inner).take();
                self.attach(name, len, had.ok_or_else(strange)?)?;
                Ok(Step::There(self.parts.base(name)))
            }
            Some(Opening::Growth { name: of, len }) if of == name => {
                self.parts.grown(name, len)?;
                Ok(Step::There(self.parts.base(name)))
            }
            Some(Opening::Look { name: of }) if of == name => Ok(Step::There(0)),
            Some(Opening::Removal { name: of }) if of == name => {
                self.plans.forget(name);
                Ok(Step::There(0))
            }
            _ => Err(strange()),
        }
    }
    fn has_part(&self, name: &str) -> bool {
        self.parts.len(name).is_some()
    }
    fn is_new(&self, name: &str) -> bool {
        self.parts.get(name).is_some_and(|open| open.made)
    }
    fn forget_part(&mut self, name: &str) {
        // One that is open, or whose image is still to be removed, is known by it.
        if self.parts.len(name).is_none() && !self.plans.is_doomed(name) {
            self.plans.forget(name);
        }
    }
    fn adopt_part(&mut self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.plans.adopt(name);
        Ok(())
    }
    fn expect_part(&mut self, name: &str) {
        self.plans.expect(name);
    }
    fn opens_elsewhere(&self) -> bool {
        true
    }
    fn settle(&mut self, _is_spared: &dyn Fn(&str) -> bool) -> io::Result<Vec<String>> {
        self.plans.settle();
        Ok(Vec::new())
    }
    fn notice(&mut self) -> Option<String> {
        self.requests.notice()
    }
    fn extent(&self, offset: u64, len: u64) -> (u64, bool) {
        self.parts.extent(offset, len)
    }
    fn event_fd(&self) -> Option<RawFd> {
        Some(self.requests.completions().bell())
    }
    fn signalled(&mut self) {
        self.requests.signalled();
    }
    fn describe(&self) -> String {
        format!("{} {}, an image for each disk", self.cluster.name(), self.user)
    }
}

//! Where the bytes of a disk come from and go to, in a pool of images.

/// `[POOL/]IMAGE@SNAPSHOT`
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Snapshot {
    pub pool: Option<String>,
    pub image: String,
    pub name: String,
}

impl std::fmt::Display for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pool = self.pool.as_ref().map(|pool| format!("{pool}/")).unwrap_or_default();
        write!(f, "{pool}{}@{}", self.image, self.name)
    }
}

/// Where a disk's bytes come from and go to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// An image that is there.
    pub image: Option<String>,
    /// A snapshot that a new one begins as, `[POOL/]IMAGE@SNAPSHOT`.
    pub from: Option<String>,
    /// Its lock is taken from whoever has it.
    pub fence: bool,
}

/// A name that Ceph takes, and that means nothing else in `POOL/IMAGE@SNAPSHOT`.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 96 && !name.bytes().any(|b| b.is_ascii_control() || b"/@".contains(&b))
}

impl Origin {
    /// Nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Origin::default()
    }

    /// What is wrong with it: at which key, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(image) = self.image.as_deref().filter(|image| !is_name(image)) {
            return Err(("image", format!("\"{image}\" is no image's name; right is \"vm-17\"")));
        }
        if let Some(from) = &self.from {
            snapshot(from).map_err(|why| ("from", why))?;
            if self.image.is_some() {
                return Err((
                    "from",
                    "image is one that is there, from makes one: leave one of them out".into(),
                ));
            }
        }
        Ok(())
    }
}

pub(crate) fn snapshot(text: &str) -> Result<Snapshot, String> {
    let read = || {
        let (rest, name) = text.split_once('@')?;
        let (pool, image) = rest.split_once('/').map_or((None, rest), |(pool, image)| (Some(pool), image));
        let all = [Some(name), Some(image), pool];
        let snapshot = Snapshot { pool: pool.map(Into::into), image: image.into(), name: name.into() };
        all.into_iter().flatten().all(is_name).then_some(snapshot)
    };
    read().ok_or_else(|| format!("\"{text}\" is no snapshot; right are \"golden@1\" and \"POOL/golden@1\""))
}

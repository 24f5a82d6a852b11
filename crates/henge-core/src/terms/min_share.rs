//! `min_share`: HYBRID's φmin, in millionths of a node that a disk lies on. `sfq` keeps it with `foreign = "hybrid"`.

use super::{Given, More, Term, Written, kept, term};

pub(super) const TERM: Term = kept(term(
    ("min_share", "Least share of a node", "5%", "least share of any one node it lies on"),
    Written::Share,
    More::Larger,
    Given::Within("share"),
    false,
));

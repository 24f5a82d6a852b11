//! A node alone as the page's source.

use henge_api::Request;
use henge_node::{Control, ControlError};
use henge_web::{
    About, Access, Compare, Comparison, NodeSample, Noted, Preview, Problem, Sample, Source, Terms, Viewer,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Records the load and simulates it; the command knows how.
pub trait Comparer: Send + Sync + 'static {
    /// May take as long as the recording and the simulations do.
    fn compare(&self, wanted: &Compare) -> Result<Comparison, String>;
}

/// A running node.
pub struct NodeSource {
    /// As the page calls it.
    pub name: String,
    /// The node's handle.
    pub control: Control,
    /// Who may come.
    pub access: Access,
    /// What compares, where something does.
    pub comparer: Option<Arc<dyn Comparer>>,
}

fn problem(error: ControlError) -> Problem {
    match error {
        ControlError::Refused(why) => Problem::Refused(why),
        why @ ControlError::Unremembered(_) => Problem::Refused(why.to_string()),
        ControlError::Ended => Problem::Gone("the node has ended".into()),
    }
}

impl Source for NodeSource {
    fn sample(&self) -> Result<Sample, Problem> {
        let node = NodeSample {
            name: self.name.clone(),
            up: true,
            age_ms: 0,
            status: self.control.meters().map_err(problem)?,
            capable: BTreeMap::new(),
            reserved: BTreeMap::new(),
        };
        let about =
            About { kind: "node".into(), name: self.name.clone(), version: env!("CARGO_PKG_VERSION").into() };
        Ok(Sample { about, nodes: vec![node], disks: BTreeMap::new() })
    }

    fn viewer(&self, token: Option<&str>, local: bool) -> Result<Viewer, Problem> {
        let viewer = |name: &str, may_change| Viewer {
            name: name.into(),
            may_change,
            may_compare: may_change && self.comparer.is_some(),
            ..Viewer::default()
        };
        match token.and_then(|token| self.access.check(token)) {
            Some(changes) => Ok(viewer(if changes { "operator" } else { "reader" }, changes)),
            None if self.access.is_open() && local => Ok(viewer("this machine", true)),
            None if self.access.is_open() => Err(Problem::Token(
                "without tokens this page is for the user who runs the node, on its own machine, under the name \
                 localhost; for others give the node http = { listen = …, token_file = … }"
                    .into(),
            )),
            None if token.is_some() => Err(Problem::Token("nobody has this token".into())),
            None => Err(Problem::Token("a token is needed".into())),
        }
    }

    fn events(&self, _: &Viewer, disk: Option<&str>, after: u64, most: usize) -> Result<Vec<Noted>, Problem> {
        let request = Request::Events { name: disk.map(str::to_owned), after, most };
        let reply = self.control.ask(request).map_err(problem)?;
        let events = reply.events.unwrap_or_default().into_iter();
        Ok(events.map(|event| Noted { event, tenant: None }).collect())
    }

    fn change(&self, _: &Viewer, disk: &str, terms: &Terms) -> Result<(), Problem> {
        let request = Request::Set { name: disk.to_owned(), contract: terms.clone() };
        self.control.ask(request).map(drop).map_err(problem)
    }

    fn preview(&self, _: &Viewer, disk: &str, terms: &Terms) -> Result<Preview, Problem> {
        let request = Request::Preview { name: disk.to_owned(), contract: terms.clone() };
        match self.control.ask(request) {
            Ok(reply) => Ok(Preview {
                accepted: true,
                why: "the schedulers of its pools would keep this contract".into(),
                lines: reply.lines.unwrap_or_default(),
            }),
            Err(ControlError::Refused(why)) => Ok(Preview { accepted: false, why, lines: Vec::new() }),
            Err(ended) => Err(problem(ended)),
        }
    }

    fn compare(&self, _: &Viewer, wanted: &Compare) -> Result<Comparison, Problem> {
        let comparer = self.comparer.as_ref();
        let comparer = comparer.ok_or_else(|| Problem::Refused("this server does not compare".into()))?;
        comparer.compare(wanted).map_err(Problem::Refused)
    }
}

//! A node alone as the page's source.

use henge_api::{Request, Table, fields};
use henge_node::{Address, Control, ControlError};
use henge_web::{
    About, Access, Attach, Changed, Compare, Comparison, NodeSample, Noted, Preview, Problem, Sample, Source,
    Tenant, Terms, Viewer, Wanted, ways,
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
    /// Where its clients come.
    pub addresses: Vec<Address>,
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

impl NodeSource {
    /// What the node says to a request that changes nothing.
    fn tried(&self, request: Request) -> Result<Preview, Problem> {
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
}

/// A disk's table. What somebody typed is a number or a text, and nothing else.
fn table(wanted: &Wanted) -> Result<Table, Problem> {
    let mut table = Table::of_disk(&wanted.name).with("capacity", wanted.capacity.as_str());
    if !wanted.pool.is_empty() {
        table.set("pool", wanted.pool.as_str());
    }
    let mut stated = wanted.contract.iter().filter(|(_, typed)| !typed.is_empty());
    stated.try_for_each(|(term, typed)| table.set_term(term, typed)).map_err(Problem::Refused)?;
    Ok(table)
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
        let about = About {
            kind: "node".into(),
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            terms: fields(false),
        };
        Ok(Sample { about, nodes: vec![node], disks: BTreeMap::new() })
    }

    fn viewer(&self, token: Option<&str>, local: bool) -> Result<Viewer, Problem> {
        let viewer = |name: &str, may_change| Viewer {
            name: name.into(),
            may_change,
            may_create: may_change,
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

    fn change(&self, _: &Viewer, disk: &str, terms: &Terms) -> Result<Changed, Problem> {
        let (name, mut contract) = (disk.to_owned(), terms.clone());
        if let Some(capacity) = contract.remove("capacity") {
            self.control.ask(Request::Grow { name: name.clone(), capacity }).map_err(problem)?;
        }
        if !contract.is_empty() {
            self.control.ask(Request::Set { name, contract }).map_err(problem)?;
        }
        Ok(Changed::default())
    }

    fn preview(&self, _: &Viewer, disk: &str, terms: &Terms) -> Result<Preview, Problem> {
        let request = Request::Preview { name: disk.to_owned(), contract: terms.clone() };
        self.tried(request)
    }

    fn offer(&self, _: &Viewer, wanted: &Wanted) -> Result<Preview, Problem> {
        match table(wanted) {
            Ok(disk) => self.tried(Request::Offer { disk }),
            Err(Problem::Refused(why)) => Ok(Preview { accepted: false, why, lines: Vec::new() }),
            Err(other) => Err(other),
        }
    }

    fn create(&self, viewer: &Viewer, wanted: &Wanted) -> Result<Attach, Problem> {
        self.control.ask(Request::Add { disk: table(wanted)? }).map_err(problem)?;
        self.attach(viewer, &wanted.name)
    }

    fn remove(&self, _: &Viewer, disk: &str, force: bool) -> Result<Changed, Problem> {
        let clients = self.control.meters().map_err(problem)?.disk(disk).map_or(0, |disk| disk.connections);
        if clients > 0 && !force {
            return Err(Problem::Refused(format!(
                "{clients} clients use disk \"{disk}\"; detach it there, or remove it all the same"
            )));
        }
        let removed = self.control.ask(Request::Remove { name: disk.to_owned() });
        removed.map(|_| Changed::default()).map_err(problem)
    }

    fn attach(&self, _: &Viewer, disk: &str) -> Result<Attach, Problem> {
        // Asked anew, as a disk just made is not in the meters of the last second.
        let status = self.control.status().map_err(problem)?;
        let fronts = status.disk(disk).map(|disk| disk.fronts.as_slice()).unwrap_or_default();
        let shown = |address: &&Address| fronts.iter().any(|front| address.scheme.name.starts_with(front));
        let known = self.addresses.iter().filter(shown).filter_map(|address| ways(&address.uri(disk)));
        let known: Vec<_> = known.collect();
        let note = match known.is_empty() {
            true => "Nobody may attach to it: the node listens for no front end that shows this disk. Its file says where \
                     it listens, and a disk's nbd, iscsi and nvme say who may come."
                .into(),
            false => String::new(),
        };
        Ok(Attach { disk: disk.to_owned(), ways: known, secrets: Vec::new(), note })
    }

    fn tenants(&self, _: &Viewer) -> Result<Vec<Tenant>, Problem> {
        Err(Problem::Unknown("a node alone has no tenants; a manager has".into()))
    }

    fn set_quota(&self, viewer: &Viewer, _: &str, _: &Terms) -> Result<Changed, Problem> {
        self.tenants(viewer).map(|_| Changed::default())
    }

    fn compare(&self, _: &Viewer, wanted: &Compare) -> Result<Comparison, Problem> {
        let comparer = self.comparer.as_ref();
        let comparer = comparer.ok_or_else(|| Problem::Refused("this server does not compare".into()))?;
        comparer.compare(wanted).map_err(Problem::Refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_stays_a_value() {
        let contract = [("rate", "50/s"), ("weight", "4"), ("limit", "")];
        let contract = contract.map(|(term, typed)| (term.to_owned(), typed.to_owned())).into();
        let name = "web\"\nadopt = true".to_owned();
        let wanted = Wanted {
            name: name.clone(),
            capacity: "[1]".into(),
            pool: "7".into(),
            contract,
            ..Wanted::default()
        };
        let said = serde_json::to_value(table(&wanted).unwrap()).unwrap();
        let contract = serde_json::json!({ "rate": "50/s", "weight": 4 });
        let meant = serde_json::json!({ "name": name, "capacity": "[1]", "pool": "7", "contract": contract });
        assert_eq!(said, meant);
    }
}

//! One gateway: its table, its seat, and which peers it lets act.

use super::*;

impl Gateway {
    pub(super) fn new(here: usize, storage: &Arc<Mutex<Storage>>) -> Gateway {
        let _ = storage;
        let mut text = format!(
            "[link]\nname = \"{}\"\nlisten = \"127.0.0.1:1\"\nsecret = \"0123456789abcdef\"\n",
            name(here)
        );
        for other in (0..GATEWAYS).filter(|other| *other != here) {
            text += &format!("[[peer]]\nname = \"{}\"\naddress = \"127.0.0.1:2\"\n", name(other));
        }
        let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
        let epoch = (here as u64 + 1) << 32;
        let mut links = Links::of_shard(0, config.link.clone(), epoch);
        for peer in config.peers {
            links.add(peer, Some(([127, 0, 0, 1], 2).into())).unwrap();
        }
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let wake = Arc::new(wake);
        let (mut targets, nvme) = (Targets::at(here as u16 + 1), Fabric::new(1, true, Arc::clone(&wake)));
        let target = targets.add_hidden("iqn.2026-11.local.henge:web");
        let lun = Lun {
            bytes: 1 << 20,
            block_shift: 9,
            physical_shift: 9,
            thin: true,
            read_only: false,
            reservable: true,
            serial: "7".into(),
            id: 7,
        };
        targets.add_unit(target, 0, lun, Reservations::default());
        let (to_images, todo, done) = Writer::by_hand();
        let writers = Writers::new(Writer::new(wake, true).unwrap(), Some(to_images));
        let mut tables = ReservationTables::writing(epoch, writers);
        tables.follow("web", (target, 0));
        Gateway {
            tables,
            targets,
            nvme,
            links,
            todo,
            done,
            target,
            here: None,
            there: None,
            takes: [false; GATEWAYS],
            turn: 0,
            acts: false,
            admitted: BTreeSet::new(),
            held: Vec::new(),
            queued: Vec::new(),
            at_owner: Vec::new(),
            given_up: BTreeSet::new(),
        }
    }

    pub(super) fn table(&mut self) -> Reservations {
        self.targets.unit(self.target, 0).unwrap().reservations().clone()
    }

    /// As the plane says it.
    pub(super) fn seat(&mut self, seated: Seated) {
        (self.turn, self.acts) = (self.turn + 1, false);
        self.admitted.clear();
        self.held.append(&mut self.queued);
        let (disk, turn) = ("web".to_owned(), self.turn);
        self.links.news.push_back(News::Seat { disk, turn, seated });
    }

    pub(super) fn look_for(&mut self) {
        let found = self.takes.iter().position(|takes| *takes);
        if self.here.is_none() && found != self.there {
            self.there = found;
            self.seat(match found {
                Some(g) => Seated::There(self.links.find(&name(g)).unwrap()),
                None => Seated::Nowhere,
            });
        }
    }

    pub(super) fn lose(&mut self) {
        self.here = None;
        self.there = None;
        self.seat(Seated::Nowhere);
        self.look_for();
    }
}

//! How a file is spread over its servers.
//!
//! # The problem
//! A request names the distribution and this server's number; how much of a range of the file lies here decides what
//! the request costs, and when a read is over.
//!
//! # The rule
//! `local(o)` is the number of bytes of `[0, o)` of the file that are at server s of ct. A range `[a, b)` has
//! `local(b) − local(a)` there.
//!
//! - `simple_stripe` deals strips out in turn:
//!   `local(o) = (o div (ct·strip))·strip + clamp(o mod (ct·strip) − s·strip, 0, strip)`.
//! - `basic_dist`: all of it is at its one server.
//! - `varstrip_dist` repeats a list of strips, each with its own size and server: for each strip of s in the list that
//!   begins at b, `clamp(o mod row − b, 0, size)`, and all of them for each whole row before.
//! - `twod_stripe` deals out `factor` strips a server to the first group of servers, then to the second, and so on; the
//!   last group has what is left over by dividing. Within a group it is `simple_stripe`.
//!
//! # Worked example
//! 200 000 bytes from 0, strips of 65 536, two servers: server 0 holds strips 0 and 2, 131 072 bytes; server 1
//! holds strip 1 and the rest, 68 928. With `twod_stripe`, four servers in two groups and a factor of 2, strips lie at
//! servers 0, 1, 0, 1, 2, 3, 2, 3, and again.
//!
//! # Price
//! A few divisions; for `varstrip_dist` a step for each strip of its list.
//!
//! Source: `src/io/description/dist-*.c`. None of them looks at more than these numbers.

use crate::wire::{Malformed, Reader, Writer};

/// Bytes of a list of strips with its end, for which servers have room.
const LIST_MAX: usize = 1024;
/// Bytes of the file from a server's strip to its next one, at most: servers add some of these.
const ROW_MAX: u64 = 1 << 60;

/// How a file is spread over its servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Strips dealt out in turn; the default everywhere.
    SimpleStripe {
        /// Bytes of a strip.
        strip_size: u64,
    },
    /// The whole file on one server.
    Basic,
    /// Strips of different sizes, the list over and over.
    VarStrip {
        /// The list.
        strips: Vec<Strip>,
    },
    /// Groups of servers by turns.
    TwoD {
        /// How many.
        groups: u32,
        /// Bytes of a strip.
        strip_size: u64,
        /// Strips a server gets before the next group's turn.
        factor: u32,
    },
}

/// One strip of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strip {
    /// Which server of the file has it.
    pub server_nr: u32,
    /// Bytes.
    pub size: u64,
}

/// Strips of equal size, dealt out in turn (`simple_stripe`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimpleStripe {
    /// Bytes of a strip.
    pub strip_size: u64,
    /// Which server of the file this is.
    pub server_nr: u32,
    /// How many servers hold the file.
    pub server_ct: u32,
}

impl SimpleStripe {
    /// How many of the bytes `[0, o)` of the file live here.
    pub fn local(&self, o: u64) -> u64 {
        // Nearly always; a division of 128 bits takes several times as long.
        if let Some(row) = self.strip_size.checked_mul(u64::from(self.server_ct)) {
            let partial = (o % row).saturating_sub(u64::from(self.server_nr).saturating_mul(self.strip_size));
            return o / row * self.strip_size + partial.min(self.strip_size);
        }
        let row = u128::from(self.strip_size) * u128::from(self.server_ct);
        let (rows, rest) = (u128::from(o) / row, u128::from(o) % row);
        let before = u128::from(self.server_nr) * u128::from(self.strip_size);
        let partial = rest.saturating_sub(before).min(u128::from(self.strip_size));
        (rows * u128::from(self.strip_size) + partial) as u64
    }
}

impl Distribution {
    /// How many of the bytes `[0, o)` of the file live at server `server_nr` of `server_ct`.
    pub fn local(&self, server_nr: u32, server_ct: u32, o: u64) -> u64 {
        match self {
            Distribution::SimpleStripe { strip_size } => {
                SimpleStripe { strip_size: *strip_size, server_nr, server_ct }.local(o)
            }
            Distribution::Basic => o,
            Distribution::VarStrip { strips } => local_of_list(strips, server_nr, o),
            Distribution::TwoD { groups, strip_size, factor } => {
                local_of_groups(*groups, *strip_size, *factor, server_nr, server_ct, o)
            }
        }
    }

    /// Whether a server can compute with it, for one that reaches to `end` of the file. Servers compute with 64 bits, and divide by what may be 0 in
    /// them; they count rows of lists and groups with 32 bits, and go astray beyond.
    pub(crate) fn check(&self, server_nr: u32, server_ct: u32, end: u64) -> Result<(), &'static str> {
        let servers = u64::from(server_ct.max(server_nr.saturating_add(1)));
        let (row, counted) = match self {
            Distribution::SimpleStripe { strip_size } => (strip_size.checked_mul(servers), u64::MAX),
            Distribution::Basic => (Some(1), u64::MAX),
            Distribution::VarStrip { strips } => {
                let sum = strips.iter().try_fold(0_u64, |sum, strip| sum.checked_add(strip.size));
                (sum, u64::from(u32::MAX))
            }
            Distribution::TwoD { strip_size, factor, .. } => {
                let row = strip_size.checked_mul(servers);
                if server_nr >= server_ct
                    || row.and_then(|row| row.checked_mul(u64::from(*factor))) > Some(ROW_MAX)
                {
                    return Err("distribution");
                }
                (row.filter(|row| row.checked_mul(u64::from(*factor)).is_some()), u64::from(u32::MAX))
            }
        };
        let fits = row.is_some_and(|row| row <= ROW_MAX && end / row < counted);
        if fits { Ok(()) } else { Err("distribution") }
    }

    /// How often a server goes round for so many bytes of its own: once for each strip, however small whoever asks says that strips are. A list is read
    /// anew each time, each entry of it four times.
    pub(crate) fn rounds(&self, server_nr: u32, bytes: u64) -> u64 {
        match self {
            Distribution::SimpleStripe { strip_size } => bytes / strip_size,
            Distribution::Basic => 0,
            Distribution::TwoD { strip_size, .. } => bytes / strip_size,
            Distribution::VarStrip { strips } => {
                let own = strips.iter().filter(|strip| strip.server_nr == server_nr);
                let (count, size) =
                    own.fold((0_u64, 0_u64), |(count, size), s| (count + 1, size.saturating_add(s.size)));
                let each = 8 + 3 * strips.len() as u64;
                (u128::from(bytes) * u128::from(count) / u128::from(size.max(1)))
                    .min(u128::from(u64::MAX / each)) as u64
                    * each
            }
        }
    }

    /// Steps that [`local`](Self::local) takes.
    pub(crate) fn steps(&self) -> u32 {
        match self {
            Distribution::VarStrip { strips } => strips.len() as u32,
            _ => 1,
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let name = r.string("distribution")?;
        Ok(match name {
            b"simple_stripe" => {
                let strip_size = positive(r, "strip_size")?;
                r.align8()?;
                Distribution::SimpleStripe { strip_size }
            }
            // It has no parameters.
            b"basic_dist" => Distribution::Basic,
            b"varstrip_dist" => {
                let list = r.string("varstrip_dist strips")?;
                r.align8()?;
                let strips = strips_of(list).ok_or(r.malformed("varstrip_dist strips"))?;
                Distribution::VarStrip { strips }
            }
            b"twod_stripe" => {
                let groups = r.u32("twod_stripe num_groups")?;
                let strip_size = positive(r, "twod_stripe strip_size")?;
                let factor = r.u32("twod_stripe group_strip_factor")?;
                r.align8()?;
                if groups == 0 || factor == 0 {
                    return Err(r.malformed("twod_stripe num_groups"));
                }
                Distribution::TwoD { groups, strip_size, factor }
            }
            _ => return Err(r.malformed("distribution name")),
        })
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        match self {
            Distribution::SimpleStripe { strip_size } => {
                w.string(b"simple_stripe").i64(*strip_size as i64).align8()
            }
            Distribution::Basic => w.string(b"basic_dist"),
            Distribution::VarStrip { strips } => {
                let list: String = strips.iter().map(|s| format!("{}:{};", s.server_nr, s.size)).collect();
                w.string(b"varstrip_dist").string(list.as_bytes())
            }
            Distribution::TwoD { groups, strip_size, factor } => {
                w.string(b"twod_stripe").u32(*groups).i64(*strip_size as i64).u32(*factor).align8()
            }
        };
    }
}

fn positive(r: &mut Reader<'_>, what: &'static str) -> Result<u64, Malformed> {
    let value = r.i64(what)?;
    u64::try_from(value).ok().filter(|v| *v > 0).ok_or(r.malformed(what))
}

fn local_of_list(strips: &[Strip], server_nr: u32, o: u64) -> u64 {
    let row: u128 = strips.iter().map(|s| u128::from(s.size)).sum();
    let (rows, rest) = (u128::from(o) / row, u128::from(o) % row);
    let (mut begins, mut local) = (0, 0);
    for strip in strips {
        let size = u128::from(strip.size);
        if strip.server_nr == server_nr {
            local += rows * size + rest.saturating_sub(begins).min(size);
        }
        begins += size;
    }
    local as u64
}

fn local_of_groups(groups: u32, strip_size: u64, factor: u32, server_nr: u32, server_ct: u32, o: u64) -> u64 {
    let groups = groups.min(server_ct);
    let usual = server_ct / groups;
    let group = (server_nr / usual).min(groups - 1);
    let servers = if group == groups - 1 { server_ct - group * usual } else { usual };
    // What one server gets at a turn of its group.
    let turn = u128::from(strip_size) * u128::from(factor);
    let row = turn * u128::from(server_ct);
    let (rows, rest) = (u128::from(o) / row, u128::from(o) % row);
    let in_group = rest.saturating_sub(turn * u128::from(group * usual)).min(turn * u128::from(servers));
    let within = SimpleStripe { strip_size, server_nr: server_nr - group * usual, server_ct: servers };
    (rows * turn) as u64 + within.local(in_group as u64)
}

/// `SERVER:SIZE;…`, a size with K, M or G behind it or none.
fn strips_of(list: &[u8]) -> Option<Vec<Strip>> {
    let list = std::str::from_utf8(list).ok().filter(|list| list.len() < LIST_MAX)?;
    let strip = |text: &str| {
        let (server_nr, size) = text.split_once(':')?;
        let (digits, unit) = match size.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']) {
            digits if digits.len() == size.len() => (digits, 1),
            digits => match &size[digits.len()..] {
                "k" | "K" => (digits, 1 << 10),
                "m" | "M" => (digits, 1 << 20),
                "g" | "G" => (digits, 1 << 30),
                _ => return None,
            },
        };
        let size = digits.parse::<u64>().ok()?.checked_mul(unit).filter(|s| *s > 0)?;
        Some(Strip { server_nr: server_nr.parse().ok()?, size })
    };
    let strips: Vec<Strip> = list.split(';').filter(|s| !s.is_empty()).map(strip).collect::<Option<_>>()?;
    (!strips.is_empty()).then_some(strips)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (Distribution, usize) {
        let mut r = Reader::new(bytes);
        let read = Distribution::read(&mut r).expect("a distribution");
        (read, r.at())
    }

    /// As the encoders of `dist-*.c` write them: a name, its parameters, and on to a multiple of 8.
    #[test]
    fn parameters_on_the_wire() {
        let mut basic = Vec::from(*b"\x0a\0\0\0basic_dist\0\0");
        basic.extend([0xee; 8]); // the file request begins here
        assert_eq!(read(&basic), (Distribution::Basic, 16));
        let mut twod = Vec::from(*b"\x0b\0\0\0twod_stripe\0");
        twod.extend(*b"\x02\0\0\0\0\0\x01\0\0\0\0\0\0\x01\0\0");
        let two = Distribution::TwoD { groups: 2, strip_size: 65_536, factor: 256 };
        assert_eq!(read(&twod), (two, 32));
        let var = b"\x0d\0\0\0varstrip_dist\0\0\0\0\0\0\0\x0c\0\0\x000:64K;1:512;\0\0\0\0\0\0\0\0";
        let strips = vec![Strip { server_nr: 0, size: 65_536 }, Strip { server_nr: 1, size: 512 }];
        assert_eq!(read(var), (Distribution::VarStrip { strips }, 48));
    }

    #[test]
    fn lists_that_make_no_sense_are_not_evaluated() {
        for list in ["", ";", "0", "0:", "0:0", "0:5T", "0:KK", "a:5", "0:99999999999g"] {
            assert_eq!(strips_of(list.as_bytes()), None, "{list}");
        }
        assert_eq!(strips_of(b"3:1m").expect("one strip"), [Strip { server_nr: 3, size: 1 << 20 }]);
    }

    /// Who has each byte, strip by strip in the order of the file.
    fn owners(distribution: &Distribution, servers: u32, len: usize) -> Vec<u32> {
        let mut strips: Vec<(u32, u64)> = Vec::new();
        match distribution {
            Distribution::SimpleStripe { strip_size } => {
                strips.extend((0..servers).map(|s| (s, *strip_size)))
            }
            Distribution::VarStrip { strips: list } => {
                strips.extend(list.iter().map(|s| (s.server_nr, s.size)))
            }
            Distribution::TwoD { groups, strip_size, factor } => {
                let usual = servers / groups;
                for group in 0..*groups {
                    let last = group == groups - 1;
                    let members = group * usual..if last { servers } else { (group + 1) * usual };
                    for _ in 0..*factor {
                        strips.extend(members.clone().map(|s| (s, *strip_size)));
                    }
                }
            }
            Distribution::Basic => strips.push((0, 1)),
        }
        let row = strips.iter().flat_map(|(s, size)| std::iter::repeat_n(*s, *size as usize));
        row.collect::<Vec<_>>().into_iter().cycle().take(len).collect()
    }

    #[test]
    fn local_counts_the_bytes_of_each_server_one_by_one() {
        let strip = |server_nr, size| Strip { server_nr, size };
        let twod = |groups, strip_size, factor| Distribution::TwoD { groups, strip_size, factor };
        let cases = [
            (Distribution::SimpleStripe { strip_size: 7 }, 3),
            (Distribution::Basic, 1),
            (Distribution::VarStrip { strips: vec![strip(0, 5), strip(1, 3), strip(0, 2), strip(2, 11)] }, 3),
            (twod(2, 4, 3), 4),
            (twod(2, 4, 3), 5),
            (twod(3, 5, 2), 7),
            (twod(1, 3, 2), 2),
            (twod(4, 3, 1), 4),
        ];
        for (distribution, servers) in cases {
            let owners = owners(&distribution, servers, 300);
            for server in 0..servers {
                for o in 0..=owners.len() {
                    let here = owners[..o].iter().filter(|s| **s == server).count() as u64;
                    let local = distribution.local(server, servers, o as u64);
                    assert_eq!(local, here, "{distribution:?}, server {server}, {o}");
                }
            }
        }
        // More groups than servers: each server is one.
        assert_eq!(twod(9, 4, 2).local(1, 2, 12), twod(2, 4, 2).local(1, 2, 12));
    }

    /// A server of 2.10 was seen to divide by zero, or to go round for ever, by each of the second kind.
    #[test]
    fn stripes_that_end_a_server_are_not_taken() {
        let simple = |strip_size| Distribution::SimpleStripe { strip_size };
        let twod = |groups, strip_size, factor| Distribution::TwoD { groups, strip_size, factor };
        let list = |sizes: &[u64]| Distribution::VarStrip {
            strips: sizes.iter().map(|size| Strip { server_nr: 0, size: *size }).collect(),
        };
        for (distribution, servers, end) in [
            (simple(65_536), 1000, 1 << 62),
            (simple(1), 2, 1 << 62),
            (Distribution::Basic, 1, 1 << 62),
            (twod(2, 65_536, 256), 8, 1 << 50),
            (list(&[65_536, 512]), 1, 1 << 47),
        ] {
            assert_eq!(distribution.check(0, servers, end), Ok(()), "{distribution:?}");
        }
        for (distribution, server, servers, end) in [
            (simple(1 << 62), 0, 4, 1),
            (simple(1 << 62), 0, 2, 1),
            (simple(1 << 40), 0, u32::MAX, 1),
            (twod(1, 1 << 40, u32::MAX), 0, 2, 1),
            (twod(1, 1, 1), 0, 2, 1 << 40),
            (twod(1, 65_536, 1), 7, 2, 1),
            (list(&[1, 1]), 0, 1, 1 << 40),
            (list(&[u64::MAX >> 1, u64::MAX >> 1, 5]), 0, 1, 1),
        ] {
            assert!(distribution.check(server, servers, end).is_err(), "{distribution:?}");
        }
    }

    /// What a server of 2.10 exits by, or divides by.
    #[test]
    fn distributions_that_servers_do_not_know_are_not_read() {
        let bytes = |write: &dyn Fn(&mut Writer)| {
            let mut w = Writer::new();
            write(&mut w);
            w.pad(32);
            w.into_bytes()
        };
        for unknown in [
            bytes(&|w| _ = w.string(b"no_such_dist")),
            bytes(&|w| _ = w.string(b"simple_stripe").i64(0)),
            bytes(&|w| _ = w.string(b"simple_stripe").i64(-5)),
            bytes(&|w| _ = w.u32(13).bytes(b"simple_stripeXXXX").i64(1)),
            bytes(&|w| _ = w.string(b"twod_stripe").u32(0).i64(1).u32(1)),
            bytes(&|w| _ = w.string(b"twod_stripe").u32(1).i64(1).u32(0)),
            bytes(&|w| _ = w.string(b"varstrip_dist").string(b"0:1;5")),
            bytes(&|w| _ = w.string(b"varstrip_dist").string(&b"0:1;".repeat(300))),
        ] {
            assert!(Distribution::read(&mut Reader::new(&unknown)).is_err(), "{unknown:?}");
        }
    }
}

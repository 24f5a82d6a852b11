//! Parallel programs: `preset = "ior"` and `"btio"`.

use crate::{Btio, Ior, Program};
use henge_core::{Duration, Op, ParamError, Params};

/// `preset = "ior"` and `"btio"`.
pub(super) fn program(p: &mut Params, name: &str) -> Result<Option<Program>, ParamError> {
    match name {
        "ior" => {
            let ranks = p.integer("ranks", 1, 1 << 16)?.unwrap_or(32) as u32;
            let block = p.size("block")?.unwrap_or(16 << 20);
            let transfer = p.size("transfer")?.unwrap_or(1 << 20);
            let segments = p.integer("segments", 1, 1 << 40)?.unwrap_or(1);
            let read = p.share("read")?.unwrap_or(0);
            let op = match read {
                0 => Op::Write,
                1_000_000 => Op::Read,
                _ => return Err(p.error("read", "ior reads (1.0) or writes (0.0)".to_owned())),
            };
            if transfer == 0 || block == 0 || !block.is_multiple_of(transfer) {
                return Err(
                    p.error("transfer", "block is a multiple of transfer, both above zero".to_owned())
                );
            }
            let compute = p.duration("compute")?.unwrap_or(Duration::ZERO);
            let collective = p.bool("collective")?.unwrap_or(false);
            let repeat = p.bool("repeat")?.unwrap_or(false);
            let ior = Ior { ranks, block, transfer, segments, op, compute, collective, repeat };
            Ok(Some(Program::Ior(ior)))
        }
        "btio" => {
            let class = p.text("class")?.unwrap_or_else(|| "A".to_owned());
            let side = match class.as_str() {
                "A" => 64,
                "B" => 102,
                "C" => 162,
                _ => {
                    return Err(
                        p.error("class", format!("there is no class \"{class}\"; there are A, B and C"))
                    );
                }
            };
            let ranks = p.integer("ranks", 1, 4096)?.unwrap_or(16) as u32;
            if ranks.isqrt().pow(2) != ranks || u64::from(ranks.isqrt()) > side {
                return Err(p.error(
                    "ranks",
                    "btio has a square number of ranks, of at most a grid side each way".to_owned(),
                ));
            }
            let buffer = match p.text("kind")?.as_deref() {
                None | Some("full") => p.size("buffer")?.unwrap_or(16 << 20),
                Some("simple") => 0,
                Some(other) => {
                    return Err(p.error("kind", format!("btio is full or simple, not \"{other}\"")));
                }
            };
            let compute = p.duration("compute")?.unwrap_or(Duration::ZERO);
            let collective = p.bool("collective")?.unwrap_or(false);
            let dumps = p.integer("dumps", 1, 1 << 20)?.unwrap_or(40);
            let repeat = p.bool("repeat")?.unwrap_or(false);
            Ok(Some(Program::Btio(Btio { ranks, side, dumps, buffer, compute, collective, repeat })))
        }
        _ => Ok(None),
    }
}

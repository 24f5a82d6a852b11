//! Client commands, in millionths; a long one counts once per started 256 KiB (`per = "256KiB"`).
//!
//! A part of a split command counts its fraction of the command. Of a long command that was split, each part counts
//! at least its length's worth, so that splitting makes nothing cheaper by more than one `per`.

use super::transferred;
use henge_core::{Cost, CostModel, CostUnit, ParamError, Params, Request};

/// Commands, long ones several times.
#[derive(Clone, Copy, Debug)]
pub struct Requests {
    per: u64,
}

impl Requests {
    /// The length up to which a command counts once.
    pub const PER_DEFAULT: u64 = 256 << 10;

    /// Commands, counted once per started `per` bytes.
    pub fn new(per: u64) -> Self {
        assert!(per > 0, "a command covers something");
        Requests { per }
    }
}

impl CostModel for Requests {
    fn unit(&self) -> CostUnit {
        CostUnit::Requests
    }
    fn estimate(&mut self, request: &Request) -> Cost {
        let (commands, len) = (u64::from(request.commands), transferred(request));
        let cost = if len <= self.per && commands >= u64::from(Request::WHOLE) {
            commands // the common case, without a division
        } else if commands >= u64::from(Request::WHOLE) {
            commands.saturating_mul(len.div_ceil(self.per))
        } else {
            let by_length = u128::from(len) * u128::from(Request::WHOLE) / u128::from(self.per);
            commands.max(u64::try_from(by_length).unwrap_or(u64::MAX))
        };
        Cost::new(cost.max(1))
    }
}

/// `requests = { per = "256KiB" }`
pub(super) fn build(params: &mut Params) -> Result<Box<dyn CostModel>, ParamError> {
    match params.size("per")? {
        Some(0) => Err(params.error("per", "a command covers something; write \"256KiB\"".to_owned())),
        per => Ok(Box::new(Requests::new(per.unwrap_or(Requests::PER_DEFAULT)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{FlowId, Instant, Op, RequestId};

    #[test]
    fn a_long_command_counts_once_per_started_256_kib() {
        let mut model = Requests::new(Requests::PER_DEFAULT);
        let mut cost = |len: u64, commands: u32| {
            let r = Request::new(RequestId::default(), FlowId(0), Op::Read, 0, len, Instant::ZERO);
            model.estimate(&Request { commands, ..r }).get()
        };
        assert_eq!(cost(4096, 1_000_000), 1_000_000);
        assert_eq!(cost(256 << 10, 1_000_000), 1_000_000);
        assert_eq!(cost((256 << 10) + 1, 1_000_000), 2_000_000);
        assert_eq!(cost(4096, 250_000), 250_000);
        assert_eq!(cost(256 << 10, 250_000), 1_000_000); // a quarter of a 1 MiB command that counts four times
    }
}

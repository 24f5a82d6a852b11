//! How many requests the device holds at once.

mod feedback;
mod fixed;
mod kept;
#[cfg(test)]
mod trial;
mod work;

pub use fixed::FixedDepth;
pub use kept::Kept;
pub use work::WorkDepth;

use crate::DefaultDepth;
use crate::registry::unknown;
use henge_core::{DepthController, ParamError, Params, Value};

/// Largest depth that configuration takes.
pub const DEPTH_MAX: u64 = 65_536;

/// Controllers by name; `fixed` is what a bare number means.
const CONTROLLERS: &[(&str, Build)] =
    &[("fixed", fixed::build), ("feedback", feedback::build), ("kept", kept::build), ("work", work::build)];

/// From its parameters, for a scheduler that keeps weights, or not.
type Build = fn(&mut Params, bool) -> Result<Box<dyn DepthController>, ParamError>;

/// Reads `depth = 32` or `depth = { controller = { … } }`.
pub fn from_params(
    params: &mut Params,
    default: DefaultDepth,
    weights: bool,
) -> Result<Box<dyn DepthController>, ParamError> {
    if let Some(Value::Integer(_)) = params.get_mut("depth") {
        let depth = params.integer("depth", 1, DEPTH_MAX)?.expect("it was just seen");
        return Ok(Box::new(FixedDepth::new(depth as u32)));
    }
    match (params.choice("depth")?, default) {
        (Some((name, inner)), _) => named(&name, inner, weights),
        (None, DefaultDepth::Fixed(depth)) => Ok(Box::new(FixedDepth::new(depth))),
        (None, DefaultDepth::Controller(name)) => named(name, Params::new(name), weights),
    }
}

fn named(name: &str, mut params: Params, weights: bool) -> Result<Box<dyn DepthController>, ParamError> {
    let Some((_, build)) = CONTROLLERS.iter().find(|(n, _)| *n == name) else {
        return Err(unknown("depth controller", name, CONTROLLERS.iter().map(|(n, _)| *n), &params));
    };
    let controller = build(&mut params, weights)?;
    params.finish()?;
    Ok(controller)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depth_is_a_number_or_a_controller() {
        let default = DefaultDepth::Fixed(7);
        let depth = |p: &mut Params| from_params(p, default, false).map(|d| d.depth());
        assert_eq!(depth(&mut Params::new("x")).unwrap(), 7);
        assert_eq!(depth(&mut Params::new("x").with("depth", Value::Integer(3))).unwrap(), 3);
        let inner = Params::new("fixed").with("depth", Value::Integer(5));
        let outer = Params::new("depth").with("fixed", Value::Table(inner));
        assert_eq!(depth(&mut Params::new("x").with("depth", Value::Table(outer))).unwrap(), 5);
        for wrong in [Value::Integer(0), Value::Integer(1 << 20), Value::Text("deep".into())] {
            assert!(depth(&mut Params::new("x").with("depth", wrong)).is_err());
        }
    }
}

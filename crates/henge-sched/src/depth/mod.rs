//! How many requests the device holds at once.

mod feedback;
mod fixed;
mod kept;
#[cfg(test)]
mod trial;
mod work;

pub use fixed::{DEPTH_MAX, FixedDepth};
pub use kept::Kept;
pub use work::WorkDepth;

use crate::entry::DefaultDepth;
use crate::names::unknown;
use crate::terms::Terms;
use henge_core::{DepthController, ParamError, Params, Value};

/// Controllers by name; `fixed` is what a bare number means.
const CONTROLLERS: &[(&str, Build)] =
    &[("fixed", fixed::build), ("feedback", feedback::build), ("kept", kept::build), ("work", work::build)];

/// From its parameters, for a scheduler that keeps these terms.
type Build = fn(&mut Params, &Terms) -> Result<Box<dyn DepthController>, ParamError>;

/// Reads `depth = 32` or `depth = { controller = { … } }`.
pub fn from_params(
    params: &mut Params,
    default: DefaultDepth,
    terms: &Terms,
) -> Result<Box<dyn DepthController>, ParamError> {
    if let Some(Value::Integer(_)) = params.get_mut("depth") {
        let depth = params.integer("depth", 1, DEPTH_MAX)?.expect("it was just seen");
        return Ok(Box::new(FixedDepth::new(depth as u32)));
    }
    match (params.choice("depth")?, default) {
        (Some((name, inner)), _) => named(&name, inner, terms),
        (None, DefaultDepth::Fixed(depth)) => Ok(Box::new(FixedDepth::new(depth))),
        (None, DefaultDepth::Controller(name)) => named(name, Params::new(name), terms),
    }
}

fn named(name: &str, mut params: Params, terms: &Terms) -> Result<Box<dyn DepthController>, ParamError> {
    let Some((_, build)) = CONTROLLERS.iter().find(|(n, _)| *n == name) else {
        return Err(unknown("depth controller", name, CONTROLLERS.iter().map(|(n, _)| *n), &params));
    };
    let controller = build(&mut params, terms)?;
    params.finish()?;
    Ok(controller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::DepthPart;

    #[test]
    fn a_depth_is_a_number_or_a_controller() {
        let default = DefaultDepth::Fixed(7);
        let depth = |p: &mut Params| from_params(p, default, &Terms::FIFO).map(|d| d.depth());
        assert_eq!(depth(&mut Params::new("x")).unwrap(), 7);
        assert_eq!(depth(&mut Params::new("x").with("depth", Value::Integer(3))).unwrap(), 3);
        let inner = Params::new("fixed").with("depth", Value::Integer(5));
        let outer = Params::new("depth").with("fixed", Value::Table(inner));
        assert_eq!(depth(&mut Params::new("x").with("depth", Value::Table(outer))).unwrap(), 5);
        for (name, divided) in [("fixed", true), ("feedback", true), ("kept", true), ("work", false)] {
            let inner = Params::new(name);
            let inner = if name == "fixed" { inner.with("depth", Value::Integer(16)) } else { inner };
            let outer = Params::new("depth").with(name, Value::Table(inner));
            let mut params = Params::new("x").with("depth", Value::Table(outer));
            let mut controller = from_params(&mut params, default, &Terms::FIFO).unwrap();
            let (whole, before) = (controller.whole(), controller.depth());
            controller.divide(DepthPart::new(1, 4));
            assert_eq!((controller.whole(), whole.is_some()), (whole, divided), "{name}");
            let mine = whole.map_or(before, |whole| DepthPart::new(1, 4).of(whole));
            assert_eq!(controller.depth(), mine, "{name}");
        }
        for wrong in [Value::Integer(0), Value::Integer(1 << 20), Value::Text("deep".into())] {
            assert!(depth(&mut Params::new("x").with("depth", wrong)).is_err());
        }
    }
}

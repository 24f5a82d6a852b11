//! The small language in which a scenario states what its runs must show.
//!
//! ```text
//! VD2.rate[scheduler=cvc] >= 675                        a measured quantity of one run
//! all(S >= 11: total.rate[scheduler=cvc] <= 1.05 * total.rate[scheduler=vc])
//! g.throughput[10s..20s] / f.throughput[10s..20s] ~ 1 within 2%
//! ```
//!
//! | form | meaning |
//! |---|---|
//! | `FLOW.what`, `total.what`, `node0.what` | what was measured; `what(120ms)` where it takes an argument |
//! | `[axis=value, 10s..20s]` | in which run, and in which part of it; what a fold binds need not be said |
//! | `all`, `any`, `count`, `min`, `max`, `mean`, `sum` `(axis condition: expression)` | over the values of an axis |
//! | `min(a, b)`, `max(a, b)`, `abs(a)` | functions |
//! | `+ - * /`, `< <= > >= ==`, `a < b < c`, `and or not` | as usual |
//! | `a ~ b within 5%` | equal up to a share of b |
//! | `120ms`, `5%`, `64KiB` | seconds, a share, bytes |
//! | any other name | a variable of the scenario |

mod eval;
mod lex;
mod parse;

pub use eval::{Bindings, Quantities, Value};
pub use parse::Expr;

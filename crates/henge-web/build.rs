//! The page is embedded as `make web` leaves it; a new one is a reason to compile again.

use std::path::Path;

fn main() {
    // Cargo takes a path that is not there for one that has changed, always: without a page, everything would be compiled at every call.
    let built = "../../web/dist";
    let watched = if Path::new(built).is_dir() { built } else { "../../web" };
    println!("cargo:rerun-if-changed={watched}");
}

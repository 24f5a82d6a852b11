//! The page is embedded as `make web` leaves it; a new one is a reason to compile again.

fn main() {
    println!("cargo:rerun-if-changed=../../web/dist");
}

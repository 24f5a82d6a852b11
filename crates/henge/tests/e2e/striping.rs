//! The raw bytes in the pools' files are where the striping formula says.

use crate::support::{Node, have, noise, qemu_io};

const UNIT: usize = 64 << 10;
const CAPACITY: usize = 24 << 20;

/// RAID-0 by its definition, not by the code under test: stripe s of the disk is stripe s / n of pool s mod n.
fn expected(image: &[u8], pools: usize) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new(); pools];
    for (s, stripe) in image.chunks(UNIT).enumerate() {
        parts[s % pools].extend_from_slice(stripe);
    }
    parts
}

fn config(direct: bool) -> String {
    let pool = |name: &str| {
        format!(
            "[[pool]]\nname = \"{name}\"\npath = \"DIR/{name}\"\ncapacity = \"64MiB\"\ndirect = {direct}\n"
        )
    };
    let disk =
        format!("[[disk]]\nname = \"web\"\npools = [\"a\", \"b\", \"c\"]\ncapacity = \"{CAPACITY}B\"\n");
    format!("{}{}{}{disk}", pool("a"), pool("b"), pool("c"))
}

fn unaligned_writes(direct: bool) {
    let node = Node::start(&config(direct));
    let bytes = noise(1 << 20);
    std::fs::write(node.path("pattern"), &bytes).unwrap();
    let mut image = vec![0; CAPACITY];
    let mut commands = Vec::new();
    for at in [1, 1_000_001, 5_242_879, 9_999_999, CAPACITY - (1 << 20)] {
        image[at..at + (1 << 20)].copy_from_slice(&bytes);
        commands.push(format!("write -s {} {at} 1048576", node.path("pattern").display()));
    }
    commands.push("flush".into());
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    qemu_io(&node.uri("web"), &commands);
    let dir = node.stop();
    for (i, (pool, expected)) in ["a", "b", "c"].iter().zip(expected(&image, 3)).enumerate() {
        let raw = std::fs::read(dir.path().join(pool).join(format!("web.part{i}"))).unwrap();
        let differs = raw.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "direct {direct}: pool {pool}");
        assert!(raw.len() >= expected.len() && raw[expected.len()..].iter().all(|b| *b == 0));
    }
}

#[test]
fn raw_bytes_are_where_the_formula_says() {
    if have("raw_bytes_are_where_the_formula_says", &["qemu-io"]) {
        unaligned_writes(true);
        unaligned_writes(false);
    }
}

//! Randomness that the system gives.

/// Random bytes from the system, if it has any.
pub(crate) fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    (got == Ok(N)).then_some(bytes)
}

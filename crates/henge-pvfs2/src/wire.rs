//! Primitives of the byte-field encoding: little-endian integers, strings padded to 8, positions counted from
//! the payload's first byte.

use std::fmt;

/// A message that is not what it claims to be, or that no server can go through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// What was being read.
    pub what: &'static str,
    /// Where in the payload.
    pub at: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a PVFS2 message: {} at byte {}", self.what, self.at)
    }
}
impl std::error::Error for Malformed {}

/// Reads a payload from its first byte on; alignment is counted from there, not from addresses.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// From the payload's first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }
    /// How far it has come.
    pub fn at(&self) -> usize {
        self.at
    }
    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }
    /// An error at this place.
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }
    /// The next `n` bytes.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let end =
            self.at.checked_add(n).filter(|end| *end <= self.bytes.len()).ok_or(self.malformed(what))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }
    /// A `u32`.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }
    /// An `i32`.
    pub fn i32(&mut self, what: &'static str) -> Result<i32, Malformed> {
        Ok(i32::from_le_bytes(self.array(what)?))
    }
    /// A `u64`.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }
    /// An `i64`.
    pub fn i64(&mut self, what: &'static str) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array(what)?))
    }
    /// Bytes without meaning; senders leave them uninitialized.
    pub fn pad(&mut self, n: usize) -> Result<(), Malformed> {
        self.take(n, "padding").map(|_| ())
    }
    /// On to the next multiple of 8.
    pub fn align8(&mut self) -> Result<(), Malformed> {
        self.pad(self.at.next_multiple_of(8) - self.at)
    }
    /// A string: length, bytes, NUL, the whole rounded up to 8. Servers look for the NUL alone; clients write none behind nothing.
    pub fn string(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let len = self.u32(what)? as usize;
        if len > self.bytes.len() {
            return Err(self.malformed(what));
        }
        let text = self.take(len, what)?;
        if text.contains(&0) || (len > 0 && self.rest().first() != Some(&0)) {
            return Err(self.malformed(what));
        }
        self.pad((4 + len + 1).next_multiple_of(8) - 4 - len)?;
        Ok(text)
    }
}

/// Writes a payload; the reverse of [`Reader`].
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty payload.
    pub fn new() -> Self {
        Self::default()
    }
    /// The payload.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }
    /// A `u32`.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    /// An `i32`.
    pub fn i32(&mut self, value: i32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    /// A `u64`.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    /// An `i64`.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    /// `n` zeroes.
    pub fn pad(&mut self, n: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len() + n, 0);
        self
    }
    /// Zeroes to the next multiple of 8.
    pub fn align8(&mut self) -> &mut Self {
        self.pad(self.bytes.len().next_multiple_of(8) - self.bytes.len())
    }
    /// A string: length, bytes, NUL, the whole rounded up to 8.
    pub fn string(&mut self, text: &[u8]) -> &mut Self {
        self.u32(text.len() as u32).bytes(text).pad((4 + text.len() + 1).next_multiple_of(8) - 4 - text.len())
    }
}

//! A script in bytes: read from the front, zeros once they are used up, so that every input means
//! something.

use std::time::Duration;

/// The bytes still to be read.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub(crate) fn long(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    /// Returns up to 0.65 s, or now and then hours.
    pub(crate) fn span(&mut self) -> Duration {
        let tens = u64::from(self.short());
        match tens {
            0xf000.. => Duration::from_secs(tens - 0xf000) * 4,
            _ => Duration::from_micros(tens * 10),
        }
    }

    /// Returns one of `values`.
    pub(crate) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::from(self.byte()) % values.len()]
    }

    /// Returns as many bytes as the next two say, or what is left.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.short()).min(self.0.len());
        let (piece, rest) = self.0.split_at(length);
        self.0 = rest;
        piece
    }

    /// Returns all that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let read = N.min(self.0.len());
        bytes[..read].copy_from_slice(&self.0[..read]);
        self.0 = &self.0[read..];
        bytes
    }
}

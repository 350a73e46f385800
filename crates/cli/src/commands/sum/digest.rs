//! The digest algorithms, and the hexadecimal form of a digest.
//!
//! Each crate selects the fastest implementation for the CPU at run time (SHA-NI, AVX-512, SSE
//! 4.2).

use clap::ValueEnum;
use sha2::{Digest as _, Sha256};

/// The values of `-a`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Algorithm {
    /// SHA-256; output format of sha256sum
    Sha256,
    /// BLAKE3, 256 bits; output format of b3sum
    Blake3,
    /// CRC-32C (Castagnoli), eight hexadecimal digits; detects accidental changes, not forgeries
    Crc32c,
}

impl Algorithm {
    /// The name in a BSD tag line and in messages.
    pub(super) fn tag(self) -> &'static str {
        match self {
            Self::Sha256 => "SHA256",
            Self::Blake3 => "BLAKE3",
            Self::Crc32c => "CRC32C",
        }
    }

    /// The size of a digest in bytes.
    pub(super) fn digest_len(self) -> usize {
        match self {
            Self::Sha256 | Self::Blake3 => LONGEST,
            Self::Crc32c => 4,
        }
    }

    pub(super) fn hasher(self) -> Hasher {
        match self {
            Self::Sha256 => Hasher::Sha256(Sha256::new()),
            Self::Blake3 => Hasher::Blake3(Box::new(blake3::Hasher::new())),
            Self::Crc32c => Hasher::Crc32c(0),
        }
    }
}

/// The size of the longest digest, in bytes.
const LONGEST: usize = 32;

/// The state of a digest computation. `finish` resets it, so the same hasher serves many files.
pub(super) enum Hasher {
    Sha256(Sha256),
    // BLAKE3 keeps 1.9 KiB of chaining values; the box keeps the enum small.
    Blake3(Box<blake3::Hasher>),
    Crc32c(u32),
}

impl Hasher {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(state) => state.update(bytes),
            Self::Blake3(state) => {
                state.update(bytes);
            }
            Self::Crc32c(state) => *state = crc32c::crc32c_append(*state, bytes),
        }
    }

    /// The digest of all bytes since the last `finish` or `forget`.
    pub(super) fn finish(&mut self) -> Digest {
        match self {
            Self::Sha256(state) => Digest::new(&state.finalize_reset()),
            Self::Blake3(state) => {
                let digest = Digest::new(state.finalize().as_bytes());
                state.reset();
                digest
            }
            Self::Crc32c(state) => Digest::new(&std::mem::take(state).to_be_bytes()),
        }
    }

    /// Resets the state after a file that could not be read to its end.
    pub(super) fn forget(&mut self) {
        match self {
            Self::Sha256(state) => sha2::digest::Reset::reset(state),
            Self::Blake3(state) => {
                state.reset();
            }
            Self::Crc32c(state) => *state = 0,
        }
    }
}

/// A finished digest; the bytes beyond its length are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Digest {
    bytes: [u8; LONGEST],
    len: u8,
}

impl Digest {
    fn new(digest: &[u8]) -> Self {
        let mut bytes = [0; LONGEST];
        bytes[..digest.len()].copy_from_slice(digest);
        Self { bytes, len: digest.len() as u8 }
    }

    /// Parses exactly `len` bytes, as hexadecimal digits in either case, from the start of `text`.
    /// Returns the rest of `text` too.
    pub(super) fn parse(text: &[u8], len: usize) -> Option<(Self, &[u8])> {
        let (hex, rest) = text.split_at_checked(len * 2)?;
        let mut bytes = [0; LONGEST];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some((Self { bytes, len: len as u8 }, rest))
    }

    /// Appends the digest in lower-case hexadecimal digits.
    pub(super) fn write_hex(&self, out: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in &self.bytes[..usize::from(self.len)] {
            out.extend_from_slice(&[
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]);
        }
    }
}

fn nibble(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(algorithm: Algorithm, text: &[u8]) -> String {
        let mut hasher = algorithm.hasher();
        hasher.update(b"of another file");
        hasher.forget();
        let (head, tail) = text.split_at(text.len() / 2);
        hasher.update(head);
        hasher.update(tail);
        let mut out = Vec::new();
        hasher.finish().write_hex(&mut out);
        hasher.finish().write_hex(&mut Vec::new());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn published_test_vectors() {
        let expected = [
            (Algorithm::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (Algorithm::Blake3, "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
            (Algorithm::Crc32c, "364b3fb7"),
        ];
        for (algorithm, digest) in expected {
            assert_eq!(hex(algorithm, b"abc"), digest);
        }
        assert_eq!(hex(Algorithm::Crc32c, b"123456789"), "e3069283");
    }

    #[test]
    fn parse_accepts_either_case_and_requires_all_digits() {
        let (digest, rest) = Digest::parse(b"DEADbeef  name", 4).unwrap();
        assert_eq!((digest, rest), (Digest::new(&[0xde, 0xad, 0xbe, 0xef]), &b"  name"[..]));
        assert!(Digest::parse(b"deadbee", 4).is_none());
        assert!(Digest::parse(b"deadbeeg", 4).is_none());
    }
}

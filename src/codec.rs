//! How rows of the store are written as bytes: the same envelope and the same few field types for all of them.
//!
//! ```text
//! version    1 byte
//! payload    n bytes  the fields in the order of their declaration
//! checksum   8 bytes  the first bytes of SHA-256(domain, version ‖ payload)
//! ```
//!
//! In the payload a number is a LEB128 varint; a text, byte string or list is its length followed by its items; an
//! option is 0, or 1 followed by the value; an enum is one byte for its variant followed by the variant's fields.

use crate::key::digest;

const CHECKSUM: usize = 8;

/// The first byte of every value that is sealed (see `seal`), and of no other one.
pub(crate) const SEALED: u8 = 0x53;

/// Why bytes are not a row of the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BytesError {
    /// Written by another version of the library.
    #[error("record format version {0} isn't known to this version of the library; use the one that wrote it")]
    Version(u8),
    /// The bytes are sealed, and no key was given.
    #[error("it is sealed: open the store with its seal key")]
    Sealed,
    /// The bytes were changed after they were written.
    #[error("record checksum doesn't match: the stored bytes are damaged")]
    Checksum,
    /// The bytes don't follow the format although the checksum matches.
    #[error("record doesn't follow its format: {0}")]
    Format(&'static str),
}

/// The bytes of `value` in the envelope of `domain`.
pub(crate) fn encode<T: Field>(domain: &str, version: u8, value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.push(version);
    value.put(&mut out);
    let checksum = checksum(domain, &out);
    out.extend_from_slice(&checksum);
    out
}

/// The value in `bytes`, which must be of this domain and version.
pub(crate) fn decode<T: Field>(domain: &str, version: u8, bytes: &[u8]) -> Result<T, BytesError> {
    let (&found, _) = bytes.split_first().ok_or(BytesError::Format("empty"))?;
    if found == SEALED {
        return Err(BytesError::Sealed);
    }
    if found != version {
        return Err(BytesError::Version(found));
    }
    let split = bytes.len().checked_sub(CHECKSUM).filter(|&at| at > 0).ok_or(BytesError::Checksum)?;
    let (body, sum) = bytes.split_at(split);
    if checksum(domain, body) != sum {
        return Err(BytesError::Checksum);
    }
    let mut rest = &body[1..];
    let value = T::take(&mut rest)?;
    if rest.is_empty() { Ok(value) } else { Err(BytesError::Format("bytes left over")) }
}

fn checksum(domain: &str, bytes: &[u8]) -> [u8; CHECKSUM] {
    let full = digest(domain, bytes).0;
    std::array::from_fn(|i| full[i])
}

/// A field: how it is written and read back.
pub(crate) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(input: &mut &[u8]) -> Result<Self, BytesError>;
}

fn take_bytes<'a>(input: &mut &'a [u8], length: usize) -> Result<&'a [u8], BytesError> {
    let (head, tail) = input.split_at_checked(length).ok_or(BytesError::Format("length beyond the end"))?;
    *input = tail;
    Ok(head)
}

pub(crate) fn take_array<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], BytesError> {
    let bytes = take_bytes(input, N)?;
    Ok(std::array::from_fn(|i| bytes[i]))
}

impl Field for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        Ok(take_array::<1>(input)?[0])
    }
}

impl Field for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = u8::take(input)?;
            let bits = u64::from(byte & 0x7f);
            if bits.leading_zeros() < shift {
                return Err(BytesError::Format("number too large"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // Each value has one form only.
                let is_shortest = byte != 0 || shift == 0;
                return if is_shortest { Ok(value) } else { Err(BytesError::Format("number too long")) };
            }
        }
        Err(BytesError::Format("number too long"))
    }
}

impl Field for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        u32::try_from(u64::take(input)?).map_err(|_| BytesError::Format("number too large"))
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        match u8::take(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BytesError::Format("unknown variant")),
        }
    }
}

pub(crate) fn put_length(length: usize, out: &mut Vec<u8>) {
    (length as u64).put(out);
}

pub(crate) fn take_length(input: &mut &[u8]) -> Result<usize, BytesError> {
    let length = usize::try_from(u64::take(input)?).map_err(|_| BytesError::Format("length too large"))?;
    // Every item takes at least a byte: a longer list can't be there, and must not be allocated for.
    if length > input.len() { Err(BytesError::Format("length beyond the end")) } else { Ok(length) }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_length(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        let length = take_length(input)?;
        let text = std::str::from_utf8(take_bytes(input, length)?).map_err(|_| BytesError::Format("text not UTF-8"))?;
        Ok(text.to_owned())
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_length(self.len(), out);
        self.iter().for_each(|item| item.put(out));
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        (0..take_length(input)?).map(|_| T::take(input)).collect()
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        if bool::take(input)? { T::take(input).map(Some) } else { Ok(None) }
    }
}

/// Structs: their fields in order.
macro_rules! struct_field {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let $type { $($field),* } = self;
                $($field.put(out);)*
            }
            fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
                $(let $field = Field::take(input)?;)*
                Ok($type { $($field),* })
            }
        }
    )*};
}

/// Enums: one byte for the variant, then its fields in order.
macro_rules! enum_field {
    ($($type:ident { $($code:literal => $variant:ident $({ $($field:ident),* })? $(($value:ident))?),* $(,)? })*) => {$(
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($type::$variant $({ $($field),* })? $(($value))? => {
                        out.push($code);
                        $($($field.put(out);)*)?
                        $($value.put(out);)?
                    })*
                }
            }
            fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
                match u8::take(input)? {
                    $($code => {
                        $($(let $field = Field::take(input)?;)*)?
                        $(let $value = Field::take(input)?;)?
                        Ok($type::$variant $({ $($field),* })? $(($value))?)
                    })*
                    _ => Err(BytesError::Format("unknown variant")),
                }
            }
        }
    )*};
}

pub(crate) use {enum_field, struct_field};

//! A base record as bytes.
//!
//! ```text
//! version    1 byte   1
//! payload    n bytes  the fields of `Base` in the order of their declaration
//! checksum   8 bytes  the first bytes of SHA-256(domain "toolonce record", version ‖ payload)
//! ```
//!
//! An occurrence is one byte for its form, followed by its fields: 0, a [`Record`] as declared; 1, what is left of one
//! whose outcome is forgotten (about 25 bytes, see [`growth`](super::growth)):
//!
//! ```text
//! fence, fence of the outcome, generation, second of the outcome    varints
//! fingerprint                                                       its first 8 bytes
//! turn that began the attempt                                       an option
//! slots                                                             a list of: run (an option, none if it is that of
//!                                                                   `about`), turn, nth, epoch, delivered,
//!                                                                   marked
//! ```
//!
//! In the payload a number is a LEB128 varint; a text, byte string or list is its length followed by its items; an
//! option is 0, or 1 followed by the value; an enum is one byte for its variant followed by the variant's fields; a
//! digest is 32 bytes, an owner 16, a leaf digest 8 (big endian).
//!
//! A version that isn't known, a checksum that doesn't match, a length beyond the end, an unknown variant or bytes
//! left over are errors; none of them is ever read as "absent".
//!
//! | version | since | change |
//! |---|---|---|
//! | 1 | 0.1.0 | first |

use super::growth::{FingerprintHead, Past, PastSlot};
use super::record::{
    About, Approval, ApprovalState, Asker, Base, Begun, Body, Claim, Failure, FailureClass, Fence, Floor, Given, Last,
    Leaf, Open, Outcome, OwnerId, Reason, Record, Signature, Slot, Statement, Strictness, ToldBy,
};
pub use crate::codec::BytesError;
use crate::codec::{self, Field, enum_field, put_length, struct_field, take_array, take_length};
use crate::key::{Digest, Fingerprint, LeafDigest};

/// The format version that is written.
pub const VERSION: u8 = 1;
const DOMAIN: &str = "toolonce record";

/// The bytes of `base`.
pub fn encode(base: &Base) -> Vec<u8> {
    codec::encode(DOMAIN, VERSION, base)
}

/// The record in `bytes`.
///
/// # Errors
/// [`BytesError`] for anything that [`encode`] didn't write.
pub fn decode(bytes: &[u8]) -> Result<Base, BytesError> {
    codec::decode(DOMAIN, VERSION, bytes)
}

impl Field for LeafDigest {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_u64().to_be_bytes());
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        take_array(input).map(|bytes| Self::from_u64(u64::from_be_bytes(bytes)))
    }
}

/// Types that are an array of bytes.
macro_rules! array_field {
    ($($type:ident),*) => {$(
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.0);
            }
            fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
                take_array(input).map(Self)
            }
        }
    )*};
}
array_field!(Digest, OwnerId, FingerprintHead);

impl Field for Fingerprint {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        take_array(input).map(Self::from_bytes)
    }
}

const FULL: u8 = 0;
const PAST: u8 = 1;

impl Field for Base {
    fn put(&self, out: &mut Vec<u8>) {
        let Base { about, occurrences, approvals, floor } = self;
        about.put(out);
        put_length(occurrences.len(), out);
        for record in occurrences {
            match Past::of(record, &about.run) {
                Some(past) => {
                    out.push(PAST);
                    past.put(out);
                }
                None => {
                    out.push(FULL);
                    record.put(out);
                }
            }
        }
        approvals.put(out);
        floor.put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        let about = About::take(input)?;
        let count = take_length(input)?;
        let occurrence = |_| match u8::take(input)? {
            FULL => Record::take(input),
            PAST => Ok(Past::take(input)?.into_record(&about.run)),
            _ => Err(BytesError::Format("unknown variant")),
        };
        let occurrences = (0..count).map(occurrence).collect::<Result<_, _>>()?;
        Ok(Base { about, occurrences, approvals: Field::take(input)?, floor: Field::take(input)? })
    }
}

struct_field! {
    Past { fence, outcome, generation, second, fingerprint, turn, slots }
    PastSlot { run, turn, nth, epoch, delivered, marked }
    About { tool, run }
    Floor { fence, generation }
    Approval { asker, asked_at, reason, arguments, state, signed, turn }
    Signature { who, at }
    Statement { fence, happened, why, signed }
    Asker { run, fingerprint }
    Record {
        fence, generation, first_sent, claim, open, begun, last, outcome, fingerprint, executed, strictness, settle,
        approved, permit, statement, kept_arguments, leaves, replays, slots
    }
    Claim { fence, owner, claimed_at, deadline }
    Open { fence, quiet_from, error }
    Begun { fence, turn }
    Last { fence, failure, attempts, not_before }
    Failure { class, message }
    Outcome { fence, fingerprint, at, order, told_by, body }
    Leaf { pointer, digest }
    Slot { run, turn, nth, id, epoch, fingerprint, given, delivered }
}

impl Field for Fence {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        u64::take(input).map(Self)
    }
}

enum_field! {
    ApprovalState { 0 => Pending, 1 => Approved, 2 => Denied { why } }
    Reason { 0 => First, 1 => Repeat, 2 => LookAlike { of } }
    Strictness { 0 => ReadOnly, 1 => Idempotent, 2 => Keyed, 3 => Write }
    FailureClass { 0 => Retryable, 1 => Permanent, 2 => Unknown }
    ToldBy { 0 => Attempt, 1 => LookUp, 2 => Human }
    Body {
        0 => Inline(bytes),
        1 => Pieces { count, length, digest },
        2 => NotKept { length, digest, head },
        3 => Dropped,
    }
    Given {
        0 => Outcome { mark, stop },
        1 => Failure(failure),
        2 => Status { kind, text },
    }
}

//! Keys, fingerprints and what is derived from them.
//!
//! Everything here is a SHA-256 over *parts*, each with a type tag and a length, so that no two different lists of
//! parts are ever the same bytes: tool `a:b` in run `c` is not tool `a` in run `b:c`.
//!
//! | value | of | leaves the guard |
//! |---|---|---|
//! | [`BaseKey`] | namespace, scope, tool, context, identity arguments | never |
//! | [`Fingerprint`] | all arguments that aren't `ignore` | never |
//! | [`LeafDigest`] | base key, where in the arguments, value; 64 bits | never |
//! | [`DownstreamKey`] | base key, occurrence, generation | as idempotency key of the system that is called |
//!
//! ```
//! use toolonce::canonical::{Arguments, Limits, Shape};
//! use toolonce::key::{KeyParts, KeyScope, base_key};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let shape = Shape::compile(&serde_json::json!({ "type": "object" }))?;
//! let arguments = Arguments::read(r#"{"amount": 42.0, "customer": "c1"}"#, &Limits::default())?;
//! let normalised = shape.normalise(&arguments)?;
//! let parts = KeyParts {
//!     namespace: "shop",
//!     scope: KeyScope::Run("order 7"),
//!     tool: "charge",
//!     context: &[],
//!     identity: normalised.identity_digest,
//!     again: 0,
//! };
//! let key = base_key(&parts);
//! assert_eq!(key.downstream(0, 0).hex32().len(), 32);
//! assert_ne!(key.downstream(0, 0), key.downstream(1, 0));
//! # Ok(())
//! # }
//! ```
//!
//! # With a secret
//!
//! A guard with a [`Secret`] takes all of these by HMAC-SHA256 (RFC 2104) over the same parts instead, so that whoever
//! reads the store can't guess an argument and try whether its digest is there: keys, fingerprints, leaf digests, and
//! the digests of arguments as they came and as they were executed. Only the downstream key stays a plain SHA-256: its
//! base key is keyed already.
//!
//! The bytes are a storage format. What is hashed for one version tag never changes; the vectors in `tests/golden`
//! are only ever added to.

use std::fmt;
use std::ops::RangeInclusive;

use hmac::Hmac;
use hmac::digest::{FixedOutput, KeyInit, Update};
use sha2::Sha256;

/// A SHA-256. `Debug` shows its first eight hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

/// The key of equal calls: namespace, scope, tool, context and identity arguments. Never leaves the guard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseKey([u8; 32]);

/// Tells whether two calls of one key also agree in what isn't identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fingerprint([u8; 32]);

/// 64 bits that tell whether one value of the arguments is the same, salted by the key: equal values of two keys
/// have different digests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafDigest(u64);

/// What the system downstream gets as idempotency key. Stable over retries, another one for each intended call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DownstreamKey([u8; 32]);

/// How a [`DownstreamKey`] is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum KeyForm {
    /// 32 hex digits in lower case, 128 bits. The default: it fits almost everywhere.
    #[default]
    Hex32,
    /// 64 hex digits in lower case, all 256 bits.
    Hex64,
    /// A UUID in the shape of version 4 (RFC 9562), 122 bits.
    Uuid,
    /// 32 hex digits in double quotes: a string of a structured header field (RFC 9651).
    Quoted,
}

impl KeyForm {
    /// How many characters, and bytes, such a key has.
    pub const fn length(self) -> usize {
        match self {
            Self::Hex32 => 32,
            Self::Hex64 => 64,
            Self::Uuid => 36,
            Self::Quoted => 34,
        }
    }
}

/// Within what equal calls are one unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyScope<'a> {
    /// Within the run of this id.
    Run(&'a str),
    /// Within the namespace, for ever.
    Global,
}

/// What a [`BaseKey`] is made of.
#[derive(Debug, Clone, Copy)]
pub struct KeyParts<'a> {
    /// Whose calls these are.
    pub namespace: &'a str,
    /// Within what equal calls are one.
    pub scope: KeyScope<'a>,
    /// The tool's name.
    pub tool: &'a str,
    /// Names and values of what matters outside the arguments, in any order.
    pub context: &'a [(String, String)],
    /// [`Normalised::identity_digest`](crate::canonical::Normalised::identity_digest).
    pub identity: Fingerprint,
    /// For which time the model asks for the same thing by an argument of its own, from 0.
    pub again: u32,
}

/// The key of equal calls.
pub fn base_key(parts: &KeyParts<'_>) -> BaseKey {
    base_key_by(Parts::new(BASE_KEY), parts)
}

fn base_key_by<H: Hash>(mut hash: Parts<H>, parts: &KeyParts<'_>) -> BaseKey {
    hash.part(b'n', parts.namespace.as_bytes());
    match parts.scope {
        KeyScope::Run(run) => hash.part(b'r', run.as_bytes()),
        KeyScope::Global => hash.part(b'g', b""),
    }
    hash.part(b't', parts.tool.as_bytes());
    let mut context: Vec<_> = parts.context.iter().collect();
    context.sort();
    for (name, value) in context {
        hash.part(b'c', name.as_bytes());
        hash.part(b'v', value.as_bytes());
    }
    hash.part(b'i', parts.identity.as_bytes());
    if parts.again > 0 {
        hash.part(b'a', &parts.again.to_be_bytes());
    }
    BaseKey(hash.finish())
}

/// The SHA-256 of `bytes` for one purpose: equal bytes under two domains have different digests.
pub fn digest(domain: &str, bytes: &[u8]) -> Digest {
    digest_by(Parts::new(domain), bytes)
}

fn digest_by<H: Hash>(mut hash: Parts<H>, bytes: &[u8]) -> Digest {
    hash.part(b'b', bytes);
    Digest(hash.finish())
}

fn leaf_by<H: Hash>(mut hash: Parts<H>, key: &BaseKey, pointer: &str, value: &[u8]) -> LeafDigest {
    hash.part(b'k', &key.0);
    hash.part(b'p', pointer.as_bytes());
    hash.part(b'v', value);
    let [a, b, c, d, e, f, g, h, ..] = hash.finish();
    LeafDigest(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

const BASE_KEY: &str = "toolonce key v1";
const LEAF: &str = "toolonce leaf v1";

/// What keys and digests are derived with, so that they tell nothing to who doesn't have it: at least 16 random bytes,
/// kept where the program's other secrets are. Give it to a guard with
/// [`GuardBuilder::secret`](crate::GuardBuilder::secret).
///
/// Whoever has the store can try candidates for the secret offline; a password that people can remember is none.
///
/// ```
/// use toolonce::key::Secret;
///
/// let secret = Secret::new(b"0f3b...32 bytes from the program's vault");
/// assert_eq!(format!("{secret:?}"), "Secret(..)");
/// ```
#[derive(Clone)]
pub struct Secret {
    /// HMAC that has read its key and nothing else.
    hmac: Hmac<Sha256>,
    is_empty: bool,
}

impl Secret {
    /// A secret of these bytes, of any length but 0.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        // RFC 2104: a key longer than a block is hashed first, a shorter one padded with zeros.
        let hashed: [u8; 32];
        let short = if bytes.len() > 64 {
            hashed = <Sha256 as sha2::Digest>::digest(bytes).into();
            &hashed[..]
        } else {
            bytes
        };
        let mut block = [0; 64];
        block[..short.len()].copy_from_slice(short);
        Self { hmac: Hmac::new(&block.into()), is_empty: bytes.is_empty() }
    }

    /// Whether there is nothing secret about it.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// As [`base_key`], with this secret.
    pub fn base_key(&self, parts: &KeyParts<'_>) -> BaseKey {
        base_key_by(self.parts(BASE_KEY), parts)
    }

    /// As [`digest`], with this secret.
    pub fn digest(&self, domain: &str, bytes: &[u8]) -> Digest {
        digest_by(self.parts(domain), bytes)
    }

    /// The fingerprint that is stored for `plain`.
    pub fn fingerprint(&self, plain: Fingerprint) -> Fingerprint {
        Fingerprint(self.digest("toolonce keyed fingerprint v1", &plain.0).0)
    }

    /// As [`BaseKey::leaf`], with this secret.
    pub fn leaf(&self, key: &BaseKey, pointer: &str, value: &[u8]) -> LeafDigest {
        leaf_by(self.parts(LEAF), key, pointer, value)
    }

    fn parts(&self, domain: &str) -> Parts<Hmac<Sha256>> {
        Parts::by(self.hmac.clone(), domain)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Digest {
    /// All of it as 64 hex digits.
    pub(crate) fn hex(&self) -> String {
        hex(&self.0)
    }
}

impl BaseKey {
    /// The key of these bytes, as read from a store.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key of the same call in a fork called `run`. `self` is the key that it would have in a run without a name.
    pub fn in_fork(&self, run: &str) -> Self {
        let mut hash = Parts::new("toolonce fork key v1");
        hash.part(b'r', run.as_bytes());
        hash.part(b'k', &self.0);
        Self(hash.finish())
    }

    /// The downstream key of one occurrence and generation.
    pub fn downstream(&self, occurrence: u32, generation: u32) -> DownstreamKey {
        let mut hash = Parts::new("toolonce downstream v1");
        hash.part(b'k', &self.0);
        hash.part(b'o', &occurrence.to_be_bytes());
        hash.part(b'g', &generation.to_be_bytes());
        DownstreamKey(hash.finish())
    }

    /// What people call the question by whether a call of `run` with this fingerprint may run: 12 hex digits.
    pub fn question(&self, run: &str, fingerprint: &Fingerprint) -> String {
        let mut hash = Parts::new("toolonce question v1");
        hash.part(b'k', &self.0);
        hash.part(b'r', run.as_bytes());
        hash.part(b'f', fingerprint.as_bytes());
        hex(&hash.finish()[..6])
    }

    /// The digest of the value at `pointer` (RFC 6901), `value` being its canonical text.
    pub fn leaf(&self, pointer: &str, value: &[u8]) -> LeafDigest {
        leaf_by(Parts::new(LEAF), self, pointer, value)
    }
}

impl Fingerprint {
    /// The fingerprint of the canonical text of all arguments that aren't `ignore`.
    pub fn of(text: &[u8]) -> Self {
        Self(digest("toolonce fingerprint v1", text).0)
    }

    /// The fingerprint of these bytes, as read from a store.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 64 bits: what is kept of it where a whole one is too long.
    pub fn head(&self) -> [u8; 8] {
        std::array::from_fn(|i| self.0[i])
    }
}

impl LeafDigest {
    /// The digest of this number, as read from a store.
    pub fn from_u64(bits: u64) -> Self {
        Self(bits)
    }

    /// The 64 bits.
    pub fn to_u64(self) -> u64 {
        self.0
    }
}

impl DownstreamKey {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 128 bits as 32 hex digits: the usual form.
    pub fn hex32(&self) -> String {
        hex(&self.0[..16])
    }

    /// All 256 bits as 64 hex digits.
    pub fn hex64(&self) -> String {
        hex(&self.0)
    }

    /// The first 128 bits in the shape of a random UUID (RFC 9562, version 4): 122 of them are kept.
    pub fn uuid(&self) -> String {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.0[..16]);
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex = hex(&bytes);
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// The key as a provider wants it.
    pub fn in_form(&self, form: KeyForm) -> String {
        match form {
            KeyForm::Hex32 => self.hex32(),
            KeyForm::Hex64 => self.hex64(),
            KeyForm::Uuid => self.uuid(),
            KeyForm::Quoted => format!("\"{}\"", self.hex32()),
        }
    }

    /// The first 12 hex digits: what people call the unit of work by.
    pub fn reference(&self) -> String {
        hex(&self.0[..REFERENCE_DIGITS.end() / 2])
    }
}

/// How many digits of a [reference](DownstreamKey::reference) name a unit of work: all 12 where it is changed, and 6 are
/// enough to [look](crate::Guard::show) at it.
pub const REFERENCE_DIGITS: RangeInclusive<usize> = 6..=12;

/// What tagged parts are hashed with: SHA-256, or HMAC-SHA256.
trait Hash: Update + FixedOutput<OutputSize = <Sha256 as hmac::digest::OutputSizeUser>::OutputSize> {}

impl<H: Update + FixedOutput<OutputSize = <Sha256 as hmac::digest::OutputSizeUser>::OutputSize>> Hash for H {}

/// A digest over tagged parts.
struct Parts<H = Sha256>(H);

impl Parts {
    fn new(domain: &str) -> Self {
        Self::by(Sha256::default(), domain)
    }
}

impl<H: Hash> Parts<H> {
    fn by(hash: H, domain: &str) -> Self {
        let mut parts = Self(hash);
        parts.part(b'd', domain.as_bytes());
        parts
    }

    fn part(&mut self, tag: u8, bytes: &[u8]) {
        let mut head = [0; 9];
        head[0] = tag;
        head[1..].copy_from_slice(&(bytes.len() as u64).to_be_bytes());
        self.0.update(&head);
        self.0.update(bytes);
    }

    fn finish(self) -> [u8; 32] {
        self.0.finalize_fixed().into()
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Keys are no secrets, but whole ones in logs invite being copied to where they don't belong.
macro_rules! short_debug {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({}…)"), hex(&self.0[..4]))
            }
        }
    )*};
}

short_debug!(Digest, BaseKey, Fingerprint, DownstreamKey);

impl fmt::Debug for LeafDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeafDigest({}…)", hex(&self.0.to_be_bytes()[..4]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test cases 1, 2, 3, 4 and 6 (a key longer than a block), read through our own key padding.
    #[test]
    fn secrets_are_hmac_keys() {
        let vectors: [(Vec<u8>, Vec<u8>, &str); 5] = [
            (vec![0x0b; 20], b"Hi There".to_vec(), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe".to_vec(),
                b"what do ya want for nothing?".to_vec(),
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (vec![0xaa; 20], vec![0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
            ((1..=25).collect(), vec![0xcd; 50], "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
            (
                vec![0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec(),
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, message, expected) in vectors {
            let mut hmac = Secret::new(key).hmac;
            Update::update(&mut hmac, &message);
            assert_eq!(hex(&hmac.finalize_fixed()), expected);
        }
    }
}

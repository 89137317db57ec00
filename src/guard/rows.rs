//! Where things are in the store, and the rows that aren't base records.
//!
//! ```text
//! key = namespace (8 bytes of its digest) ‖ kind (1 byte) ‖ rest
//!
//! b  base key (32)                                    base record                 protocol::bytes
//! c  base key (32) ‖ occurrence (4) ‖ fence (8) ‖ n (4)   n-th piece of a result      as pieces in `long`
//! k                                           what the namespace is kept secret with  SecretRow
//! o  base key (32)                                    an unresolved record        empty
//! r  run (32)                                         epoch and cuts of a run     RunRow
//! l  run (32)                                         progress of a run           RunLog
//! i  run (32) ‖ base key (32)                         a record of a run           RunUnit
//! g  base key (32)                                    a record that no run keeps  GlobalUnit
//! u  run (32) ‖ base key (32)                         such a record, found by a run that claimed or asked in it   empty
//! m  run (32) ‖ turn (4)                              calls of one turn           Manifest, long
//! s  run (32) ‖ name (32) ‖ n (4)                     value of a step             StepRow, long
//! t  run (32) ‖ tool (32)                             a tool's key contract       ContractRow
//! x  run (32) ‖ skeleton (32)                         calls that look alike       LookAlikes
//! p  run (32) ‖ order (8)                             a completion that reopens   Reopening
//! w  owner (16), under the namespace 0                proof of life               see `lease`
//! ```
//!
//! The rows `i` and `g` are put by the batch that creates the record: `i` for one in the scope of a run, `g` for a global
//! one whose tool has a retention; a global one without is kept for ever. The row `u` is put by every claim and question
//! of a run in a global record, so that the run isn't removed while that is open.
//!
//! A value whose first byte is 0x53 is sealed: see `seal`. A long row may be cut into pieces: see `long`. Numbers in
//! keys are big endian, so that a scan sees them in order.

use crate::Millis;
use crate::codec::{self, BytesError, Field, enum_field, struct_field};
use crate::error::Error;
use crate::key::{BaseKey, Digest, Fingerprint, digest};
use crate::protocol::fork::Ancestor;
use crate::protocol::history::{History, Seen};
use crate::protocol::record::{Fence, OwnerId, Turn};
use crate::store::Key;

const ROW_VERSION: u8 = 1;

/// The first bytes of every key of one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Prefix([u8; 8]);

impl Prefix {
    pub(crate) fn new(namespace: &str) -> Self {
        let full = digest("toolonce namespace", namespace.as_bytes()).0;
        Self(std::array::from_fn(|i| full[i]))
    }

    fn key(self, kind: u8, rest: &[&[u8]]) -> Key {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&self.0);
        bytes.push(kind);
        rest.iter().for_each(|part| bytes.extend_from_slice(part));
        Key::new(bytes)
    }

    pub(crate) fn base(self, key: &BaseKey) -> Key {
        self.key(Kind::Records as u8, &[key.as_bytes()])
    }

    pub(crate) fn piece(self, key: &BaseKey, occurrence: usize, fence: Fence, n: u32) -> Key {
        let occurrence = u32::try_from(occurrence).unwrap_or(u32::MAX);
        self.key(b'c', &[key.as_bytes(), &occurrence.to_be_bytes(), &fence.0.to_be_bytes(), &n.to_be_bytes()])
    }

    /// What all keys of the namespace start with.
    pub(crate) fn all(self) -> [u8; 8] {
        self.0
    }

    pub(crate) fn secrets(self) -> Key {
        self.key(b'k', &[])
    }

    pub(crate) fn open(self, key: &BaseKey) -> Key {
        self.key(Kind::Open as u8, &[key.as_bytes()])
    }

    pub(crate) fn run(self, run: &str) -> Key {
        self.key(Kind::Runs as u8, &[&name(run)])
    }

    pub(crate) fn log(self, run: &str) -> Key {
        self.key(Kind::Logs as u8, &[&name(run)])
    }

    /// What all keys of a kind start with.
    pub(crate) fn all_of(self, kind: Kind) -> Vec<u8> {
        self.key(kind as u8, &[]).as_bytes().to_vec()
    }

    /// What all keys of one run start with.
    pub(crate) fn all_of_run(self, kind: RunKind, run: &str) -> Vec<u8> {
        self.key(kind as u8, &[&name(run)]).as_bytes().to_vec()
    }

    pub(crate) fn run_unit(self, run: &str, key: &BaseKey) -> Key {
        self.key(RunKind::Units as u8, &[&name(run), key.as_bytes()])
    }

    pub(crate) fn global_unit(self, key: &BaseKey) -> Key {
        self.key(Kind::Globals as u8, &[key.as_bytes()])
    }

    pub(crate) fn run_global(self, run: &str, key: &BaseKey) -> Key {
        self.key(RunKind::Globals as u8, &[&name(run), key.as_bytes()])
    }

    /// The base key that the key of a record or of an index ends with.
    pub(crate) fn key_in(index: &Key) -> Option<BaseKey> {
        index.as_bytes().last_chunk().copied().map(BaseKey::from_bytes)
    }

    /// The key of a run's row for another run.
    pub(crate) fn for_run(self, kind: RunKind, key: &Key, run: &str) -> Key {
        let rest = key.as_bytes().get(9 + 32..).unwrap_or_default();
        self.key(kind as u8, &[&name(run), rest])
    }

    pub(crate) fn manifest(self, run: &str, turn: Turn) -> Key {
        self.key(RunKind::Manifests as u8, &[&name(run), &turn.to_be_bytes()])
    }

    pub(crate) fn contract(self, run: &str, tool: &str) -> Key {
        self.key(RunKind::Contracts as u8, &[&name(run), &name(tool)])
    }

    pub(crate) fn look_alikes(self, run: &str, skeleton: &Digest) -> Key {
        self.key(RunKind::LookAlikes as u8, &[&name(run), &skeleton.0])
    }

    pub(crate) fn reopening(self, run: &str, order: u64) -> Key {
        self.key(RunKind::Reopenings as u8, &[&name(run), &order.to_be_bytes()])
    }

    pub(crate) fn step(self, run: &str, step: &str, n: u32) -> Key {
        self.key(RunKind::Steps as u8, &[&name(run), &name(step), &n.to_be_bytes()])
    }
}

fn name(text: &str) -> [u8; 32] {
    digest("toolonce name", text.as_bytes()).0
}

/// What can be listed of a namespace.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Kind {
    Records = b'b',
    Open = b'o',
    Runs = b'r',
    Logs = b'l',
    Globals = b'g',
}

/// What can be listed of a run.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum RunKind {
    Units = b'i',
    Manifests = b'm',
    Steps = b's',
    Contracts = b't',
    LookAlikes = b'x',
    Reopenings = b'p',
    Globals = b'u',
}

impl RunKind {
    /// What a run has beside its records and their index, in the order in which it is removed.
    pub(crate) const BESIDE_UNITS: [Self; 6] =
        [Self::Manifests, Self::Steps, Self::Contracts, Self::LookAlikes, Self::Reopenings, Self::Globals];
}

/// What all proofs of life start with.
pub(crate) const OWNERS: [u8; 9] = [0, 0, 0, 0, 0, 0, 0, 0, b'w'];

pub(crate) fn owner(owner: OwnerId) -> Key {
    Prefix([0; 8]).key(b'w', &[&owner.0])
}

pub(crate) fn key_of_owner(key: &Key) -> Option<OwnerId> {
    key.as_bytes().get(9..).and_then(|rest| rest.try_into().ok()).map(OwnerId)
}

/// What a namespace was written with: whoever lacks any of it must not work in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SecretRow {
    /// A check value for each secret; none if it was written without one.
    pub(crate) checks: Vec<Digest>,
    /// The ids of all keys that rows were sealed with.
    pub(crate) seals: Vec<u64>,
}

/// Epoch and cuts of a run. Changes only when the run is started, resumed, made by a fork or removed, so that every claim
/// can check it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RunRow {
    pub(crate) run: String,
    pub(crate) started_at: Millis,
    pub(crate) history: History,
    pub(crate) life: Life,
    /// Of a fork: the runs of its line, the first one first.
    pub(crate) line: Vec<Ancestor>,
}

/// What values of a run are salted with. A fork has that of the first of its line, or what was done before couldn't be
/// compared.
pub(crate) fn salt<'a>(run: &'a str, line: &'a [Ancestor]) -> &'a str {
    line.first().map_or(run, |first| &first.run)
}

/// Whether a run may be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Life {
    #[default]
    Open,
    /// A fork that isn't copied yet.
    Copying,
    /// Found to be past its retention: nothing begins in it until it was looked at once more. Nothing is removed yet.
    Closing,
    /// What it has is being removed.
    Removing,
    /// Removed: what is left of the run.
    Purged { at: Millis },
}

impl Life {
    /// Whether nothing of the run is removed.
    pub(crate) fn is_there(self) -> bool {
        !matches!(self, Self::Removing | Self::Purged { .. })
    }
}

/// Progress of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RunLog {
    /// When it was last written: a sign of life of the run.
    pub(crate) active_at: Millis,
    /// The last turn of the present history of which a call was answered.
    pub(crate) last_turn: Option<Turn>,
    /// The last turn that the present history saw, as far as its steps tell.
    pub(crate) seen: Option<Turn>,
    /// Completions so far, of tools that take part in `reopened_by`.
    pub(crate) completions: u64,
    /// The place of each such tool's newest completion.
    pub(crate) newest: Vec<Completion>,
}

impl RunLog {
    pub(crate) fn newest_of(&self, tool: &str) -> u64 {
        self.newest.iter().find(|c| c.tool == tool).map_or(0, |c| c.order)
    }

    /// The last turn after which nothing given earlier may change: one of it was answered, or a step that was recorded
    /// has gone on from the turn before.
    pub(crate) fn last_answered(&self) -> Option<Turn> {
        self.last_turn.max(self.seen.map(|seen| seen.saturating_add(1)))
    }

    /// Counts a completion and gives its place.
    pub(crate) fn complete(&mut self, tool: &str) -> u64 {
        self.completions += 1;
        let order = self.completions;
        match self.newest.iter_mut().find(|c| c.tool == tool) {
            Some(completion) => completion.order = order,
            None => self.newest.push(Completion { tool: tool.to_owned(), order }),
        }
        order
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) tool: String,
    pub(crate) order: u64,
}

/// What the keys of a tool's calls depend on in a run, beside the calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContractRow {
    pub(crate) contract: Digest,
}

/// The calls of one tool and skeleton that weren't finished when they were last looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LookAlikes {
    pub(crate) calls: Vec<LookAlikeCall>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LookAlikeCall {
    pub(crate) key: BaseKey,
    pub(crate) occurrence: u32,
}

/// A completion of a tool that reopens another, with the values it was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reopening {
    pub(crate) tool: String,
    /// The turn that began it, if it had one.
    pub(crate) turn: Option<Turn>,
    pub(crate) values: Vec<PlacedValue>,
}

/// The digest of a value, and where in the arguments it stood (JSON pointer).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedValue {
    pub(crate) pointer: String,
    pub(crate) value: u64,
}

/// A record of a run, found by the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunUnit {
    /// See [`Work::alias`](super::work::Work::alias).
    pub(crate) alias: BaseKey,
}

/// A record of no run that isn't kept for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GlobalUnit {
    /// How long after its last attempt it is kept, in milliseconds.
    pub(crate) retention: u64,
}

/// The calls of one turn, as they were handed over first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) epoch: u32,
    pub(crate) calls: Vec<ManifestCall>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestCall {
    pub(crate) id: String,
    pub(crate) tool: String,
    /// Digest of the argument text as it came.
    pub(crate) raw: Digest,
    /// The base key; all zero for a call that was refused before it had one.
    pub(crate) key: BaseKey,
    /// Of its arguments: with the key what a second delivery of the same text is known by, whatever the tool's schema is
    /// by then.
    pub(crate) fingerprint: Fingerprint,
    /// What a fork of the run makes its key from; `None` if the key holds in every run.
    pub(crate) alias: Option<BaseKey>,
}

/// A recorded step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepRow {
    /// The turn that it belongs to: the one after the last that was answered when the step was asked for.
    pub(crate) turn: Turn,
    pub(crate) input: Digest,
    /// JSON text.
    pub(crate) value: String,
}

struct_field! {
    SecretRow { checks, seals }
    History { cuts }
    RunRow { run, started_at, history, life, line }
    Ancestor { run, before, epoch }
    RunLog { active_at, last_turn, seen, completions, newest }
    Completion { tool, order }
    Manifest { epoch, calls }
    ManifestCall { id, tool, raw, key, fingerprint, alias }
    ContractRow { contract }
    LookAlikes { calls }
    LookAlikeCall { key, occurrence }
    Reopening { tool, turn, values }
    PlacedValue { pointer, value }
    StepRow { turn, input, value }
    RunUnit { alias }
    GlobalUnit { retention }
}

enum_field! {
    Seen { 0 => Nothing, 1 => Through(turn) }
    Life { 0 => Open, 1 => Copying, 2 => Closing, 3 => Removing, 4 => Purged { at } }
}

impl Field for BaseKey {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
    fn take(input: &mut &[u8]) -> Result<Self, BytesError> {
        codec::take_array(input).map(Self::from_bytes)
    }
}

/// A row with an envelope of its own.
pub(crate) trait Row: Field {
    const DOMAIN: &'static str;
    /// What it is, for an error.
    const WHAT: &'static str;

    fn to_bytes(&self) -> Vec<u8> {
        codec::encode(Self::DOMAIN, ROW_VERSION, self)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, BytesError> {
        codec::decode(Self::DOMAIN, ROW_VERSION, bytes)
    }

    /// The row in a store.
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_bytes(bytes).map_err(|error| Error::corrupt(Self::WHAT, error))
    }
}

impl Row for SecretRow {
    const DOMAIN: &'static str = "toolonce secrets";
    const WHAT: &'static str = "what the namespace was written with";
}
impl Row for RunRow {
    const DOMAIN: &'static str = "toolonce run";
    const WHAT: &'static str = "a run";
}
impl Row for RunLog {
    const DOMAIN: &'static str = "toolonce log";
    const WHAT: &'static str = "a run's log";
}
impl Row for Manifest {
    const DOMAIN: &'static str = "toolonce manifest";
    const WHAT: &'static str = "the manifest of a turn";
}
impl Row for ContractRow {
    const DOMAIN: &'static str = "toolonce contract";
    const WHAT: &'static str = "the key rules of a tool";
}
impl Row for LookAlikes {
    const DOMAIN: &'static str = "toolonce look-alikes";
    const WHAT: &'static str = "the calls that look alike";
}
impl Row for Reopening {
    const DOMAIN: &'static str = "toolonce reopening";
    const WHAT: &'static str = "a completion";
}
impl Row for StepRow {
    const DOMAIN: &'static str = "toolonce step";
    const WHAT: &'static str = "a step";
}
impl Row for RunUnit {
    const DOMAIN: &'static str = "toolonce unit";
    const WHAT: &'static str = "an entry of the index of records";
}
impl Row for GlobalUnit {
    const DOMAIN: &'static str = "toolonce global unit";
    const WHAT: &'static str = "an entry of the index of records";
}

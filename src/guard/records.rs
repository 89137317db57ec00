//! Base records between the store, the memory tier and what this process alone knows.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use moka::ops::compute::Op;
use moka::sync::Cache;

use super::long::{self, PIECE};
use super::rows::{Kind, Prefix};
use crate::error::unreadable;
use crate::key::{BaseKey, Digest, DownstreamKey, digest};
use crate::protocol::bytes;
use crate::protocol::growth::{self, Dropped, KEPT_OUTCOMES, KEPT_SLOTS};
use crate::protocol::history::History;
use crate::protocol::notes::{Note, is_noted, note};
use crate::protocol::record::{Approval, ApprovalState, Base, Body, Fence};
use crate::store::{Batch, Committed, Durability, Key, MAX_VALUE, Purpose, Store, StoreError, Version};

/// The longest record, in bytes: sealing makes it a little longer.
const ROOM: usize = MAX_VALUE - 64;

/// Results up to this length live in the record, as long as it has few of them.
const INLINE: usize = 4096;

/// What is left of texts in a record that would be too long otherwise, in bytes.
const CUT_TEXT: usize = 64;

/// A base record as this process knows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) base: Arc<Base>,
    pub(crate) version: Option<Version>,
    /// Up to which pending note `base` has them.
    noted: u64,
}

/// What a commit of a base record takes along.
#[derive(Debug, Default)]
pub(crate) struct Along {
    pub(crate) checks: Vec<(Key, Option<Version>)>,
    pub(crate) puts: Vec<(Key, Vec<u8>)>,
    pub(crate) deletes: Vec<Key>,
}

/// How a commit of a base record ended.
#[derive(Debug)]
pub(crate) enum Put {
    Done {
        version: Version,
    },
    /// Something moved: decide again. Holds what the store has under the keys that [`Along`] checked.
    Moved(Vec<Option<crate::store::Versioned>>),
}

/// A record with all notes up to one, on its way into the store.
#[derive(Debug)]
pub(crate) struct Noted {
    base: Arc<Base>,
    up_to: u64,
}

/// A note that isn't in the store yet.
#[derive(Debug, Clone)]
struct Pending {
    seq: u64,
    note: Note,
    history: Arc<History>,
    prefix: Prefix,
}

/// The notes of one record that aren't in the store yet, oldest first; never none.
#[derive(Debug, Default)]
struct Unwritten {
    notes: Vec<Pending>,
    /// The record of this version with all of them, so that they aren't added anew for everybody who asks.
    with_all: Option<(Version, Arc<Base>)>,
}

#[derive(Debug, Default)]
struct Notes {
    seq: u64,
    pending: HashMap<BaseKey, Unwritten>,
}

impl Notes {
    /// The oldest note of `key` that isn't in the store yet.
    fn oldest(&self, key: &BaseKey) -> Option<u64> {
        self.pending.get(key)?.notes.first().map(|p| p.seq)
    }

    /// That of every record which has one.
    fn all_oldest(&self) -> HashMap<BaseKey, u64> {
        self.pending.iter().filter_map(|(key, pending)| Some((*key, pending.notes.first()?.seq))).collect()
    }

    /// Forgets the notes of `key` that the store has, or never will.
    fn forget(&mut self, key: &BaseKey, up_to: u64) {
        if let Some(pending) = self.pending.get_mut(key) {
            pending.notes.retain(|p| p.seq > up_to);
            pending.with_all = None;
            if pending.notes.is_empty() {
                self.pending.remove(key);
            }
        }
    }

    /// `known` with the notes that it lacks.
    fn on(&mut self, key: &BaseKey, mut known: Known) -> Known {
        let Some(pending) = self.pending.get_mut(key) else { return known };
        known.noted = pending.notes.last().map_or(0, |p| p.seq);
        match &pending.with_all {
            Some((version, base)) if Some(*version) == known.version => known.base = Arc::clone(base),
            _ => {
                let base = Arc::make_mut(&mut known.base);
                pending.notes.iter().for_each(|p| note(base, &p.history, &p.note));
                pending.with_all = known.version.map(|version| (version, Arc::clone(&known.base)));
            }
        }
        known
    }

    fn add(&mut self, key: BaseKey, added: Pending) {
        let pending = self.pending.entry(key).or_default();
        if let Some((_, base)) = &mut pending.with_all {
            note(Arc::make_mut(base), &added.history, &added.note);
        }
        pending.notes.push(added);
    }
}

/// The records of one store.
pub(crate) struct Records {
    store: Arc<dyn Store>,
    /// Records as this process last saw them; only where every commit goes through this process.
    tier: Option<Cache<BaseKey, Known>>,
    notes: Mutex<Notes>,
}

impl Records {
    pub(crate) fn new(store: Arc<dyn Store>, tier_bytes: u64) -> Self {
        let weigh = |_: &BaseKey, known: &Known| u32::try_from(weight(&known.base)).unwrap_or(u32::MAX);
        let tier = store.is_exclusive().then(|| Cache::builder().weigher(weigh).max_capacity(tier_bytes).build());
        Self { store, tier, notes: Mutex::default() }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The record as the memory tier has it.
    pub(crate) fn at_hand(&self, key: &BaseKey) -> Option<Known> {
        // Looked up under the lock: a note that is written leaves in the step in which the record that has it comes.
        self.at_hand_with(&mut self.notes(), key)
    }

    fn at_hand_with(&self, notes: &mut Notes, key: &BaseKey) -> Option<Known> {
        let known = self.tier.as_ref()?.get(key)?;
        Some(notes.on(key, known))
    }

    /// The record, from the memory tier where that is allowed.
    pub(crate) async fn load(&self, prefix: Prefix, key: &BaseKey) -> Result<Known, StoreError> {
        match self.at_hand(key) {
            Some(known) => Ok(known),
            None => self.load_fresh(prefix, key).await,
        }
    }

    /// The record as the store has it now.
    pub(crate) async fn load_fresh(&self, prefix: Prefix, key: &BaseKey) -> Result<Known, StoreError> {
        loop {
            let oldest = self.notes().oldest(key);
            let stored = self.store.get(&[prefix.base(key)]).await?.pop().flatten();
            let known = self.read(stored)?;
            self.keep(key, &known);
            if let Some(known) = self.with_notes(key, known, oldest) {
                return Ok(known);
            }
        }
    }

    /// A record that was read when `oldest` was its oldest note, with what it lacks. `None` if a note was written
    /// meanwhile: that one has left, and the record may have been read before it came.
    fn with_notes(&self, key: &BaseKey, known: Known, oldest: Option<u64>) -> Option<Known> {
        let mut notes = self.notes();
        (oldest.is_none() || notes.oldest(key) == oldest).then(|| notes.on(key, known))
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At most `limit` records of the namespace as the store has them, from `from` on, and where the next page starts.
    /// Leaves the memory tier alone: who looks at everything needs nothing of it soon.
    pub(crate) async fn page(
        &self,
        prefix: Prefix,
        from: Option<Key>,
        limit: usize,
    ) -> Result<(Vec<(BaseKey, Known)>, Option<Key>), StoreError> {
        let oldest = self.notes().all_oldest();
        let page = self.store.scan(&prefix.all_of(Kind::Records), from, limit).await?;
        let mut records = Vec::with_capacity(page.items.len());
        for (place, stored) in page.items {
            if let Some(key) = Prefix::key_in(&place) {
                let known = self.read(Some(stored))?;
                let known = match self.with_notes(&key, known, oldest.get(&key).copied()) {
                    Some(known) => known,
                    None => self.load_fresh(prefix, &key).await?,
                };
                records.push((key, known));
            }
        }
        Ok((records, page.next))
    }

    fn read(&self, stored: Option<crate::store::Versioned>) -> Result<Known, StoreError> {
        let Some(stored) = stored else {
            return Ok(Known::default());
        };
        let base = bytes::decode(&stored.value)
            .map_err(|error| StoreError::new(unreadable(&error), format!("a record can't be read: {error}")))?;
        Ok(Known { base: Arc::new(base), version: Some(stored.version), noted: 0 })
    }

    /// Never lets an older version replace a newer one, whatever the order in which tasks get here.
    fn keep(&self, key: &BaseKey, known: &Known) {
        let Some(tier) = &self.tier else { return };
        if known.version.is_none() {
            return tier.invalidate(key);
        }
        tier.entry(*key).and_compute_with(|entry| match entry {
            Some(entry) if entry.value().version >= known.version => Op::Nop,
            _ => Op::Put(known.clone()),
        });
    }

    /// Forgets what the memory tier has of a record that was removed.
    pub(crate) fn forget(&self, key: &BaseKey) {
        if let Some(tier) = &self.tier {
            tier.invalidate(key);
        }
    }

    /// Adds a note to what this process knows, visible at once, and says whether there is something to
    /// [write](Self::flush): not what the record at hand says already.
    pub(crate) fn note(&self, prefix: Prefix, key: BaseKey, history: Arc<History>, note: Note) -> bool {
        let mut notes = self.notes();
        if self.at_hand_with(&mut notes, &key).is_some_and(|known| is_noted(&known.base, &history, &note)) {
            return false;
        }
        notes.seq += 1;
        let seq = notes.seq;
        notes.add(key, Pending { seq, note, history, prefix });
        true
    }

    /// Whether any note waits to be written.
    pub(crate) fn has_notes(&self) -> bool {
        !self.notes().pending.is_empty()
    }

    /// Whether any note of this record does.
    pub(crate) fn has_notes_of(&self, key: &BaseKey) -> bool {
        self.notes().pending.contains_key(key)
    }

    /// Drops all notes of `key`: there is nothing to write them into.
    fn drop_notes(&self, key: &BaseKey) {
        self.notes().forget(key, u64::MAX);
    }

    /// Keeps a record that was committed as this version and forgets the notes that it has by now: in one step, or who
    /// finds the record in between would add them once more.
    pub(crate) fn noted(&self, key: &BaseKey, Noted { base, up_to }: Noted, version: Version) {
        let mut notes = self.notes();
        self.keep(key, &Known { base, version: Some(version), noted: 0 });
        notes.forget(key, up_to);
    }

    /// Writes the pending notes of `key`, in order and not synced. A note that can't be written is dropped: what was
    /// delivered then counts as not delivered, and a repeat as a retry.
    pub(crate) async fn flush(&self, key: &BaseKey) {
        loop {
            let prefix = {
                let notes = self.notes();
                match notes.pending.get(key).and_then(|pending| pending.notes.last()) {
                    Some(pending) => pending.prefix,
                    None => return,
                }
            };
            let written = match self.load(prefix, key).await {
                // Notes are about records; one that isn't there has no places.
                Ok(known) if known.version.is_none() => return self.drop_notes(key),
                Ok(known) => {
                    let next = Base::clone(&known.base);
                    self.put(prefix, key, &known, next, Along::default(), Durability::Ordered, Purpose::Other).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                tracing::warn!(%error, "what was delivered could not be noted; a repeat will count as a retry");
                return self.drop_notes(key);
            }
        }
    }

    /// Writes `next` if the store still has `known`.
    #[allow(clippy::too_many_arguments)] // one commit has that many independent parts
    pub(crate) async fn put(
        &self,
        prefix: Prefix,
        key: &BaseKey,
        known: &Known,
        mut next: Base,
        along: Along,
        durability: Durability,
        purpose: Purpose,
    ) -> Result<Put, StoreError> {
        let mut batch = Batch { purpose, ..Batch::default() };
        self.add(prefix, key, known, &mut next, &mut batch);
        batch.checks.extend(along.checks);
        batch.puts.extend(along.puts);
        batch.deletes.extend(along.deletes);
        // A result that comes so late that it is dropped at once: its pieces are neither written nor deleted twice.
        if !batch.deletes.is_empty() {
            let dropped: HashSet<&Key> = batch.deletes.iter().collect();
            batch.puts.retain(|(key, _)| !dropped.contains(key));
        }
        match self.store.commit(batch, durability).await? {
            Committed::Applied(version) => {
                self.noted(key, Noted { base: Arc::new(next), up_to: known.noted }, version);
                Ok(Put::Done { version })
            }
            Committed::Conflict(mut existing) => {
                if !existing.is_empty() {
                    let newer = self.read(existing.remove(0))?;
                    self.keep(key, &newer);
                }
                Ok(Put::Moved(existing))
            }
        }
    }

    /// Adds `next` to a batch that is applied if the store still has `known`.
    fn add(&self, prefix: Prefix, key: &BaseKey, known: &Known, next: &mut Base, batch: &mut Batch) {
        let value = self.encode(prefix, key, next, batch);
        batch.checks.push((prefix.base(key), known.version));
        batch.puts.push((prefix.base(key), value));
        match (is_open(&known.base), is_open(next)) {
            (false, true) => batch.puts.push((prefix.open(key), Vec::new())),
            (true, false) => batch.deletes.push(prefix.open(key)),
            _ => {}
        }
    }

    /// Adds a record with its pending notes to a batch of several. `None` if there is nothing to write, or it can't be
    /// read: then [`flush`](Self::flush) says what is to be done.
    pub(crate) async fn add_notes(&self, prefix: Prefix, key: &BaseKey, batch: &mut Batch) -> Option<Noted> {
        if !self.has_notes_of(key) {
            return None;
        }
        let known = match self.load(prefix, key).await {
            Ok(known) if known.version.is_some() && known.noted > 0 => known,
            _ => {
                self.flush(key).await;
                return None;
            }
        };
        let mut next = Base::clone(&known.base);
        self.add(prefix, key, &known, &mut next, batch);
        Some(Noted { base: Arc::new(next), up_to: known.noted })
    }

    /// The bytes of `base`, which forgets as much of its past as it must to fit into one value.
    fn encode(&self, prefix: Prefix, key: &BaseKey, base: &mut Base, batch: &mut Batch) -> Vec<u8> {
        let (mut outcomes, mut slots) = (KEPT_OUTCOMES, KEPT_SLOTS);
        loop {
            for dropped in growth::bound(base, outcomes, slots) {
                batch.deletes.extend(pieces_of(prefix, key, dropped));
            }
            let value = bytes::encode(base);
            if value.len() <= ROOM {
                return value;
            }
            if outcomes == 1 && slots == 1 {
                growth::cut_texts(base, CUT_TEXT);
                return bytes::encode(base);
            }
            (outcomes, slots) = ((outcomes / 2).max(1), (slots / 2).max(1));
        }
    }

    /// Whether the ends of all attempts of `base` will fit into its value, however much it has to forget for that. What
    /// is claimed without that room would have an effect whose outcome can't be recorded.
    pub(crate) fn has_room(base: &Base) -> bool {
        if weight(base) < ROOM / 4 {
            return true; // not worth measuring
        }
        let open = base.occurrences.iter().enumerate().filter(|(_, record)| record.is_tainted());
        let ends: usize = open.map(|(n, _)| inline(n).max(CUT_TEXT) + 128).sum();
        let mut least = base.clone();
        growth::bound(&mut least, 1, 1);
        growth::cut_texts(&mut least, CUT_TEXT);
        bytes::encode(&least).len() + ends + 2048 <= ROOM
    }

    /// Where the bytes of a result go: into the record, into pieces, or nowhere if there are too many.
    pub(crate) fn body(
        prefix: Prefix,
        key: &BaseKey,
        unit: (usize, Fence),
        text: &str,
        limit: usize,
        along: &mut Along,
    ) -> Body {
        let bytes = text.as_bytes();
        let (length, digest) = (bytes.len() as u64, digest("toolonce result", bytes));
        if bytes.len() > limit {
            return Body::NotKept { length, digest, head: head(text).into() };
        }
        if bytes.len() <= inline(unit.0) {
            return Body::Inline(bytes.to_vec());
        }
        let packed = lz4_flex::compress(bytes);
        let pieces = packed.chunks(PIECE).zip(0..);
        along.puts.extend(pieces.map(|(piece, n)| (prefix.piece(key, unit.0, unit.1, n), long::piece(piece))));
        Body::Pieces { count: u32::try_from(packed.len().div_ceil(PIECE)).unwrap_or(u32::MAX), length, digest }
    }

    /// The whole result in pieces; `None` if one of them is lost or damaged.
    pub(crate) async fn pieces(
        &self,
        prefix: Prefix,
        key: &BaseKey,
        unit: (usize, Fence),
        body: &Body,
    ) -> Result<Option<String>, StoreError> {
        let Body::Pieces { count, length, digest: expected } = body else { return Ok(None) };
        let pieces = long::pieces(&*self.store, *count, |n| prefix.piece(key, unit.0, unit.1, n)).await?;
        if pieces.len() != *count as usize {
            return Ok(None);
        }
        let packed = long::join(pieces.iter().map(|piece| &piece[..]))?;
        Ok(unpack(&packed, *length, *expected))
    }
}

/// Where the pieces are that no record points to any more.
pub(crate) fn pieces_of(prefix: Prefix, key: &BaseKey, dropped: Dropped) -> impl Iterator<Item = Key> {
    (0..dropped.count).map(move |n| prefix.piece(key, dropped.occurrence, dropped.fence, n))
}

/// Where the pieces of all results of a record are.
pub(crate) fn all_pieces(prefix: Prefix, key: &BaseKey, base: &Base) -> impl Iterator<Item = Key> {
    let outcomes = base.occurrences.iter().enumerate();
    let pieces = outcomes.filter_map(|(n, record)| Dropped::of(n, record.outcome.as_ref()?));
    pieces.flat_map(move |pieces| pieces_of(prefix, key, pieces))
}

/// The result in its compressed pieces; `None` if they are damaged.
pub(crate) fn unpack(packed: &[u8], length: u64, expected: Digest) -> Option<String> {
    // No block gets larger than this by decompressing: a wrong length must not be allocated for.
    let length = usize::try_from(length).ok().filter(|length| *length <= packed.len().saturating_mul(256))?;
    let whole = lz4_flex::decompress(packed, length).ok()?;
    let intact = whole.len() == length && digest("toolonce result", &whole) == expected;
    if intact { String::from_utf8(whole).ok() } else { None }
}

/// Up to which length the result of an occurrence lives in the record: later ones get less room in it, so that many
/// executions at a time still fit into one value.
fn inline(occurrence: usize) -> usize {
    (INLINE / (occurrence + 1)).max(128)
}

/// The first bytes of a text that is too long to keep.
pub(crate) fn head(text: &str) -> &str {
    let mut end = text.len().min(1024);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Whether a human may have to do with the record: it has an attempt whose end isn't known, or a question waits.
pub(crate) fn is_open(base: &Base) -> bool {
    base.is_in_doubt() || base.approvals.iter().any(|approval| approval.state == ApprovalState::Pending)
}

/// The downstream key of the present generation of an occurrence.
pub(crate) fn downstream(key: &BaseKey, base: &Base, occurrence: usize) -> DownstreamKey {
    let generation = base.occurrences.get(occurrence).map_or(base.floor.generation, |record| record.generation);
    key.downstream(u32::try_from(occurrence).unwrap_or(u32::MAX), generation)
}

/// About how many bytes a record takes in memory.
fn weight(base: &Base) -> usize {
    let of_record = |record: &crate::protocol::record::Record| {
        let body = match record.outcome.as_ref().map(|outcome| &outcome.body) {
            Some(Body::Inline(bytes)) => bytes.len(),
            _ => 0,
        };
        let kept = record.kept_arguments.as_ref().map_or(0, String::len);
        let leaves: usize = record.leaves.iter().map(|leaf| 40 + leaf.pointer.len()).sum();
        let open: usize = record.open.iter().map(|open| 40 + open.error.as_ref().map_or(0, String::len)).sum();
        400 + body + kept + leaves + open + 200 * record.slots.len()
    };
    let question = |approval: &Approval| 200 + approval.arguments.as_ref().map_or(0, String::len);
    200 + base.approvals.iter().map(question).sum::<usize>() + base.occurrences.iter().map(of_record).sum::<usize>()
}

//! Records as bytes: what is written can be read, and nothing else can.

use proptest::prelude::*;
use toolonce::key::{Digest, Fingerprint, LeafDigest};
use toolonce::protocol::bytes::{BytesError, VERSION, decode, encode};
use toolonce::protocol::record::{
    About, Approval, ApprovalState, Asker, Base, Begun, Body, Claim, Failure, FailureClass, Fence, Floor, Given, Last,
    Leaf, Open, Outcome, OwnerId, Reason, Record, Signature, Slot, Statement, Strictness, ToldBy,
};

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,8}"
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest)
}

fn fingerprint() -> impl Strategy<Value = Fingerprint> {
    digest().prop_map(|digest| Fingerprint::from_bytes(digest.0))
}

fn fence() -> impl Strategy<Value = Fence> {
    any::<u64>().prop_map(Fence)
}

fn class() -> impl Strategy<Value = FailureClass> {
    use FailureClass::{Permanent, Retryable, Unknown};
    prop_oneof![Just(Retryable), Just(Permanent), Just(Unknown)]
}

fn failure() -> impl Strategy<Value = Failure> {
    (class(), text()).prop_map(|(class, message)| Failure { class, message })
}

fn approval() -> impl Strategy<Value = Approval> {
    use ApprovalState::{Approved, Denied, Pending};
    let state = prop_oneof![Just(Pending), Just(Approved), text().prop_map(|why| Denied { why })];
    let reason = prop_oneof![Just(Reason::First), Just(Reason::Repeat), text().prop_map(|of| Reason::LookAlike { of })];
    let asker = (text(), fingerprint()).prop_map(|(run, fingerprint)| Asker { run, fingerprint });
    let (signed, turn) = (prop::option::of(signature()), prop::option::of(any::<u32>()));
    let fields = (asker, any::<u64>(), reason, prop::option::of(text()), state, signed, turn);
    fields.prop_map(|(asker, asked_at, reason, arguments, state, signed, turn)| Approval {
        asker,
        asked_at,
        reason,
        arguments,
        state,
        signed,
        turn,
    })
}

fn signature() -> impl Strategy<Value = Signature> {
    (text(), any::<u64>()).prop_map(|(who, at)| Signature { who, at })
}

fn statement() -> impl Strategy<Value = Statement> {
    let fields = (fence(), any::<bool>(), text(), signature());
    fields.prop_map(|(fence, happened, why, signed)| Statement { fence, happened, why, signed })
}

fn strictness() -> impl Strategy<Value = Strictness> {
    use Strictness::{Idempotent, Keyed, ReadOnly, Write};
    prop_oneof![Just(ReadOnly), Just(Idempotent), Just(Keyed), Just(Write)]
}

fn claim() -> impl Strategy<Value = Claim> {
    let fields = (fence(), any::<[u8; 16]>(), any::<u64>(), any::<u64>());
    fields.prop_map(|(fence, owner, claimed_at, deadline)| Claim { fence, owner: OwnerId(owner), claimed_at, deadline })
}

fn open() -> impl Strategy<Value = Open> {
    let fields = (fence(), any::<u64>(), prop::option::of(text()));
    fields.prop_map(|(fence, quiet_from, error)| Open { fence, quiet_from, error })
}

fn begun() -> impl Strategy<Value = Begun> {
    (fence(), prop::option::of(any::<u32>())).prop_map(|(fence, turn)| Begun { fence, turn })
}

fn last() -> impl Strategy<Value = Last> {
    let fields = (fence(), failure(), any::<u32>(), any::<u64>());
    fields.prop_map(|(fence, failure, attempts, not_before)| Last { fence, failure, attempts, not_before })
}

fn body() -> impl Strategy<Value = Body> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..8);
    prop_oneof![
        bytes().prop_map(Body::Inline),
        (any::<u32>(), any::<u64>(), digest()).prop_map(|(count, length, digest)| Body::Pieces {
            count,
            length,
            digest
        }),
        (any::<u64>(), digest(), bytes()).prop_map(|(length, digest, head)| Body::NotKept { length, digest, head }),
        Just(Body::Dropped),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let told_by = prop_oneof![Just(ToldBy::Attempt), Just(ToldBy::LookUp), Just(ToldBy::Human)];
    let fields = (fence(), fingerprint(), any::<u64>(), any::<u64>(), told_by, body());
    fields.prop_map(|(fence, fingerprint, at, order, told_by, body)| Outcome {
        fence,
        fingerprint,
        at,
        order,
        told_by,
        body,
    })
}

fn given() -> impl Strategy<Value = Given> {
    prop_oneof![
        (prop::option::of(text()), any::<bool>()).prop_map(|(mark, stop)| Given::Outcome { mark, stop }),
        failure().prop_map(Given::Failure),
        (any::<u8>(), text()).prop_map(|(kind, text)| Given::Status { kind, text }),
    ]
}

fn slot() -> impl Strategy<Value = Slot> {
    let place = (text(), any::<u32>(), any::<u32>(), text(), any::<u32>());
    let rest = (fingerprint(), prop::option::of(given()), any::<bool>());
    (place, rest).prop_map(|((run, turn, nth, id, epoch), (fingerprint, given, delivered))| Slot {
        run,
        turn,
        nth,
        id,
        epoch,
        fingerprint,
        given,
        delivered,
    })
}

fn leaf() -> impl Strategy<Value = Leaf> {
    (text(), any::<u64>()).prop_map(|(pointer, digest)| Leaf { pointer, digest: LeafDigest::from_u64(digest) })
}

fn record() -> impl Strategy<Value = Record> {
    let numbers = (fence(), any::<u32>(), prop::option::of(any::<u64>()), any::<u32>());
    let state = (
        prop::option::of(claim()),
        prop::collection::vec(open(), 0..3),
        begun(),
        prop::option::of(last()),
        prop::option::of(outcome()),
    );
    let arguments = (fingerprint(), digest(), prop::option::of(text()), prop::collection::vec(leaf(), 0..3));
    let slots = prop::collection::vec(slot(), 0..3);
    let people = (prop::option::of(text()), prop::option::of(signature()), prop::option::of(statement()));
    let declared = (strictness(), any::<u64>(), people);
    (numbers, state, arguments, slots, declared).prop_map(|(numbers, state, arguments, slots, declared)| {
        let (fence, generation, first_sent, replays) = numbers;
        let (claim, open, begun, last, outcome) = state;
        let (strictness, settle, (approved, permit, statement)) = declared;
        let (fingerprint, executed, kept_arguments, leaves) = arguments;
        Record {
            fence,
            generation,
            first_sent,
            claim,
            open,
            begun,
            last,
            outcome,
            fingerprint,
            executed,
            strictness,
            settle,
            approved,
            permit,
            statement,
            kept_arguments,
            leaves,
            replays,
            slots,
        }
    })
}

/// An occurrence of which only the short form is left.
fn past() -> impl Strategy<Value = Record> {
    let slot = (text(), any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>());
    let slot = slot.prop_map(|(run, turn, nth, epoch, delivered)| Slot {
        run,
        turn,
        nth,
        id: String::new(),
        epoch,
        fingerprint: Fingerprint::default(),
        given: None,
        delivered,
    });
    let numbers = (fence(), begun(), any::<u32>(), 0..u64::MAX / 1000, any::<[u8; 8]>());
    (numbers, prop::collection::vec(slot, 0..3)).prop_map(|((fence, begun, generation, second, head), slots)| {
        let mut fingerprint = [0; 32];
        fingerprint[..8].copy_from_slice(&head);
        Record {
            fence,
            generation,
            begun,
            outcome: Some(Outcome {
                fence: begun.fence,
                fingerprint: Fingerprint::from_bytes(fingerprint),
                at: second * 1000,
                order: 0,
                told_by: ToldBy::Attempt,
                body: Body::Dropped,
            }),
            slots,
            ..Record::default()
        }
    })
}

fn base() -> impl Strategy<Value = Base> {
    let about = (text(), text()).prop_map(|(tool, run)| About { tool, run });
    let occurrence = prop_oneof![record(), past()];
    let floor = (fence(), any::<u32>()).prop_map(|(fence, generation)| Floor { fence, generation });
    let fields = (about, prop::collection::vec(occurrence, 0..4), prop::collection::vec(approval(), 0..3), floor);
    fields.prop_map(|(about, occurrences, approvals, floor)| Base { about, occurrences, approvals, floor })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(base in base()) {
        prop_assert_eq!(decode(&encode(&base)), Ok(base));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
    }

    /// A damaged payload under a checksum that matches: an error or another record, never a panic or a huge list.
    #[test]
    fn damage_under_a_good_checksum_never_panics(base in base(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = encode(&base);
        bytes.truncate(bytes.len() - 8);
        let at = at.index(bytes.len());
        bytes[at] = to;
        let sum = toolonce::key::digest("toolonce record", &bytes).0;
        bytes.extend_from_slice(&sum[..8]);
        let _ = decode(&bytes);
    }
}

/// A base that uses every field and every option.
fn full() -> Base {
    let digest = |byte: u8| Digest([byte; 32]);
    let slot = |turn, given| Slot {
        run: "run-1".into(),
        turn,
        nth: 1,
        id: "call_7".into(),
        epoch: 2,
        fingerprint: Fingerprint::from_bytes(digest(4).0),
        given,
        delivered: turn == 0,
    };
    let signature = |who: &str| Signature { who: who.into(), at: 1_700_000_000_005 };
    let declined = Failure { class: FailureClass::Permanent, message: "declined".into() };
    let doubtful = Record {
        fence: Fence(300),
        generation: 1,
        first_sent: Some(1_700_000_000_000),
        claim: Some(Claim {
            fence: Fence(300),
            owner: OwnerId([9; 16]),
            claimed_at: 1_700_000_000_000,
            deadline: 1_700_000_600_000,
        }),
        open: vec![Open { fence: Fence(299), quiet_from: 1_700_000_000_001, error: Some("timed out".into()) }],
        begun: Begun { fence: Fence(299), turn: Some(1) },
        last: Some(Last { fence: Fence(298), failure: declined.clone(), attempts: 2, not_before: 5 }),
        outcome: None,
        fingerprint: Fingerprint::from_bytes(digest(1).0),
        executed: digest(2),
        strictness: Strictness::Keyed,
        settle: 60_000,
        approved: Some("run-1".into()),
        permit: Some(signature("grace")),
        statement: Some(Statement {
            fence: Fence(297),
            happened: false,
            why: "not in the ledger".into(),
            signed: signature("ada"),
        }),
        kept_arguments: Some("{\"amount\":5}".into()),
        leaves: vec![Leaf { pointer: "/amount".into(), digest: LeafDigest::from_u64(7) }],
        replays: 0,
        slots: vec![slot(1, Some(Given::Failure(declined)))],
    };
    let done = Record {
        fence: Fence(1),
        begun: Begun { fence: Fence(1), turn: Some(2) },
        outcome: Some(Outcome {
            fence: Fence(1),
            fingerprint: Fingerprint::from_bytes(digest(1).0),
            at: 1_700_000_000_002,
            order: 4,
            told_by: ToldBy::LookUp,
            body: Body::Inline(b"{\"id\":\"ch_1\"}".to_vec()),
        }),
        replays: 3,
        slots: vec![
            slot(0, Some(Given::Outcome { mark: None, stop: false })),
            slot(2, Some(Given::Status { kind: 3, text: "still running".into() })),
            slot(3, None),
        ],
        ..Record::default()
    };
    let mut forgotten = Base {
        about: About { run: "run-1".into(), ..About::default() },
        occurrences: vec![done.clone(), done.clone()],
        ..Base::default()
    };
    forgotten.occurrences[0].slots.last_mut().unwrap().run = "run-2".into();
    let _ = toolonce::protocol::growth::bound(&mut forgotten, 1, 256);
    Base {
        about: About { tool: "charge_card".into(), run: "run-1".into() },
        occurrences: vec![forgotten.occurrences.remove(0), doubtful, done],
        approvals: vec![
            Approval {
                asker: Asker { run: "run-1".into(), fingerprint: Fingerprint::from_bytes(digest(3).0) },
                asked_at: 1_700_000_000_003,
                reason: Reason::LookAlike { of: "0123456789ab".into() },
                arguments: Some("{\"amount\":6}".into()),
                state: ApprovalState::Pending,
                signed: None,
                turn: Some(3),
            },
            Approval {
                asker: Asker { run: "run-2".into(), fingerprint: Fingerprint::from_bytes(digest(4).0) },
                asked_at: 1_700_000_000_004,
                reason: Reason::Repeat,
                arguments: None,
                state: ApprovalState::Denied { why: "not this month".into() },
                signed: Some(signature("ada")),
                turn: None,
            },
        ],
        floor: Floor { fence: Fence(290), generation: 1 },
    }
}

/// Bytes that version 1 wrote once. They are never changed: later versions must go on reading them.
const VERSION_1: &[u8] = include_bytes!("../golden/record/v1-full.bin");
const VERSION_1_EMPTY: &[u8] = include_bytes!("../golden/record/v1-empty.bin");

#[test]
fn old_bytes_are_still_read() {
    assert_eq!(decode(VERSION_1), Ok(full()));
    assert_eq!(decode(VERSION_1_EMPTY), Ok(Base::default()));
}

#[test]
fn the_format_is_still_written_the_same() {
    assert_eq!(encode(&full()), VERSION_1, "a change of the format needs a new version");
    assert_eq!(encode(&Base::default()), VERSION_1_EMPTY);
}

#[test]
fn what_is_left_of_an_old_occurrence_takes_a_few_bytes() {
    let mut base = full();
    let before = encode(&base).len();
    base.occurrences.remove(0);
    assert!(before - encode(&base).len() < 60, "three places of two runs");
}

#[test]
fn every_truncation_is_an_error() {
    for length in 0..VERSION_1.len() {
        assert!(decode(&VERSION_1[..length]).is_err(), "the first {length} bytes");
    }
}

#[test]
fn every_changed_byte_is_an_error() {
    let mut bytes = VERSION_1.to_vec();
    for at in 0..bytes.len() {
        for flip in 1..=u8::MAX {
            bytes[at] ^= flip;
            assert!(decode(&bytes).is_err(), "byte {at} changed by {flip:#x}");
            bytes[at] ^= flip;
        }
    }
}

#[test]
fn bytes_left_over_are_an_error() {
    let mut bytes = VERSION_1.to_vec();
    bytes.push(0);
    assert_eq!(decode(&bytes), Err(BytesError::Checksum));
}

#[test]
fn a_number_has_no_second_form() {
    // The length of the tool's name, 0, in two bytes.
    let mut bytes = [&[VERSION, 0x80], &VERSION_1_EMPTY[1..VERSION_1_EMPTY.len() - 8]].concat();
    let sum = toolonce::key::digest("toolonce record", &bytes).0;
    bytes.extend_from_slice(&sum[..8]);
    assert_eq!(decode(&bytes), Err(BytesError::Format("number too long")));
}

#[test]
fn an_unknown_version_is_an_error_that_names_it() {
    let mut bytes = VERSION_1.to_vec();
    bytes[0] = VERSION + 1;
    let error = decode(&bytes).unwrap_err();
    assert_eq!(error, BytesError::Version(VERSION + 1));
    assert!(error.to_string().contains('2'), "{error}");
    assert!(decode(&[]).is_err());
}

//! What systems downstream accept as an idempotency key: a table of facts for [`Policy::keyed`](crate::Policy::keyed).
//!
//! ```
//! use toolonce::{Policy, provider};
//!
//! let charge = Policy::keyed(provider::STRIPE);
//! assert_eq!(charge.provider().and_then(|stripe| stripe.field()), Some("Idempotency-Key"));
//! ```
//!
//! A tool asks its [`Attempt`](crate::Attempt) for the key in the provider's form
//! ([`idempotency_key`](crate::Attempt::idempotency_key)) and for where it goes
//! ([`key_field`](crate::Attempt::key_field)). The guard knows from the entry how long the key protects: a call in doubt
//! is sent again, same bytes, same key, only while the window holds.
//!
//! | entry | the key goes into | form | characters | window | other body | concurrent |
//! |---|---|---|---|---|---|---|
//! | [`IETF_DRAFT`] | header `Idempotency-Key` | quoted | any | not stated | 422 | 409 |
//! | [`STRIPE`] | header `Idempotency-Key` | hex32 | to 255 | 24 h | an error | an error |
//! | [`PAYPAL`] | header `PayPal-Request-Id` | hex32 | any | not stated | taken as a repeat | an error |
//! | [`SQUARE`] | field `idempotency_key` | hex32 | 1 to 45 | not stated | an error | not stated |
//! | [`ADYEN`] | header `idempotency-key` | hex32 | to 64 | not stated | not stated | not stated |
//! | [`GOCARDLESS`] | header `Idempotency-Key` | hex32 | any | not stated | 409 | 409 |
//! | [`PLAID_TRANSFER`] | field `idempotency_key` | hex32 | to 50 | not stated | not stated | not stated |
//! | [`PLAID_CONSENT`] | field `idempotency_key` | hex32 | to 128 | 24 h | not stated | not stated |
//! | [`WISE`] | field `customerTransactionId` | UUID | UUID | not stated | taken as a repeat | not stated |
//! | [`MODERN_TREASURY`] | header `Idempotency-Key` | hex32 | any | 24 h | taken as a repeat | 409 |
//! | [`SHOPIFY`] | directive `@idempotent(key:)` | UUID | any | not stated | an error | an error |
//! | [`WORLDLINE`] | header of a name to look up | hex32 | to 40 | 24 h | taken as a repeat | 409 |
//! | [`INCREASE`] | header `Idempotency-Key` | hex32 | to 200 | for ever | 409 | not stated |
//! | [`RESEND`] | header `Idempotency-Key` | hex32 | to 256 | 24 h | not stated | not stated |
//! | [`AWS`] | field `ClientToken`, `ClientRequestToken` or `IdempotencyToken` | hex64 | to 64 | not stated | an error | not stated |
//! | [`GOOGLE_CLOUD`] | field `requestId` | UUID | UUID | 1 h | taken as a repeat | not stated |
//! | [`AZURE`] | header `Repeatability-Request-ID` | UUID | UUID | 5 min | 400 | 409 |
//! | [`LINEAR`] | field `id` | UUID | UUID | for ever | an error | an error |
//!
//! *Not stated* is what the vendors' own pages didn't confirm when the table was made (2026): it counts as unknown, so a
//! window that isn't stated protects no re-send and a call in doubt is held. Who knows better says so:
//! `provider::ADYEN.window(KeyWindow::For(…))`. Vendors change their pages; check yours before money depends on it.
//!
//! Without an entry, because they have no key that could be relied on: Braintree (a duplicate check of 30 s, no key),
//! Postmark, SendGrid, Twilio (sending), Mailgun, GitHub, Notion, Slack (`client_msg_id` is undocumented) and plain SMTP
//! (servers don't promise to drop a repeated `Message-ID`). Their tools are [`Policy::write`](crate::Policy::write), with
//! a look-up where one is possible. Salesforce and HubSpot have no key either, but an upsert by an external id: a tool
//! that uses the key as that id is `Policy::keyed(KeyWindow::Permanent)`.

use std::time::Duration;

use crate::key::KeyForm;

/// How long a downstream system remembers a key, counted from when it was first sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyWindow {
    /// Not published: a call in doubt is never re-sent by itself.
    Unknown,
    /// This long. No send begins after 80 % of it.
    For(Duration),
    /// For ever.
    Permanent,
}

/// Which part of a request carries the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyPlace {
    /// A header.
    Header,
    /// A field of the body, or a parameter of the request.
    Field,
    /// A directive of a GraphQL mutation.
    Directive,
}

/// What a second request under a key gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Clash {
    /// Not confirmed.
    NotStated,
    /// This HTTP status.
    Status(u16),
    /// An error of its own kind, or one at times.
    Error,
    /// The first request's answer or its newest state, whatever the second one asks for.
    TakenAsRepeat,
}

/// What is known of a downstream system that drops repeats of a key.
///
/// For a system that has no entry in the [table](self):
///
/// ```
/// use std::time::Duration;
/// use toolonce::key::KeyForm;
/// use toolonce::provider::{KeyPlace, Provider};
/// use toolonce::{KeyWindow, Policy};
///
/// const ACME: Provider = Provider::new("Acme")
///     .goes_into(KeyPlace::Header, &["X-Request-Key"])
///     .form(KeyForm::Uuid)
///     .window(KeyWindow::For(Duration::from_secs(3600)));
/// let policy = Policy::keyed(ACME);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Provider {
    /// What people call it; empty if it was given by its window only.
    pub name: &'static str,
    /// Which part of a request carries the key.
    pub place: KeyPlace,
    /// The names that this part can have, the usual one first; empty if none is confirmed.
    pub fields: &'static [&'static str],
    /// How the key is written.
    pub form: KeyForm,
    /// The shortest key it takes, in bytes; `None` if no limit is confirmed.
    pub min_length: Option<usize>,
    /// The longest key it takes, in bytes; `None` if no limit is confirmed.
    pub max_length: Option<usize>,
    /// How long it remembers a key.
    pub window: KeyWindow,
    /// What the same key with another body gets.
    pub other_body: Clash,
    /// What a second request gets while the first is under way. On a keyed call such an answer says nothing about the
    /// first: a tool reports it as [unknown](crate::ToolError::unknown).
    pub concurrent: Clash,
    /// The header for the time when the key was [first sent](crate::Attempt::first_sent), if it wants one.
    pub first_sent: Option<&'static str>,
    /// What else is worth knowing.
    pub notes: &'static str,
}

impl Provider {
    /// A system of which nothing is known yet: the key goes into a header, as 32 hex digits, the window is unknown.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            place: KeyPlace::Header,
            fields: &[],
            form: KeyForm::Hex32,
            min_length: None,
            max_length: None,
            window: KeyWindow::Unknown,
            other_body: Clash::NotStated,
            concurrent: Clash::NotStated,
            first_sent: None,
            notes: "",
        }
    }

    /// Which part of a request carries the key, and the names it can have, the usual one first.
    #[must_use]
    pub const fn goes_into(self, place: KeyPlace, fields: &'static [&'static str]) -> Self {
        Self { place, fields, ..self }
    }

    /// How the key is written. Default [`KeyForm::Hex32`].
    #[must_use]
    pub const fn form(self, form: KeyForm) -> Self {
        Self { form, ..self }
    }

    /// How long it remembers a key. Default [`KeyWindow::Unknown`].
    #[must_use]
    pub const fn window(self, window: KeyWindow) -> Self {
        Self { window, ..self }
    }

    /// The shortest and longest key it takes, in bytes. Default: no limit.
    #[must_use]
    pub const fn lengths(self, min: usize, max: usize) -> Self {
        Self { min_length: Some(min), max_length: Some(max), ..self }
    }

    const fn at_most(self, max: usize) -> Self {
        Self { max_length: Some(max), ..self }
    }

    const fn clashes(self, other_body: Clash, concurrent: Clash) -> Self {
        Self { other_body, concurrent, ..self }
    }

    const fn notes(self, notes: &'static str) -> Self {
        Self { notes, ..self }
    }

    /// The usual name of the header, field or directive; `None` if none is confirmed.
    pub const fn field(&self) -> Option<&'static str> {
        self.fields.first().copied()
    }

    /// Whether a key of this form keeps the limits of length.
    pub fn takes(&self, form: KeyForm) -> bool {
        let length = form.length();
        self.min_length.is_none_or(|min| length >= min) && self.max_length.is_none_or(|max| length <= max)
    }
}

/// A system of which only the window is known.
impl From<KeyWindow> for Provider {
    fn from(window: KeyWindow) -> Self {
        Self::new("").window(window)
    }
}

const MINUTES_5: KeyWindow = KeyWindow::For(Duration::from_secs(5 * 60));
const HOUR: KeyWindow = KeyWindow::For(Duration::from_secs(3600));
const DAY: KeyWindow = KeyWindow::For(Duration::from_secs(24 * 3600));
const IDEMPOTENCY_KEY: &[&str] = &["Idempotency-Key"];

/// Servers that follow the draft of the IETF working group HTTPAPI, "The Idempotency-Key HTTP Header Field".
pub const IETF_DRAFT: Provider = Provider::new("IETF draft")
    .goes_into(KeyPlace::Header, IDEMPOTENCY_KEY)
    .form(KeyForm::Quoted)
    .clashes(Clash::Status(422), Clash::Status(409))
    .notes("The value is a structured-field string, quotes included. Each server publishes its own window.");

/// Stripe, API v1.
pub const STRIPE: Provider = Provider::new("Stripe")
    .goes_into(KeyPlace::Header, IDEMPOTENCY_KEY)
    .at_most(255)
    .window(DAY)
    .clashes(Clash::Error, Clash::Error)
    .notes(
        "At least 24 h. Stored failures are replayed, a 500 included: a deliberate new attempt needs a new key, which \
         the guard makes after a permanent failure. A concurrent request is refused and nothing is stored for it.",
    );

/// PayPal.
pub const PAYPAL: Provider = Provider::new("PayPal")
    .goes_into(KeyPlace::Header, &["PayPal-Request-Id"])
    .clashes(Clash::TakenAsRepeat, Clash::Error)
    .notes(
        "Each API has a window of its own. A limit of 108 characters is reported and not confirmed. A repeat gets the \
         newest state of the first request; a concurrent one may fail.",
    );

/// Square.
pub const SQUARE: Provider = Provider::new("Square")
    .goes_into(KeyPlace::Field, &["idempotency_key"])
    .lengths(1, 45)
    .clashes(Clash::Error, Clash::NotStated)
    .notes("The window is not published.");

/// Adyen.
pub const ADYEN: Provider = Provider::new("Adyen").goes_into(KeyPlace::Header, &["idempotency-key"]).at_most(64).notes(
    "Keys are known per company account. 7 days, on older pages 31, are reported and not confirmed; so is a \
         transient error for a concurrent request.",
);

/// GoCardless.
pub const GOCARDLESS: Provider = Provider::new("GoCardless")
    .goes_into(KeyPlace::Header, IDEMPOTENCY_KEY)
    .clashes(Clash::Status(409), Clash::Status(409))
    .notes(
        "The 409 names the first resource: a look-up can go by it. 128 characters and 30 days are reported and not \
         confirmed.",
    );

/// Plaid, transfers and refunds.
pub const PLAID_TRANSFER: Provider =
    Provider::new("Plaid, transfers").goes_into(KeyPlace::Field, &["idempotency_key"]).at_most(50);

/// Plaid, payments on a consent.
pub const PLAID_CONSENT: Provider =
    Provider::new("Plaid, consents").goes_into(KeyPlace::Field, &["idempotency_key"]).at_most(128).window(DAY);

/// Wise, transfers.
pub const WISE: Provider = Provider::new("Wise")
    .goes_into(KeyPlace::Field, &["customerTransactionId"])
    .form(KeyForm::Uuid)
    .clashes(Clash::TakenAsRepeat, Clash::NotStated);

/// Modern Treasury.
pub const MODERN_TREASURY: Provider = Provider::new("Modern Treasury")
    .goes_into(KeyPlace::Header, IDEMPOTENCY_KEY)
    .window(DAY)
    .clashes(Clash::TakenAsRepeat, Clash::Status(409))
    .notes("Only successes are remembered. A repeat gets the first answer, even on another route.");

/// Shopify, GraphQL Admin API.
pub const SHOPIFY: Provider = Provider::new("Shopify")
    .goes_into(KeyPlace::Directive, &["@idempotent(key:)"])
    .form(KeyForm::Uuid)
    .clashes(Clash::Error, Clash::Error)
    .notes("A UUID is advised, not demanded.");

/// Worldline.
pub const WORLDLINE: Provider = Provider::new("Worldline")
    .at_most(40)
    .window(DAY)
    .clashes(Clash::TakenAsRepeat, Clash::Status(409))
    .notes("At least 24 h; ASCII. `X-GCS-Idempotence-Key` is reported as the header and not confirmed.");

/// Increase.
pub const INCREASE: Provider = Provider::new("Increase")
    .goes_into(KeyPlace::Header, IDEMPOTENCY_KEY)
    .at_most(200)
    .window(KeyWindow::Permanent)
    .clashes(Clash::Status(409), Clash::NotStated)
    .notes("The 409 names the resource, and lists can be filtered by the key: a look-up can go by both.");

/// Resend, e-mail.
pub const RESEND: Provider =
    Provider::new("Resend").goes_into(KeyPlace::Header, IDEMPOTENCY_KEY).at_most(256).window(DAY).notes(
        "Over SMTP the header is `Resend-Idempotency-Key`. A 409 for another body and for a concurrent request is \
         reported and not confirmed.",
    );

/// Amazon Web Services. Each service names the field and the window for itself.
pub const AWS: Provider = Provider::new("AWS")
    .goes_into(KeyPlace::Field, &["ClientToken", "ClientRequestToken", "IdempotencyToken"])
    .form(KeyForm::Hex64)
    .at_most(64)
    .clashes(Clash::Error, Clash::NotStated)
    .notes(
        "64 ASCII characters are typical, one service wants 33 to 128: 64 hex digits fit both. Another body gets \
         IdempotentParameterMismatch.",
    );

/// Google Cloud, methods that take a request id. The window is that of methods whose reference states it.
pub const GOOGLE_CLOUD: Provider = Provider::new("Google Cloud")
    .goes_into(KeyPlace::Field, &["requestId"])
    .form(KeyForm::Uuid)
    .window(HOUR)
    .clashes(Clash::TakenAsRepeat, Clash::NotStated)
    .notes(
        "At least 60 min where the method's reference says so; where it doesn't, use `.window(KeyWindow::Unknown)`. The \
         zero UUID is refused; newer APIs want version 4.",
    );

/// Azure, services with repeatable requests. The window is that of Communication Services.
pub const AZURE: Provider = Provider {
    first_sent: Some("Repeatability-First-Sent"),
    ..Provider::new("Azure")
        .goes_into(KeyPlace::Header, &["Repeatability-Request-ID"])
        .form(KeyForm::Uuid)
        .window(MINUTES_5)
        .clashes(Clash::Status(400), Clash::Status(409))
        .notes("Wants the time when the key was first sent as well, as an HTTP date. After the window it answers 412.")
};

/// Linear, mutations that create.
pub const LINEAR: Provider = Provider::new("Linear")
    .goes_into(KeyPlace::Field, &["id"])
    .form(KeyForm::Uuid)
    .window(KeyWindow::Permanent)
    .clashes(Clash::Error, Clash::Error)
    .notes("The key is the new object's id, a UUID of version 4: a look-up reads the object of this id.");

/// All entries, in the order of the [table](self).
pub const ALL: &[Provider] = &[
    IETF_DRAFT,
    STRIPE,
    PAYPAL,
    SQUARE,
    ADYEN,
    GOCARDLESS,
    PLAID_TRANSFER,
    PLAID_CONSENT,
    WISE,
    MODERN_TREASURY,
    SHOPIFY,
    WORLDLINE,
    INCREASE,
    RESEND,
    AWS,
    GOOGLE_CLOUD,
    AZURE,
    LINEAR,
];

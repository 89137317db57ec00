//! What can go wrong outside a call. A call itself never fails: it is answered by a [`Reply`](crate::Reply).

use std::fmt;

use crate::protocol::bytes::BytesError;
use crate::store::{StoreError, StoreErrorKind};

/// An error of the guard, a run or the registry.
///
/// [`kind`](Error::kind) is what a program goes by; the text is for people and says what to do. As with
/// [`std::io::Error`], the text has that of the cause in it, and [`source`](std::error::Error::source) is what is below
/// the cause, so that nothing is told twice.
pub struct Error {
    kind: ErrorKind,
    message: String,
    /// Comes after the message in the text.
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What an [`Error`] means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store could not do what was asked; its own kind tells more.
    Store(StoreErrorKind),
    /// An argument of the call makes no sense: an empty namespace, a second guard on a store for one.
    Invalid,
    /// The namespace was written with a secret that the guard doesn't have, or without one.
    Secret,
    /// A run with this id exists.
    RunExists,
    /// No run has this id.
    NoSuchRun,
    /// The run was resumed since, by this or another process.
    StaleRun,
    /// The run was removed, or is being removed, since nothing had happened in it for longer than it is kept.
    RunPurged,
    /// It is being looked at whether the run can be removed, and nothing is removed yet: try again.
    RunClosing,
    /// Something of the run isn't settled yet.
    Unresolved,
    /// The clock contradicts what the store knows of the time.
    ClockDoubtful,
    /// A recorded step was given another input.
    Diverged,
    /// Two steps of one name are in flight.
    StepInFlight,
    /// No open call has this reference.
    NoSuchCall,
    /// Several calls have a reference that begins so; the text lists them.
    Ambiguous,
    /// The call is still running.
    StillRunning,
    /// An effect that may be under way could still show; say it again later or with force.
    TooEarly,
    /// The guard was shut down.
    Closed,
    /// What a step of a run was to compute failed.
    Step,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None }
    }

    pub(crate) fn corrupt(what: &str, source: BytesError) -> Self {
        let kind = ErrorKind::Store(unreadable(&source));
        Self { kind, message: format!("can't read {what} from the store: "), cause: Some(Box::new(source)) }
    }

    /// The failure of what a [step](crate::Run::step) was to compute: the step is not recorded.
    pub fn step(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind: ErrorKind::Step, message: String::new(), cause: Some(source.into()) }
    }

    /// What the error means.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// What bytes that can't be read mean.
pub(crate) fn unreadable(error: &BytesError) -> StoreErrorKind {
    match error {
        BytesError::Sealed => StoreErrorKind::Sealed,
        _ => StoreErrorKind::Corrupt,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        // One sentence for people who print only the outermost error.
        self.cause.as_ref().map_or(Ok(()), |cause| write!(f, "{cause}"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {self})", self.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref()?.source()
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self { kind: ErrorKind::Store(error.kind()), message: String::new(), cause: Some(Box::new(error)) }
    }
}

//! What can go wrong, and the exit code that says so.

use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};
use toolonce::store::{StoreError, StoreErrorKind};
use toolonce::{Error, ErrorKind};

use crate::style::clean;

/// How the command ended. The numbers are in `--help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    Nothing = 1,
    Usage = 2,
    Held = 3,
    Store = 4,
    Output = 5,
}

impl Exit {
    pub(crate) fn from_clap(error: &clap::Error) -> Self {
        if error.use_stderr() { Self::Usage } else { Self::Done }
    }

    /// The name of the error in `--json`.
    fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Nothing => "nothing",
            Self::Usage => "usage",
            Self::Held => "held",
            Self::Store => "store",
            Self::Output => "output",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// One sentence that says what is wrong and what to do.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) exit: Exit,
    message: String,
    holder: Option<u32>,
}

impl Problem {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), holder: None }
    }

    /// Nothing was found, or nothing was settled.
    pub(crate) fn nothing(message: impl Into<String>) -> Self {
        Self::new(Exit::Nothing, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn store(message: impl Into<String>) -> Self {
        Self::new(Exit::Store, message)
    }

    pub(crate) fn output(error: &io::Error) -> Self {
        Self::new(Exit::Output, format!("what was found or done can't be printed: {error}"))
    }

    /// The store at `path` can't be opened.
    pub(crate) fn opening(path: &str, error: &StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::Locked => {}
            StoreErrorKind::NotAsWitnessed => {
                let ask = "if that can't be done, ask who runs the agent";
                return Self::store(format!("{}; {ask}", error.message()));
            }
            _ => return Self::store(error.message()),
        }
        let who = error.holder().map_or_else(|| "another process".to_owned(), |process| format!("process {process}"));
        let message = format!(
            "{who} holds the store {path}, and so far only one process at a time can use a store: stop that program, \
             run this again, then start it again (or settle the call inside of it with Guard::resolve)"
        );
        Self { exit: Exit::Held, message, holder: error.holder() }
    }

    pub(crate) fn text(&self) -> String {
        format!("error: {}\n", clean(&self.message))
    }

    pub(crate) fn json(&self) -> Value {
        let mut error = json!({"error": self.exit.name(), "exit": self.exit as u8, "message": self.message});
        if let Some(holder) = self.holder {
            error["holder"] = holder.into();
        }
        error
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::NoSuchCall | ErrorKind::StillRunning | ErrorKind::TooEarly => Exit::Nothing,
            ErrorKind::Invalid | ErrorKind::Ambiguous => Exit::Usage,
            _ => Exit::Store,
        };
        Self::new(exit, error.to_string())
    }
}

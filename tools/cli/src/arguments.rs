//! What the command takes.

use std::fs;
use std::io::{self, Read as _};
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use serde_json::Value;
use toolonce::CallStatus;
use toolonce::canonical::{self, Limits};

use crate::help;
use crate::problem::Problem;

/// Looks at the tool calls of an agent, and settles those that wait for a person.
#[derive(Debug, Parser)]
#[command(bin_name = "toolonce", version, long_about = help::ABOUT, after_help = help::EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    /// The directory of the agent's store; never created
    #[arg(long, value_name = "PATH", global = true, env = "TOOLONCE_STORE")]
    pub(crate) store: Option<PathBuf>,
    /// The namespace that the agent's guard was given; a store doesn't say which ones it has
    #[arg(long, value_name = "NAME", global = true, env = "TOOLONCE_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// A file with the secret that the agent's guard is given, if it is given one: all its bytes but one line break at
    /// the end. May be repeated: the one in use first, then older ones
    #[arg(long, value_name = "PATH", global = true, env = "TOOLONCE_SECRET_FILE")]
    pub(crate) secret_file: Vec<PathBuf>,
    /// A file with the key that the agent's guard seals rows with, if it does: 32 bytes, or 64 hex digits. May be
    /// repeated: the one in use first, then older ones
    #[cfg(feature = "seal")]
    #[arg(long, value_name = "PATH", global = true, env = "TOOLONCE_SEAL_KEY_FILE")]
    pub(crate) seal_key_file: Vec<PathBuf>,
    /// The store's witness, if the agent keeps it elsewhere than beside the store
    #[arg(long, value_name = "PATH", global = true, env = "TOOLONCE_WITNESS")]
    pub(crate) witness: Option<PathBuf>,
    /// Prints one JSON object instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Lists the calls that need a person: in doubt, or awaiting approval
    #[command(long_about = help::LS, after_help = help::EXIT_CODES)]
    Ls(Filter),
    /// Shows all that is known of one call, and what to do
    #[command(long_about = help::SHOW, after_help = help::EXIT_CODES)]
    Show {
        /// From `toolonce ls`, a log or an answer to the model; the first 6 digits are enough
        #[arg(value_parser = beginning)]
        reference: String,
    },
    /// Says whether a call in doubt happened
    #[command(long_about = help::RESOLVE, after_help = help::EXIT_CODES)]
    Resolve(Resolve),
    /// Permits one execution of a call that awaits approval
    #[command(long_about = help::APPROVE, after_help = help::EXIT_CODES)]
    Approve {
        /// All 12 digits
        #[arg(value_parser = whole)]
        reference: String,
        #[command(flatten)]
        by: By,
    },
    /// Refuses a call that awaits approval, for the rest of its run
    #[command(long_about = help::DENY, after_help = help::EXIT_CODES)]
    Deny {
        /// All 12 digits
        #[arg(value_parser = whole)]
        reference: String,
        /// Why, in your words: its first 500 characters are told to the model
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        reason: String,
        #[command(flatten)]
        by: By,
    },
}

#[derive(Debug, Args)]
pub(crate) struct By {
    /// Your name, of which the first 100 characters are kept with the answer for whoever looks at the call later
    #[arg(long, value_name = "NAME", env = "TOOLONCE_BY", default_value = "", hide_default_value = true)]
    pub(crate) by: String,
}

#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Only calls of this run
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<String>,
    /// Only calls of this tool
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Only calls that stand so; several with commas
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "all")]
    pub(crate) status: Vec<Status>,
    /// All calls, those that are done as well
    #[arg(long)]
    pub(crate) all: bool,
}

impl Filter {
    pub(crate) fn wants(&self, status: CallStatus) -> bool {
        match &*self.status {
            [] => self.all || status.needs_a_person(),
            wanted => wanted.iter().any(|wanted| wanted.status() == status),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Status {
    /// It isn't known whether it happened
    InDoubt,
    /// It waits for a person's permission
    AwaitingApproval,
    /// A person permitted it; the next equal call executes it
    Approved,
    /// A person refused it
    Denied,
    /// It waited for a permission, and nobody answered in time
    Expired,
    /// A living process executes it
    Running,
    /// It did not happen, and trying again is useless
    Failed,
    /// It did not happen; a retry executes it
    Free,
    /// It happened
    Done,
}

impl Status {
    fn status(self) -> CallStatus {
        match self {
            Self::InDoubt => CallStatus::InDoubt,
            Self::AwaitingApproval => CallStatus::AwaitingApproval,
            Self::Approved => CallStatus::Approved,
            Self::Denied => CallStatus::Denied,
            Self::Expired => CallStatus::Expired,
            Self::Running => CallStatus::Running,
            Self::Failed => CallStatus::Failed,
            Self::Free => CallStatus::Free,
            Self::Done => CallStatus::Done,
        }
    }
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("answer").required(true).args(["happened", "did_not_happen"]))]
pub(crate) struct Resolve {
    /// All 12 digits
    #[arg(value_parser = whole)]
    pub(crate) reference: String,
    /// It happened: every retry gets the result, and nothing runs again
    #[arg(long)]
    pub(crate) happened: bool,
    /// What the tool would have returned: JSON, @FILE, or @- for standard input [default: null]. It isn't checked
    /// against the tool: give what the model and the agent's program expect of it
    #[arg(long, value_name = "JSON|@FILE", requires = "happened")]
    result: Option<String>,
    /// It did not happen: the next retry executes it
    #[arg(long, requires = "reason")]
    pub(crate) did_not_happen: bool,
    /// How you know; needed for --did-not-happen, and its first 500 characters are kept with the answer
    #[arg(long, value_name = "TEXT", value_parser = something)]
    pub(crate) reason: Option<String>,
    /// With --did-not-happen: takes it although the effect could still show. Only if you know that nothing is under way
    #[arg(long, requires = "did_not_happen")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) by: By,
    /// `result`, read.
    #[arg(skip)]
    pub(crate) value: Value,
}

impl Verb {
    /// Reads what is read before the store is touched.
    pub(crate) fn ready(mut self) -> Result<Self, Problem> {
        if let Self::Resolve(resolve) = &mut self
            && let Some(result) = &resolve.result
        {
            resolve.value = value(result)?;
        }
        Ok(self)
    }
}

fn value(result: &str) -> Result<Value, Problem> {
    let (text, place) = match result.strip_prefix('@') {
        None => (result.to_owned(), "--result".to_owned()),
        Some("-") => {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map_err(|error| Problem::usage(format!("standard input can't be read: {error}")))?;
            (text, "standard input".to_owned())
        }
        Some(file) => {
            let read = fs::read_to_string(file);
            (read.map_err(|error| Problem::usage(format!("{file} can't be read: {error}")))?, file.to_owned())
        }
    };
    exact(&text).map_err(|why| Problem::usage(format!("{place} {why}")))
}

/// The value of a JSON text, read as strictly as the model's: what goes to every retry is what was typed, to the digit.
fn exact(text: &str) -> Result<Value, String> {
    let bare = !text.trim_start().starts_with(['{', '[', '"']);
    let hint = if bare { "; a text needs quotes, as in --result '\"sent\"'" } else { "" };
    let node = canonical::read(text, &Limits::default()).map_err(|error| format!("can't be taken: {error}{hint}"))?;
    let value: Value = serde_json::from_str(text).map_err(|error| format!("can't be taken: {error}"))?;
    match canonical::read(&value.to_string(), &Limits::default()) {
        Ok(same) if same == node => Ok(value),
        _ => Err("has a number with more digits than can be kept: give it as a text, in quotes".to_owned()),
    }
}

fn something(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty: say how you know".to_owned()),
        text => Ok(text.to_owned()),
    }
}

fn whole(text: &str) -> Result<String, String> {
    digits(text, 12..=12, "a reference has 12 digits from 0-9 and a-f, and all of them are needed here")
}

fn beginning(text: &str) -> Result<String, String> {
    digits(text, 6..=12, "a reference has 12 digits from 0-9 and a-f, of which the first 6 are enough")
}

fn digits(text: &str, lengths: std::ops::RangeInclusive<usize>, why: &str) -> Result<String, String> {
    let text = text.trim().to_ascii_lowercase();
    let fits = lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if fits { Ok(text) } else { Err(why.to_owned()) }
}

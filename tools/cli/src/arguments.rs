//! What the command takes.

use std::fs;
use std::io::{self, Read as _};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand};
use serde_json::Value;
use toolonce::CallStatus;
use toolonce::canonical::{self, Limits};
use toolonce::key::REFERENCE_DIGITS;

use crate::help;
use crate::problem::Problem;
use crate::style::meaning;

/// Looks at the tool calls of an agent, and settles those that wait for a person.
#[derive(Debug, Parser)]
#[command(name = "toolonce", version, long_about = help::ABOUT, after_help = help::EXIT_CODES)]
#[command(override_usage = "toolonce [OPTIONS] <COMMAND>")]
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
    /// The namespace that the agent's guard was given
    ///
    /// A store doesn't say which ones it has.
    #[arg(long, value_name = "NAME", global = true, env = "TOOLONCE_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// A file with the secret of the agent's guard, if it has one
    ///
    /// All bytes of the file but one line break at its end.
    /// May be repeated: the one in use first, then older ones.
    #[arg(long, value_name = "PATH", global = true, env = "TOOLONCE_SECRET_FILE", verbatim_doc_comment)]
    pub(crate) secret_file: Vec<PathBuf>,
    /// A file with the key that the agent's guard seals rows with
    ///
    /// 32 bytes, or 64 hex digits.
    /// May be repeated: the one in use first, then older ones.
    #[cfg(feature = "seal")]
    #[arg(long, value_name = "PATH", global = true, env = "TOOLONCE_SEAL_KEY_FILE", verbatim_doc_comment)]
    pub(crate) seal_key_file: Vec<PathBuf>,
    /// The store's witness, if it isn't beside the store
    #[arg(long, value_name = "PATH", global = true, env = "TOOLONCE_WITNESS")]
    pub(crate) witness: Option<PathBuf>,
    /// Prints one JSON object instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Lists the calls that need a person: in doubt, or awaiting approval
    #[command(long_about = help::LS, after_help = help::COMMON)]
    #[command(override_usage = "toolonce ls [OPTIONS]")]
    Ls(Filter),
    /// Shows all that is known of one call, and what to do
    #[command(long_about = help::SHOW, after_help = help::COMMON)]
    #[command(override_usage = "toolonce show [OPTIONS] <REFERENCE>")]
    Show {
        /// From `toolonce ls`, a log or an answer to the model; its first 6 digits are enough
        #[arg(value_parser = beginning)]
        reference: String,
    },
    /// Settles a call in doubt: it happened, or it didn't
    #[command(long_about = help::RESOLVE, after_help = help::COMMON)]
    #[command(override_usage = "toolonce resolve [OPTIONS] <--happened|--did-not-happen> <REFERENCE>")]
    Resolve(Resolve),
    /// Permits one execution of a call that awaits approval
    #[command(long_about = help::APPROVE, after_help = help::COMMON)]
    #[command(override_usage = "toolonce approve [OPTIONS] <REFERENCE>")]
    Approve {
        /// All 12 digits
        #[arg(value_parser = whole)]
        reference: String,
        #[command(flatten)]
        by: By,
    },
    /// Refuses a call that awaits approval, for the rest of its run
    #[command(long_about = help::DENY, after_help = help::COMMON)]
    #[command(override_usage = "toolonce deny [OPTIONS] <REFERENCE>")]
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
    /// Your name, for whoever looks at the call later
    ///
    /// Its first 100 characters are kept with the answer.
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
    /// Only calls with this status; several with commas
    #[arg(long, value_parser = status(), value_delimiter = ',', conflicts_with = "all")]
    pub(crate) status: Vec<CallStatus>,
    /// All calls, those that are done as well
    #[arg(long)]
    pub(crate) all: bool,
}

impl Filter {
    pub(crate) fn wants(&self, status: CallStatus) -> bool {
        match &*self.status {
            [] => self.all || status.needs_a_person(),
            wanted => wanted.contains(&status),
        }
    }
}

/// Reads a status as it is named on a command line: `in-doubt`.
fn status() -> impl TypedValueParser<Value = CallStatus> {
    let name = |status: CallStatus| status.name().replace('_', "-");
    let values = CallStatus::ALL.map(|status| PossibleValue::new(name(status)).help(meaning(status)));
    PossibleValuesParser::new(values).try_map(move |given| {
        CallStatus::ALL.into_iter().find(|status| name(*status) == given).ok_or("this is no status")
    })
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
    /// What the tool would have returned, as JSON [default: null]
    ///
    /// JSON, @FILE, or @- for standard input. It isn't checked against the tool:
    /// give what the model and the agent's program expect of it.
    #[arg(long, value_name = "JSON|@FILE", requires = "happened", verbatim_doc_comment)]
    result: Option<String>,
    /// It did not happen: the next retry executes it
    #[arg(long, requires = "reason")]
    pub(crate) did_not_happen: bool,
    /// How you know; needed for --did-not-happen
    ///
    /// Its first 500 characters are kept with the answer.
    #[arg(long, value_name = "TEXT", value_parser = something)]
    pub(crate) reason: Option<String>,
    /// With --did-not-happen: takes it although the effect could still show
    ///
    /// Only if you know that nothing is under way any more.
    #[arg(long)]
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
        if let Self::Resolve(resolve) = &mut self {
            if resolve.happened && resolve.force {
                return Err(Problem::usage("--force goes only with --did-not-happen"));
            }
            if let Some(result) = &resolve.result {
                resolve.value = value(result)?;
            }
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
    let all = *REFERENCE_DIGITS.end();
    digits(
        text,
        &(all..=all),
        &format!("a reference has {all} digits from 0-9 and a-f, and all of them are needed here"),
    )
}

fn beginning(text: &str) -> Result<String, String> {
    let (enough, all) = (REFERENCE_DIGITS.start(), REFERENCE_DIGITS.end());
    let why = format!("a reference has {all} digits from 0-9 and a-f, of which the first {enough} are enough");
    digits(text, &REFERENCE_DIGITS, &why)
}

fn digits(text: &str, lengths: &RangeInclusive<usize>, why: &str) -> Result<String, String> {
    let text = text.trim().to_ascii_lowercase();
    let fits = lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if fits { Ok(text) } else { Err(why.to_owned()) }
}

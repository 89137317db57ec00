//! `toolonce`: looks at the calls of a store and settles what waits for a person.

mod arguments;
mod desk;
mod help;
mod json;
mod keys;
mod list;
mod problem;
mod settle;
mod show;
mod style;

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::arguments::{Arguments, Verb};
use crate::desk::Desk;
use crate::problem::{Exit, Problem};

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Whoever closed it doesn't want to know.
            let _ = error.print();
            return Exit::from_clap(&error).into();
        }
    };
    let as_json = arguments.common.json;
    match run(arguments).and_then(|answer| print(&answer)) {
        Ok(exit) => exit.into(),
        Err(problem) => {
            let text = if as_json { json::line(&problem.json()) } else { problem.text() };
            let _ = io::stderr().write_all(text.as_bytes());
            problem.exit.into()
        }
    }
}

/// Reads the command line. What every verb takes is in `toolonce --help` and isn't repeated in the help of each.
fn parse() -> Result<Arguments, clap::Error> {
    let mut command = Arguments::command();
    command.build();
    let brief =
        |verb: clap::Command| verb.mut_args(|option| if option.is_global_set() { option.hide(true) } else { option });
    let mut matches = command.mut_subcommands(brief).try_get_matches()?;
    Arguments::from_arg_matches_mut(&mut matches)
}

/// What a verb has to say, and how it went.
struct Answer {
    text: String,
    exit: Exit,
}

fn run(arguments: Arguments) -> Result<Answer, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Problem::store(format!("the program can't be started: {error}")))?;
    runtime.block_on(async {
        // What is wrong with the input is said before the store is touched.
        let verb = arguments.verb.ready()?;
        let desk = Desk::open(&arguments.common).await?;
        let answer = match &verb {
            Verb::Ls(filter) => list::list(&desk, filter).await,
            Verb::Show { reference } => show::show(&desk, reference).await,
            Verb::Resolve(resolve) => settle::resolve(&desk, resolve).await,
            Verb::Approve { reference, by } => settle::approve(&desk, reference, by).await,
            Verb::Deny { reference, reason, by } => settle::deny(&desk, reference, reason, by).await,
        };
        let closed = desk.close().await;
        let answer = answer?;
        closed.map(|()| answer)
    })
}

/// Prints without a panic if standard output is closed or full.
fn print(answer: &Answer) -> Result<Exit, Problem> {
    let mut out = io::stdout().lock();
    match out.write_all(answer.text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Problem::output(&error)),
        // That nobody reads any more is no error.
        _ => Ok(answer.exit),
    }
}

//! The store, opened for a person, and how what is in it is shown.

use std::env;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use toolonce::store::SledOptions;
use toolonce::{CallDetail, Guard, Millis};

use crate::arguments::Common;
use crate::keys::{self, Keys, named};
use crate::problem::Problem;
use crate::style::{Style, shell};

/// One opened store.
pub(crate) struct Desk {
    pub(crate) guard: Guard,
    pub(crate) namespace: String,
    pub(crate) json: bool,
    pub(crate) style: Style,
    /// When the command was given.
    pub(crate) now: Millis,
    /// The command that a person would type to ask for more, without its verb.
    again: String,
}

impl Desk {
    /// Opens the store for this process alone. Nothing is made where none is, and no call is changed: a store notes only
    /// that it was opened.
    pub(crate) async fn open(common: &Common) -> Result<Self, Problem> {
        let unnamed = |what: &str, flag: &str, variable: &str| {
            Problem::usage(format!("no {what} is named: give {flag}, or set {variable}"))
        };
        let path = common.store.clone().filter(|path| !path.as_os_str().is_empty());
        let path = path.ok_or_else(|| unnamed("store", "--store PATH", "TOOLONCE_STORE"))?;
        let namespace = common.namespace.clone().filter(|name| !name.is_empty());
        let namespace = namespace.ok_or_else(|| unnamed("namespace", "--namespace NAME", "TOOLONCE_NAMESPACE"))?;
        let shown = path.display().to_string();
        let mut options = SledOptions::new(path).existing();
        if let Some(witness) = named(common.witness.as_slice()).next() {
            // Without it nothing would be checked, and one would be made.
            if !witness.is_file() {
                let witness = witness.display();
                return Err(Problem::usage(format!(
                    "there is no witness {witness}: correct --witness, or leave it out if it is beside the store"
                )));
            }
            options = options.witness(witness);
        }
        // Before the store is touched: a key that can't be read is a wrong command.
        let keys = Keys::read(common)?;
        let store = options.open().await.map_err(|error| Problem::opening(&shown, &error))?;
        let guard = keys.give(Guard::builder(store, &*namespace)).build().await;
        let guard = guard.map_err(|error| keys::explain(error, common))?;
        let again = again(common, &shown, &namespace);
        Ok(Self { guard, namespace, json: common.json, style: Style::of_stdout(), now: now(), again })
    }

    pub(crate) async fn close(self) -> Result<(), Problem> {
        let closed = self.guard.shutdown(Duration::ZERO).await;
        let unclosed =
            |error| Problem::store(format!("what was asked is done, but the store can't be closed: {error}"));
        closed.map(drop).map_err(unclosed)
    }

    /// The call with this reference.
    pub(crate) async fn find(&self, reference: &str) -> Result<CallDetail, Problem> {
        let found = self.guard.show(reference).await?;
        found.ok_or_else(|| {
            let namespace = &self.namespace;
            Problem::nothing(format!(
                "no call of the namespace {namespace:?} has the reference {reference} (that of a question may be \
                 gone once its call has begun): `{}` lists all",
                self.command("ls --all")
            ))
        })
    }

    /// A command to copy, for the same store and namespace.
    pub(crate) fn command(&self, verb: &str) -> String {
        format!("toolonce {verb}{}", self.again)
    }
}

/// The options that a repeated command needs: those that don't come from the environment.
fn again(common: &Common, store: &str, namespace: &str) -> String {
    let option = |flag: &str, variable: &str, value: &str| match env::var(variable) {
        Ok(set) if set == value => String::new(),
        _ => format!(" {flag} {}", shell(value)),
    };
    let file = |flag: &str, variable: &str, path: &Path| option(flag, variable, &path.display().to_string());
    let mut again =
        option("--store", "TOOLONCE_STORE", store) + &option("--namespace", "TOOLONCE_NAMESPACE", namespace);
    again.extend(named(&common.secret_file).map(|path| file("--secret-file", "TOOLONCE_SECRET_FILE", path)));
    #[cfg(feature = "seal")]
    again.extend(named(&common.seal_key_file).map(|path| file("--seal-key-file", "TOOLONCE_SEAL_KEY_FILE", path)));
    again.extend(named(common.witness.as_slice()).map(|path| file("--witness", "TOOLONCE_WITNESS", path)));
    again
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

//! Secrets and seal keys, from files: a command line can be read by every user of the machine.

use std::fs;
use std::path::{Path, PathBuf};

#[cfg(feature = "seal")]
use toolonce::SealKeys;
use toolonce::store::StoreErrorKind;
use toolonce::{Error, ErrorKind, GuardBuilder, Secret};

use crate::arguments::Common;
use crate::problem::Problem;

/// What the files hold, those in use first.
pub(crate) struct Keys {
    secrets: Vec<Secret>,
    #[cfg(feature = "seal")]
    seals: Vec<[u8; 32]>,
}

impl Keys {
    pub(crate) fn read(common: &Common) -> Result<Self, Problem> {
        Ok(Self {
            secrets: named(&common.secret_file).map(secret).collect::<Result<_, _>>()?,
            #[cfg(feature = "seal")]
            seals: named(&common.seal_key_file).map(seal_key).collect::<Result<_, _>>()?,
        })
    }

    /// Gives the guard what the store was written with. What it wasn't is refused: the agent would be locked out.
    pub(crate) fn give(self, guard: GuardBuilder) -> GuardBuilder {
        let mut secrets = self.secrets.into_iter();
        let guard = match secrets.next() {
            Some(first) => secrets.fold(guard.secret(first), GuardBuilder::older_secret),
            None => guard,
        };
        #[cfg(feature = "seal")]
        let guard = match self.seals.split_first() {
            Some((first, older)) => guard.seal(older.iter().fold(SealKeys::new(*first), |keys, key| keys.older(*key))),
            None => guard,
        };
        guard.existing()
    }
}

/// An empty path is an empty variable of the environment.
pub(crate) fn named(files: &[PathBuf]) -> impl Iterator<Item = &Path> {
    files.iter().map(PathBuf::as_path).filter(|path| !path.as_os_str().is_empty())
}

/// Says with which option a guard that wasn't admitted to the namespace would be.
pub(crate) fn explain(error: Error, common: &Common) -> Problem {
    let namespace = common.namespace.as_deref().unwrap_or_default();
    match error.kind() {
        ErrorKind::Secret if given(common).is_empty() => Problem::usage(format!(
            "the namespace {namespace:?} was written with a secret: give --secret-file PATH, a file that holds the \
             secret which the agent's guard is given"
        )),
        ErrorKind::Secret => Problem::usage(format!("{error} ({})", given(common).join(", "))),
        ErrorKind::Store(StoreErrorKind::Sealed) => Problem::usage(sealed(&error)),
        _ => error.into(),
    }
}

/// The options that were given, on the command line or in the environment.
fn given(common: &Common) -> Vec<&'static str> {
    let secret = named(&common.secret_file).next().map(|_| "--secret-file");
    #[cfg(feature = "seal")]
    let seal = named(&common.seal_key_file).next().map(|_| "--seal-key-file");
    #[cfg(not(feature = "seal"))]
    let seal = None;
    secret.into_iter().chain(seal).collect()
}

#[cfg(feature = "seal")]
fn sealed(error: &Error) -> String {
    format!(
        "{error}: give --seal-key-file PATH, a file that holds the key which the agent's guard seals with, and one for \
         each older key"
    )
}

#[cfg(not(feature = "seal"))]
fn sealed(error: &Error) -> String {
    format!("{error}, and this command was built without the feature `seal`, which it needs for them")
}

fn secret(path: &Path) -> Result<Secret, Problem> {
    let bytes = read(path)?;
    let bytes = without_line_break(&bytes);
    match bytes.is_empty() {
        true => Err(Problem::usage(format!("{} holds no secret: it is empty", path.display()))),
        false => Ok(Secret::new(bytes)),
    }
}

#[cfg(feature = "seal")]
fn seal_key(path: &Path) -> Result<[u8; 32], Problem> {
    let bytes = read(path)?;
    let raw = || <[u8; 32]>::try_from(&*bytes).ok();
    let text = || <&[u8; 64]>::try_from(without_line_break(&bytes)).ok().and_then(hex);
    raw().or_else(text).ok_or_else(|| {
        Problem::usage(format!("{} holds no seal key: that is 32 bytes, or 64 hex digits", path.display()))
    })
}

#[cfg(feature = "seal")]
fn hex(digits: &[u8; 64]) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(key)
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    fs::read(path).map_err(|error| Problem::usage(format!("{} can't be read: {error}", path.display())))
}

fn without_line_break(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

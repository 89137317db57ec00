//! The `x-toolonce` hints of one schema.

use serde_json::{Map, Value};
use unicode_normalization::UnicodeNormalization;

/// The keyword that holds the hints.
pub(super) const KEYWORD: &str = "x-toolonce";

/// What a value counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Mode {
    /// Key and fingerprint.
    Identity,
    /// Fingerprint only.
    Content,
    /// Neither.
    Ignore,
}

/// What doesn't matter in a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct TextRules {
    trim: bool,
    casefold: bool,
    nfc: bool,
}

/// All hints of one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Hints {
    pub(super) mode: Option<Mode>,
    pub(super) text: TextRules,
    pub(super) set: bool,
    pub(super) null_is_absent: bool,
    pub(super) secret: bool,
}

impl Hints {
    /// The hints written in one schema.
    pub(super) fn of(schema: &Map<String, Value>) -> Result<Self, String> {
        let mut hints = Self::default();
        if let Some(typo) = schema.keys().find(|key| key.starts_with("x-tool") && *key != KEYWORD) {
            return Err(format!("there is no keyword {}: hints stand under `x-toolonce`", super::error::shown(typo)));
        }
        match schema.get(KEYWORD) {
            None => {}
            Some(Value::String(hint)) => hints.add(hint)?,
            Some(Value::Array(list)) => {
                for hint in list {
                    hints.add(hint.as_str().ok_or("a hint must be a string")?)?;
                }
            }
            Some(_) => return Err("hints are a string or a list of strings".to_owned()),
        }
        Ok(hints)
    }

    fn add(&mut self, hint: &str) -> Result<(), String> {
        match hint {
            "identity" => self.select(Mode::Identity)?,
            "content" => self.select(Mode::Content)?,
            "ignore" => self.select(Mode::Ignore)?,
            "set" => self.set = true,
            "trim" => self.text.trim = true,
            "casefold" => self.text.casefold = true,
            "nfc" => self.text.nfc = true,
            "null-is-absent" => self.null_is_absent = true,
            "secret" => self.secret = true,
            _ => {
                return Err(format!(
                    "there is no hint {}: use identity, content, ignore, set, trim, casefold, nfc, null-is-absent or \
                     secret",
                    super::error::shown(hint)
                ));
            }
        }
        Ok(())
    }

    fn select(&mut self, mode: Mode) -> Result<(), String> {
        match self.mode.replace(mode) {
            Some(other) if other != mode => Err("of identity, content and ignore only one can hold".to_owned()),
            _ => Ok(()),
        }
    }

    /// The hints as words, always in the same order.
    pub(super) fn words(self) -> String {
        let mode = self.mode.map(|mode| match mode {
            Mode::Identity => "identity",
            Mode::Content => "content",
            Mode::Ignore => "ignore",
        });
        let TextRules { trim, casefold, nfc } = self.text;
        let flags = [
            (self.set, "set"),
            (trim, "trim"),
            (casefold, "casefold"),
            (nfc, "nfc"),
            (self.null_is_absent, "null-is-absent"),
        ];
        let flags = flags.into_iter().filter(|(is_on, _)| *is_on).map(|(_, word)| word);
        mode.into_iter().chain(flags).collect::<Vec<_>>().join(" ")
    }

    /// These hints and those of a schema further away: the nearer selection wins, everything else adds up.
    pub(super) fn and(self, further: Self) -> Self {
        Self {
            mode: self.mode.or(further.mode),
            text: self.text.and(further.text),
            set: self.set | further.set,
            null_is_absent: self.null_is_absent | further.null_is_absent,
            secret: self.secret | further.secret,
        }
    }
}

impl TextRules {
    pub(super) fn and(self, other: Self) -> Self {
        Self { trim: self.trim | other.trim, casefold: self.casefold | other.casefold, nfc: self.nfc | other.nfc }
    }

    /// The text with what doesn't matter taken out, or nothing if all of it matters.
    pub(super) fn apply(self, text: &str) -> Option<String> {
        if self == Self::default() {
            return None;
        }
        let mut text = if self.trim { text.trim() } else { text }.to_owned();
        if text.is_ascii() {
            if self.casefold {
                text.make_ascii_lowercase();
            }
            return Some(text);
        }
        if self.nfc {
            text = text.nfc().collect();
        }
        if self.casefold {
            text = text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
            // Folding can take a composed character apart.
            if self.nfc {
                text = text.nfc().collect();
            }
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_rules() {
        let rules = |hints: &[&str]| {
            let schema = serde_json::json!({ KEYWORD: hints });
            schema.as_object().and_then(|schema| Hints::of(schema).ok()).map(|hints| hints.text)
        };
        let apply = |hints: &[&str], text: &str| rules(hints).and_then(|rules| rules.apply(text));
        assert_eq!(apply(&[], " A "), None);
        assert_eq!(apply(&["trim"], "\u{2003} A\u{a0}").as_deref(), Some("A"));
        assert_eq!(apply(&["casefold"], "Straße ΣΑΣ"), apply(&["casefold"], "STRASSE σας"));
        assert_ne!(apply(&["casefold"], "e\u{301}"), apply(&["casefold"], "É"));
        assert_eq!(apply(&["casefold", "nfc"], "e\u{301}"), apply(&["nfc", "casefold"], "É"));
    }
}

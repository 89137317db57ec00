//! How things look: colours, dates, and text that isn't trusted.

use std::env;
use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};

use serde_json::Value;
use toolonce::{CallStatus, Execution, Millis};

/// Whether colours are used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    /// Colours only on a terminal that has them, and not if `NO_COLOR` says so (<https://no-color.org>).
    pub(crate) fn of_stdout() -> Self {
        Self::of(io::stdout().is_terminal(), env::var_os("NO_COLOR").as_deref(), env::var_os("TERM").as_deref())
    }

    fn of(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> Self {
        let is_unwanted = no_color.is_some_and(|value| !value.is_empty());
        Self { colour: is_terminal && !is_unwanted && term.is_none_or(|term| term != "dumb") }
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn status(self, status: CallStatus, text: &str) -> String {
        let code = match status {
            CallStatus::InDoubt => "1;33",
            CallStatus::AwaitingApproval => "1;36",
            CallStatus::Failed => "31",
            CallStatus::Done => "32",
            _ => "2",
        };
        self.paint(code, text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The status in words.
pub(crate) fn words(status: CallStatus) -> String {
    status.name().replace('_', " ")
}

/// The status in a sentence.
pub(crate) fn meaning(status: CallStatus) -> &'static str {
    match status {
        CallStatus::InDoubt => "It may have happened: nobody knows how its execution ended.",
        CallStatus::AwaitingApproval => "Nothing was done: a person has to permit it.",
        CallStatus::Approved => "A person permitted it. It runs when the agent makes the call again.",
        CallStatus::Expired => "It asked, and nobody answered in time. The next such call asks anew.",
        CallStatus::Denied => "A person refused it. It isn't done for the rest of the run.",
        CallStatus::Running => "A living process executes it.",
        CallStatus::Failed => "It did not happen, and the tool says that trying it again is useless.",
        CallStatus::Free => "It did not happen. A retry executes it.",
        CallStatus::Done => "It happened, and its outcome is recorded.",
        _ => "",
    }
}

/// The first digits: enough to tell two apart.
pub(crate) fn fingerprint(execution: &Execution) -> String {
    execution.fingerprint.as_bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The sentence in an answer to the model, which is an object with more in it.
pub(crate) fn sentence(text: &str) -> String {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    answer["message"].as_str().unwrap_or(text).to_owned()
}

/// Whether a character could steer a terminal or hide what is written: control characters, line breaks among them, marks
/// that turn the direction of writing, and what can't be seen.
pub(crate) fn steers(c: char) -> bool {
    let unseen = |c| matches!(c, '\u{200b}' | '\u{feff}' | '\u{2060}'..='\u{2064}' | '\u{e0000}'..='\u{e007f}');
    let breaks = |c| matches!(c, '\u{2028}' | '\u{2029}');
    let turns =
        |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || unseen(c) || breaks(c) || turns(c)
}

/// Text from a store or a tool, with what [`steers`] escaped.
pub(crate) fn clean(text: &str) -> String {
    let escape = |c: char| if steers(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// The first characters of a long text, cleaned, and how many are left out.
pub(crate) fn head(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => clean(text),
        Some((end, _)) => format!("{}… ({} bytes more, see --json)", clean(&text[..end]), text.len() - end),
    }
}

/// The same without the number, for a cell of a table.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => clean(text),
        Some((end, _)) => format!("{}…", clean(&text[..end])),
    }
}

/// A word of a command line.
pub(crate) fn shell(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | ':' | '@' | '+' | ',');
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// `1 call`, `2 calls`.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A moment in UTC to the second.
pub(crate) fn utc(at: Millis) -> String {
    let (date, time, _) = parts(at);
    format!("{date} {time}Z")
}

/// A moment for programs: RFC 3339 with milliseconds.
pub(crate) fn stamp(at: Option<Millis>) -> Value {
    let text = |at| {
        let (date, time, millis) = parts(at);
        format!("{date}T{time}.{millis:03}Z")
    };
    at.map(text).into()
}

/// How long ago, or how far ahead: a time ahead is never said to be nearer than it is.
pub(crate) fn relative(at: Millis, now: Millis) -> String {
    if at > now {
        return format!("in {}", span((at - now).div_ceil(1000), u64::div_ceil));
    }
    match (now - at) / 1000 {
        0 => "just now".to_owned(),
        seconds => format!("{} ago", span(seconds, |seconds, unit| seconds / unit)),
    }
}

fn span(seconds: u64, divide: fn(u64, u64) -> u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min")];
    // Two days are said in days, 100 minutes in minutes.
    match units.into_iter().find(|(unit, _)| seconds >= 2 * unit) {
        Some((unit, name)) => format!("{} {name}", divide(seconds, unit)),
        None => format!("{seconds} s"),
    }
}

/// Absolute and relative.
pub(crate) fn moment(at: Millis, now: Millis) -> String {
    format!("{} ({})", utc(at), relative(at, now))
}

/// Date, time of day and milliseconds, by the proleptic Gregorian calendar without leap seconds, as Unix time has it.
fn parts(at: Millis) -> (String, String, u64) {
    let (days, of_day) = (at / 86_400_000, at % 86_400_000);
    let (year, month, day) = civil(days);
    let seconds = of_day / 1000;
    let time = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    (format!("{year:04}-{month:02}-{day:02}"), time, of_day % 1000)
}

/// The date so many days after 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01 on, so that the leap day is a year's last
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_have_them_and_people_who_want_them() {
        let colour = |is_terminal, no_color: Option<&str>, term: Option<&str>| {
            Style::of(is_terminal, no_color.map(OsStr::new), term.map(OsStr::new)).bold("a") == "\x1b[1ma\x1b[0m"
        };
        assert!(colour(true, None, Some("xterm")) && colour(true, Some(""), None));
        assert!(
            !colour(false, None, Some("xterm")) && !colour(true, Some("1"), None) && !colour(true, None, Some("dumb"))
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399_000, "2000-02-28 23:59:59Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (1_709_251_199_999, "2024-02-29 23:59:59Z"),
            (4_107_542_400_000, "2100-03-01 00:00:00Z"),
            (1_796_000_000_123, "2026-11-30 00:53:20Z"),
        ];
        for (at, text) in cases {
            assert_eq!(utc(at), text);
        }
        assert_eq!(stamp(Some(1_796_000_000_123)), "2026-11-30T00:53:20.123Z");
        assert!(!utc(Millis::MAX).is_empty());
    }

    #[test]
    fn a_time_ahead_is_never_said_to_be_nearer() {
        let now = 1_000_000_000;
        assert_eq!(relative(now + 1, now), "in 1 s");
        assert_eq!(relative(now + 541_000, now), "in 10 min");
        assert_eq!(relative(now - 999, now), "just now");
        assert_eq!(relative(now - 119_000, now), "119 s ago");
        assert_eq!(relative(now - 599_000, now), "9 min ago");
        assert_eq!(relative(now - 3 * 86_400_000, now), "3 d ago");
    }

    #[test]
    fn what_steers_a_terminal_is_shown_and_not_done() {
        assert_eq!(clean("a\x1b[31mb\nc\u{202e}d é"), "a\\u{1b}[31mb\\nc\\u{202e}d é");
        assert_eq!(clean("a\u{200b}b\u{9b}2J"), "a\\u{200b}b\\u{9b}2J");
        assert_eq!((cut("abcdef", 3), cut("abc", 3)), ("abc…".to_owned(), "abc".to_owned()));
        assert_eq!(head("abcdef", 3), "abc… (3 bytes more, see --json)");
        assert_eq!((shell("a/b-c.d"), shell("a'b c")), ("a/b-c.d".to_owned(), "'a'\\''b c'".to_owned()));
    }
}

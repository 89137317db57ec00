//! What happens inside one execution of a tool.

use serde::Deserialize;

/// The fate of one execution: an optional wait, then how it goes. `wait:MS+KIND` in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Fate {
    /// Milliseconds before anything happens; 0 when none are given.
    pub wait_ms: u64,
    /// How the execution goes on after the wait.
    pub kind: FateKind,
}

/// How an execution goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FateKind {
    /// The effect happens and `{"n": k, "tool": NAME}` is returned.
    Ok,
    /// As [`FateKind::Ok`], the effect at the end of so many milliseconds.
    Slow(u64),
    /// The effect happens at once, the answer comes so many milliseconds later.
    SlowAfter(u64),
    /// A retryable error; no effect.
    FailBefore,
    /// A permanent error; no effect.
    FailFinal,
    /// The effect, then an error that nobody classified.
    Unknown,
    /// An error that nobody classified; nothing happened.
    UnknownNoEffect,
    /// The effect, then a panic.
    Panic,
    /// The process dies inside the body, before the effect.
    CrashBefore,
    /// The process dies after the effect.
    CrashAfter,
    /// The effect, then a result that can't be serialised.
    Unserialisable,
    /// The effect, then a result of so many bytes.
    Big(u64),
}

impl Fate {
    /// Whether the process dies in this execution: such a call gets no reply.
    pub fn crashes(self) -> bool {
        matches!(self.kind, FateKind::CrashBefore | FateKind::CrashAfter)
    }
}

impl Default for Fate {
    fn default() -> Self {
        Self { wait_ms: 0, kind: FateKind::Ok }
    }
}

impl TryFrom<String> for Fate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let Some((first, second)) = text.split_once('+') else {
            return Ok(Self { wait_ms: 0, kind: kind(&text)? });
        };
        let wait = first
            .strip_prefix("wait:")
            .ok_or_else(|| format!("fate `{text}`: only `wait:MS` can stand before a `+`"))?;
        Ok(Self { wait_ms: number(first, wait)?, kind: kind(second)? })
    }
}

fn kind(text: &str) -> Result<FateKind, String> {
    if let Some((name, amount)) = text.split_once(':') {
        return match name {
            "slow" => number(text, amount).map(FateKind::Slow),
            "slow_after" => number(text, amount).map(FateKind::SlowAfter),
            "big" => number(text, amount).map(FateKind::Big),
            "wait" => Err(format!("fate `{text}`: a wait needs what follows it, as in `{text}+unknown`")),
            _ => Err(format!("unknown fate `{text}`")),
        };
    }
    Ok(match text {
        "ok" => FateKind::Ok,
        "fail_before" => FateKind::FailBefore,
        "fail_final" => FateKind::FailFinal,
        "unknown" => FateKind::Unknown,
        "unknown_no_effect" => FateKind::UnknownNoEffect,
        "panic" => FateKind::Panic,
        "crash_before" => FateKind::CrashBefore,
        "crash_after" => FateKind::CrashAfter,
        "unserialisable" => FateKind::Unserialisable,
        _ => return Err(format!("unknown fate `{text}`")),
    })
}

fn number(fate: &str, digits: &str) -> Result<u64, String> {
    digits.parse().map_err(|_| format!("fate `{fate}`: `{digits}` is not a whole number"))
}

#[cfg(test)]
mod tests {
    use super::{Fate, FateKind};

    fn parse(text: &str) -> Result<Fate, String> {
        Fate::try_from(text.to_owned())
    }

    #[test]
    fn every_kind_is_read() {
        let plain = |kind| Ok(Fate { wait_ms: 0, kind });
        assert_eq!(parse("ok"), plain(FateKind::Ok));
        assert_eq!(parse("slow:200"), plain(FateKind::Slow(200)));
        assert_eq!(parse("slow_after:7"), plain(FateKind::SlowAfter(7)));
        assert_eq!(parse("fail_before"), plain(FateKind::FailBefore));
        assert_eq!(parse("fail_final"), plain(FateKind::FailFinal));
        assert_eq!(parse("unknown"), plain(FateKind::Unknown));
        assert_eq!(parse("unknown_no_effect"), plain(FateKind::UnknownNoEffect));
        assert_eq!(parse("panic"), plain(FateKind::Panic));
        assert_eq!(parse("crash_before"), plain(FateKind::CrashBefore));
        assert_eq!(parse("crash_after"), plain(FateKind::CrashAfter));
        assert_eq!(parse("unserialisable"), plain(FateKind::Unserialisable));
        assert_eq!(parse("big:3000000"), plain(FateKind::Big(3_000_000)));
        assert_eq!(parse("wait:50+panic"), Ok(Fate { wait_ms: 50, kind: FateKind::Panic }));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "okay",
            "slow",
            "slow:",
            "slow:-1",
            "slow:1.5",
            "big:x",
            "wait:5",
            "wait:5+",
            "ok+ok",
            "wait:5+wait:5",
            "wait:5+ok+ok",
            "OK",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

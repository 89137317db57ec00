//! The faults that a replay injects.

use std::fmt;

/// What goes wrong for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The tool had its effect, the reply never reached the caller, who asks again.
    ReplyLost,
    /// The caller gives up while the tool runs, and asks again.
    GivesUp,
    /// The host delivers the same turn again.
    Redelivered,
    /// The model asks for the same in other words.
    Reworded,
    /// The model makes the same call twice in one message.
    Sibling,
    /// The process dies before the effect and is restarted on the same store.
    CrashBefore,
    /// The process dies after the effect and is restarted on the same store.
    CrashAfter,
    /// The tool returns an error that says nothing about the effect.
    Unknown,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ReplyLost,
        Self::GivesUp,
        Self::Redelivered,
        Self::Reworded,
        Self::Sibling,
        Self::CrashBefore,
        Self::CrashAfter,
        Self::Unknown,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReplyLost => "reply-lost",
            Self::GivesUp => "gives-up",
            Self::Redelivered => "redelivered",
            Self::Reworded => "reworded",
            Self::Sibling => "sibling",
            Self::CrashBefore => "crash-before",
            Self::CrashAfter => "crash-after",
            Self::Unknown => "unknown-error",
        }
    }

    /// Whether it strikes while the tool runs.
    pub fn is_in_body(self) -> bool {
        !matches!(self, Self::Redelivered | Self::Reworded | Self::Sibling)
    }

    /// Whether it leaves open if a call happened.
    pub fn is_doubt(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter | Self::Unknown)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads `none`, `all` or a list of names with commas between them.
///
/// # Errors
/// A name that isn't one, with those that are.
pub fn parse(text: &str) -> Result<Vec<Fault>, String> {
    match text {
        "none" => return Ok(Vec::new()),
        "all" => return Ok(Fault::ALL.to_vec()),
        _ => {}
    }
    let one = |name: &str| Fault::ALL.into_iter().find(|fault| fault.name() == name.trim());
    let names = || Fault::ALL.map(Fault::name).join(", ");
    let fault = |name: &str| {
        one(name).ok_or_else(|| match name.trim() {
            word @ ("none" | "all") => format!("{word:?} can't stand in a list of faults: say it alone"),
            _ => format!("there is no fault {name:?}: none, all, or some of {}", names()),
        })
    };
    text.split(',').map(fault).collect()
}

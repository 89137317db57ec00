//! What the model asked for against what happened, by meaning: from the words of the model and the lines of the
//! ledger alone. Nothing here comes from the guard.

use serde_json::Value;

use crate::ledger::{Effect, Entry};
use crate::ui::{Style, Ui};
use crate::world::Asked;

/// One meaning: how often the model asked, how often it was meant, how often it happened.
#[derive(Debug)]
struct Row {
    effect: Effect,
    asked: usize,
    /// The ledger's entries.
    happened: Vec<String>,
}

impl Row {
    /// A charge or an e-mail is meant once, however often the model asks; a reboot each time.
    fn meant(&self) -> usize {
        match self.effect {
            Effect::Reboot => self.asked,
            Effect::Charge { .. } | Effect::Email { .. } => self.asked.min(1),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    rows: Vec<Row>,
}

impl Verdict {
    pub(crate) fn of<'a>(asked: &[Asked], happened: impl Iterator<Item = &'a Entry>) -> Self {
        let mut verdict = Self::default();
        for effect in asked.iter().filter_map(meaning) {
            verdict.row(effect).asked += 1;
        }
        for entry in happened {
            verdict.row(entry.wish.effect.clone()).happened.push(entry.id.clone());
        }
        verdict
    }

    fn row(&mut self, effect: Effect) -> &mut Row {
        let at = self.rows.iter().position(|row| row.effect == effect).unwrap_or_else(|| {
            self.rows.push(Row { effect, asked: 0, happened: Vec::new() });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    fn sum(&self, of: impl Fn(&Row) -> usize) -> usize {
        self.rows.iter().map(of).sum()
    }

    fn twice(&self) -> usize {
        self.sum(|row| row.happened.len().saturating_sub(row.meant()))
    }

    fn lost(&self) -> usize {
        self.sum(|row| row.meant().saturating_sub(row.happened.len()))
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.twice() == 0 && self.lost() == 0
    }

    /// The table and the last line.
    pub(crate) fn show(&self, ui: &Ui, (requests, paid_twice): (usize, usize)) {
        let head = format!("    {:<42} {:>5} {:>5}   in the ledger", "what the model asked", "asked", "meant");
        ui.line(&format!("\n{}", ui.paint(Style::Bold, &head)));
        for row in &self.rows {
            let (meant, happened) = (row.meant(), row.happened.len());
            let count = ui.paint(if happened == meant { Style::Green } else { Style::Red }, &happened.to_string());
            let ids = ui.paint(Style::Dim, &row.happened.join(" "));
            ui.line(&format!("    {:<42} {:>5} {meant:>5}   {count} {ids}", label(&row.effect), row.asked));
        }
        ui.line("");
        let repeats = if paid_twice == 0 { "none".to_owned() } else { paid_twice.to_string() };
        ui.note(&format!("The model answered {requests} requests; {repeats} of them was paid for twice."));
        let (asked, happened) = (self.sum(|row| row.asked), self.sum(|row| row.happened.len()));
        let line = format!("asked {asked} · happened {happened} · twice {} · lost {}", self.twice(), self.lost());
        ui.line(&format!("    {}", ui.paint(if self.is_clean() { Style::Green } else { Style::Red }, &line)));
    }
}

/// What a call means; `None` if it changes nothing.
fn meaning(asked: &Asked) -> Option<Effect> {
    let text = |name: &str| asked.arguments[name].as_str().unwrap_or_default().to_owned();
    match asked.tool.as_str() {
        "charge_card" => Some(Effect::Charge { order: text("order"), cents: whole(&asked.arguments["cents"]) }),
        "send_email" => Some(Effect::Email { to: text("to"), subject: text("subject"), body: text("body") }),
        "reboot_terminal" => Some(Effect::Reboot),
        _ => None,
    }
}

/// A number, however it is written.
fn whole(number: &Value) -> u64 {
    let float = || number.as_f64().filter(|float| float.fract() == 0.0).map(|float| float as u64);
    number.as_u64().or_else(float).unwrap_or_default()
}

fn label(effect: &Effect) -> String {
    match effect {
        Effect::Charge { order, cents } => format!("charge {}.{:02} € for {order}", cents / 100, cents % 100),
        Effect::Email { subject, .. } => format!("e-mail \"{subject}\""),
        Effect::Reboot => "reboot the card terminal".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ledger::Wish;

    fn asked(tool: &str, arguments: Value) -> Asked {
        Asked { tool: tool.to_owned(), arguments }
    }

    fn charged(id: &str) -> Entry {
        let effect = Effect::Charge { order: "A-1".to_owned(), cents: 4200 };
        Entry { id: id.to_owned(), at: 0, wish: Wish { run: "r".to_owned(), key: id.to_owned(), effect } }
    }

    #[test]
    fn a_charge_is_meant_once_however_it_is_written() {
        let asks = [
            asked("charge_card", json!({"order": "A-1", "cents": 4200})),
            asked("charge_card", json!({"cents": 4200.0, "order": "A-1"})),
            asked("look_up_order", json!({"order": "A-1"})),
        ];
        let verdict = |entries: &[Entry]| {
            let verdict = Verdict::of(&asks, entries.iter());
            (verdict.twice(), verdict.lost())
        };
        assert_eq!(verdict(&[charged("ch_1")]), (0, 0));
        assert_eq!(verdict(&[charged("ch_1"), charged("ch_2")]), (1, 0));
        assert_eq!(verdict(&[]), (0, 1));
    }

    #[test]
    fn what_nobody_asked_for_is_too_much_and_each_reboot_is_meant() {
        assert!(!Verdict::of(&[], [charged("ch_1")].iter()).is_clean());
        let verdict =
            Verdict::of(&[asked("reboot_terminal", json!({})), asked("reboot_terminal", json!({}))], [].iter());
        assert_eq!(verdict.lost(), 2);
    }
}

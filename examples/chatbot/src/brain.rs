//! The scripted model: what it says next, given the conversation. It behaves as models do on a bad day: it calls
//! again when told to wait, and it repeats itself in other words.

use serde::Serialize;
use serde_json::{Value, json};

/// What the model says: text, calls (tool, argument text), or both.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) calls: Vec<(&'static str, String)>,
}

impl Said {
    fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), calls: Vec::new() }
    }

    fn call(tool: &'static str, arguments: impl Into<String>) -> Self {
        Self { text: String::new(), calls: vec![(tool, arguments.into())] }
    }

    fn saying(mut self, text: &str) -> Self {
        text.clone_into(&mut self.text);
        self
    }
}

#[derive(Serialize)]
struct Charge<'a> {
    order: &'a str,
    cents: u64,
}

#[derive(Serialize)]
struct Mail<'a> {
    subject: &'a str,
    to: &'a str,
    body: &'a str,
}

fn written(arguments: &impl Serialize) -> String {
    serde_json::to_string(arguments).unwrap_or_default()
}

/// What the user wants, as far as a few words tell.
#[derive(Debug, PartialEq)]
enum Want {
    Order,
    Charge,
    MakeSure,
    Mail { again: bool },
    Reboot,
    Unclear,
}

/// The messages since the user spoke last, as far as they matter: the answers to calls.
struct Since<'a> {
    answers: Vec<(&'a str, &'a str)>,
}

/// What the model says next.
pub(crate) fn next(messages: &[Value]) -> Said {
    let spoke = messages.iter().rposition(|message| message["role"] == "user");
    let user = spoke.and_then(|at| messages[at]["content"].as_str()).unwrap_or_default();
    let since = Since::of(&messages[spoke.map_or(0, |at| at + 1)..]);
    let order = order_in(user).or_else(|| last_order(messages)).unwrap_or_else(|| "A-1042".to_owned());
    match want(user) {
        Want::Order => look_up(&order, &since),
        Want::Charge => charge(&order, &since),
        Want::MakeSure => make_sure(&order, messages, &since),
        Want::Mail { again } => mail(&order, again, &since),
        Want::Reboot => reboot(&since),
        Want::Unclear => Said::text(
            "I can look up an order (A-1042, B-7, C-300, D-12), charge it, make sure that it was charged, mail the \
             receipt, and reboot the card terminal.",
        ),
    }
}

fn want(user: &str) -> Want {
    let user = user.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| user.contains(word));
    if has(&["sure", "really", "went through", "go through"]) {
        Want::MakeSure
    } else if has(&["mail", "receipt"]) {
        Want::Mail { again: has(&["again", "another", "second", "once more"]) }
    } else if has(&["reboot", "terminal"]) {
        Want::Reboot
    } else if has(&["charge", "pay"]) {
        Want::Charge
    } else if has(&["order", "look"]) || order_in(&user).is_some() {
        Want::Order
    } else {
        Want::Unclear
    }
}

/// A word like `A-1042`.
fn order_in(text: &str) -> Option<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let is_order = |word: &&str| {
        word.split_once('-').is_some_and(|(letter, digits)| {
            letter.len() == 1 && !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
        })
    };
    words.into_iter().find(is_order).map(str::to_uppercase)
}

fn last_order(messages: &[Value]) -> Option<String> {
    let spoken = messages.iter().rev().filter(|message| message["role"] == "user");
    spoken.filter_map(|message| order_in(message["content"].as_str()?)).next()
}

impl<'a> Since<'a> {
    fn of(messages: &'a [Value]) -> Self {
        let calls = messages.iter().flat_map(|message| message["tool_calls"].as_array().into_iter().flatten());
        let answers = messages.iter().filter(|message| message["role"] == "tool");
        let pairs = calls
            .zip(answers)
            .filter_map(|(call, answer)| Some((call["function"]["name"].as_str()?, answer["content"].as_str()?)));
        Self { answers: pairs.collect() }
    }

    fn last(&self) -> Option<(&'a str, &'a str)> {
        self.answers.last().copied()
    }

    fn status(&self) -> Option<String> {
        let answer: Value = serde_json::from_str(self.last()?.1).ok()?;
        Some(answer["status"].as_str()?.to_owned())
    }
}

/// What is known of an order from looking it up: item, cents, e-mail address.
fn known(order: &str, answers: &[(&str, &str)]) -> Option<(String, u64, String)> {
    let found = answers.iter().rev().filter(|(tool, _)| *tool == "look_up_order");
    let parsed = found.filter_map(|(_, answer)| serde_json::from_str::<Value>(answer).ok());
    parsed.filter(|answer| answer["order"] == order).find_map(|answer| {
        Some((answer["item"].as_str()?.to_owned(), answer["cents"].as_u64()?, answer["email"].as_str()?.to_owned()))
    })
}

fn look_up(order: &str, since: &Since<'_>) -> Said {
    let Some((_, answer)) = since.last() else {
        return Said::call("look_up_order", json!({"order": order}).to_string()).saying("Let me look that up.");
    };
    match known(order, &since.answers) {
        Some((item, cents, _)) => Said::text(format!("Order {order} is {item}, {}.", euros(cents))),
        None => Said::text(format!("I can't find order {order}: {answer}")),
    }
}

fn charge(order: &str, since: &Since<'_>) -> Said {
    let Some((item, cents, _)) = known(order, &since.answers) else { return look_up(order, since) };
    let arguments = written(&Charge { order, cents });
    match (since.last(), since.status().as_deref()) {
        (Some(("charge_card", _)), Some("running")) => {
            Said::call("charge_card", arguments).saying("That takes long. I try again.")
        }
        (Some(("charge_card", answer)), Some(_)) => Said::text(format!("I can't say that it is paid: {answer}")),
        (Some(("charge_card", _)), None) => {
            Said::text(format!("Done: {} charged for {item}, order {order}.", euros(cents)))
        }
        _ => Said::call("charge_card", arguments),
    }
}

/// The same call again, in other words: other order, other white space, another way to write the number.
fn make_sure(order: &str, messages: &[Value], since: &Since<'_>) -> Said {
    if let Some((_, answer)) = since.last() {
        return match answer.contains("not done again") {
            true => Said::text(format!("Yes: order {order} is paid, once. Nothing was charged again.")),
            false => Said::text(format!("Order {order} is paid now.")),
        };
    }
    let Some((_, cents, _)) = known(order, &Since::of(messages).answers) else { return charge(order, since) };
    Said::call("charge_card", format!("{{ \"cents\": {}e2, \"order\": \"{order}\" }}", decimal(cents)))
        .saying("I charge it, to be sure.")
}

fn mail(order: &str, again: bool, since: &Since<'_>) -> Said {
    let Some((item, cents, to)) = known(order, &since.answers) else { return look_up(order, since) };
    let body = format!("{} for {item}. Thank you!", euros(cents));
    let mail = |subject: String| written(&Mail { subject: &subject, to: &to, body: &body });
    match since.last() {
        Some(("send_email", answer)) if again && answer.contains("not done again") => {
            Said::call("send_email", mail(format!("Receipt for {order} (second copy)")))
                .saying("That one was sent already. I say that this is a second copy.")
        }
        Some(("send_email", answer)) if answer.contains("\"status\"") => Said::text(format!("It isn't sent: {answer}")),
        Some(("send_email", _)) => Said::text(format!("Sent to {to}.")),
        _ => Said::call("send_email", mail(format!("Receipt for {order}"))),
    }
}

fn reboot(since: &Since<'_>) -> Said {
    match (since.last(), since.status()) {
        (None, _) => Said::call("reboot_terminal", "{}"),
        (Some(_), None) => Said::text("The terminal is rebooting."),
        (Some((_, answer)), Some(_)) => Said::text(format!("The terminal is not rebooted: {answer}")),
    }
}

fn euros(cents: u64) -> String {
    format!("{} €", decimal(cents))
}

fn decimal(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

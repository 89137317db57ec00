//! The shop's tools, and how each is guarded.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolonce::{Attempt, Guard, InDoubt, LookUp, Policy, Reconciled, RegisterError, Registry, Repeat, ToolError, tool};

use crate::ledger::{Effect, Entry, Wish};
use crate::ui::Ui;
use crate::world::Found;

/// How a process of the story dies, in the middle of a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Death {
    /// Over order B-7, when the charge is sent and no answer has come.
    Sent,
    /// Over order C-300, when the charge is claimed and not sent.
    Unsent,
}

impl Death {
    fn order(self) -> &'static str {
        match self {
            Self::Sent => "B-7",
            Self::Unsent => "C-300",
        }
    }
}

const ORDERS: [(&str, &str, u64); 4] = [
    ("A-1042", "two espresso cups", 4200),
    ("B-7", "a teapot", 1999),
    ("C-300", "a kilo of coffee", 2450),
    ("D-12", "a gift card", 5000),
];

/// The way to the shop's services.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    http: reqwest::Client,
    address: String,
    dies: Option<Death>,
    ui: Ui,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LookUpOrder {
    /// The order number, such as A-1042
    order: String,
}

#[derive(Debug, Serialize)]
struct Order {
    order: &'static str,
    item: &'static str,
    cents: u64,
    customer: &'static str,
    email: &'static str,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ChargeCard {
    // An order is paid once: a charge of another amount for it is a conflict, not another charge.
    /// The order number that is paid for
    #[schemars(extend("x-toolonce" = "identity"))]
    order: String,
    /// The amount, in euro cents
    cents: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SendEmail {
    /// The address
    to: String,
    /// The subject line
    subject: String,
    /// The text
    body: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RebootTerminal {}

#[derive(Debug, Serialize)]
struct Receipt {
    /// The entry in the books of whoever did it.
    done: String,
}

impl Services {
    pub(crate) fn new(address: String, ui: Ui, dies: Option<Death>) -> anyhow::Result<Self> {
        // They are on this machine: no proxy leads there.
        let http = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(5)).build()?;
        Ok(Self { http, address, dies, ui })
    }

    /// Sends a wish, once.
    async fn make_happen(&self, effect: Effect, at: &Attempt) -> Result<Receipt, ToolError> {
        let wish = Wish { run: at.run().to_owned(), key: at.downstream_key().hex32(), effect };
        at.check().await?;
        let sent = self.http.post(format!("{}/effects", self.address)).json(&wish).send();
        let answer = sent.await.map_err(|error| match error.is_connect() {
            true => ToolError::retryable(error),
            false => ToolError::unknown(error),
        })?;
        let entry: Entry = answer.error_for_status()?.json().await?;
        Ok(Receipt { done: entry.id })
    }

    /// Asks the books whether it happened.
    async fn look(&self, about: &LookUp) -> Result<Reconciled<Receipt>, ToolError> {
        let key = about.downstream_key().hex32();
        let asked = self.http.get(format!("{}/effects", self.address)).query(&[("key", &key)]).send().await?;
        Ok(match asked.error_for_status()?.json().await? {
            Found::Done { entry } => {
                self.ui.reconciled(&key, &format!("it happened, {}", entry.id));
                Reconciled::Happened(Receipt { done: entry.id })
            }
            Found::UnderWay => {
                self.ui.reconciled(&key, "not decided yet");
                Reconciled::CannotTell
            }
            Found::Nothing => {
                self.ui.reconciled(&key, "nothing there");
                Reconciled::DidNotHappen
            }
        })
    }

    async fn charge(&self, args: ChargeCard, at: Attempt) -> Result<Receipt, ToolError> {
        let death = self.dies.filter(|death| death.order() == args.order);
        if death == Some(Death::Unsent) {
            self.ui.dies("nothing was sent yet");
            std::process::abort()
        }
        let charging = self.make_happen(Effect::Charge { order: args.order, cents: args.cents }, &at);
        if death.is_none() {
            return charging.await;
        }
        tokio::select! {
            charged = charging => charged,
            () = tokio::time::sleep(Duration::from_millis(700)) => {
                self.ui.dies("the charge was sent, no answer has come");
                std::process::abort()
            }
        }
    }
}

/// The tools on `guard`. The policies are the point of the example: one line for each tool.
pub(crate) fn tools(guard: &Guard, services: &Services) -> Result<Registry, RegisterError> {
    let reads = Policy::read_only();
    // It must not run twice for one wish; what a crash leaves open, the books can tell.
    let once = Policy::write().in_doubt(InDoubt::Reconcile);
    // It has no arguments that could tell two wishes apart, so the policy says it: asking again means it again.
    let each = Policy::write().repeat(Repeat::Each);

    let services = Arc::new(services.clone());
    let mut tools = Registry::new(guard);
    tools.add(tool("look_up_order", "Looks an order up: item, amount, customer", reads, look_up_order))?;
    let (charges, books) = (Arc::clone(&services), Arc::clone(&services));
    tools.add(
        tool("charge_card", "Charges the customer's card for an order", once.clone(), move |args: ChargeCard, at| {
            let services = Arc::clone(&charges);
            async move { services.charge(args, at).await }
        })
        .reconcile(move |_, about| {
            let services = Arc::clone(&books);
            async move { services.look(&about).await }
        }),
    )?;
    let (mails, books) = (Arc::clone(&services), Arc::clone(&services));
    tools.add(
        tool("send_email", "Sends an e-mail to a customer", once, move |mail: SendEmail, at| {
            let services = Arc::clone(&mails);
            let SendEmail { to, subject, body } = mail;
            async move { services.make_happen(Effect::Email { to, subject, body }, &at).await }
        })
        .reconcile(move |_, about| {
            let services = Arc::clone(&books);
            async move { services.look(&about).await }
        }),
    )?;
    tools.add(tool("reboot_terminal", "Reboots the shop's card terminal", each, move |_: RebootTerminal, at| {
        let services = Arc::clone(&services);
        async move { services.make_happen(Effect::Reboot, &at).await }
    }))?;
    Ok(tools)
}

async fn look_up_order(args: LookUpOrder, _at: Attempt) -> Result<Order, ToolError> {
    let found = ORDERS.iter().find(|(order, ..)| *order == args.order);
    let (order, item, cents) = *found.ok_or_else(|| ToolError::permanent(format!("no order {}", args.order)))?;
    Ok(Order { order, item, cents, customer: "Ana", email: "ana@example.com" })
}

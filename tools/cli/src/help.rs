//! What `--help` says beyond one line.

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done, for ls also when nothing waits, and for an answer that was given before
  1  nothing was found (no such call, no call of this namespace) or nothing was settled
  2  the command line or its input is wrong, or a secret or seal key is missing or not in use
  3  another process holds the store: stop it first, one process at a time can use a store
  4  there is no store, or it is damaged or can't be read
  5  the output can't be written (what was to be settled is settled)
With --json the answer is one JSON object on standard output, and an error one on standard error.";

pub(crate) const COMMON: &str = "Options of every command, and exit codes: toolonce --help";

pub(crate) const ABOUT: &str = "\
Looks at the tool calls of an agent, and settles those that wait for a person.

An agent that uses the library toolonce never repeats a call on a guess. A call is in doubt
when its process died, or lost the connection, after it may have had its effect; a tool that is
keyed or has a look-up goes on when the agent makes the call again, any other waits until
somebody finds out and says so. A call awaits approval when the agent may not make it
without a person's permission.

Stop the agent: so far one process at a time can use a store. Then start with `toolonce ls`.
For each reference that it lists, `toolonce show REFERENCE` says what is known and what to do.

Example:
  export TOOLONCE_STORE=/var/lib/agent/calls TOOLONCE_NAMESPACE=shop
  toolonce ls
  toolonce show 2f9c41";

pub(crate) const LS: &str = "\
Lists the calls that need a person or may do so: in doubt, or awaiting approval. The newest come
first.

Calls with another status are only counted; --all or --status lists them. TRIES says how
often the call was begun, SINCE when the newest thing that is known of it happened, in UTC.

Examples:
  toolonce ls
  toolonce ls --run order-17 --all
  toolonce ls --status in-doubt --json | jq -r '.calls[].reference'";

pub(crate) const SHOW: &str = "\
Shows all that is known of one call: where it stands, its attempts and what came of them,
what people said, what the model was told, the arguments where they are kept, the key that
the system downstream may know it by, and what to do. It changes nothing.

Example:
  toolonce show 2f9c41";

pub(crate) const RESOLVE: &str = "\
Settles a call in doubt: it happened, or it didn't.

Find out first, where its effect would be: `toolonce show` has the key that the system
downstream may know it by, and the arguments where they are kept. The answer is final. If it
happened, every retry gets the result that you give and nothing runs again; if it did not
happen, the next retry executes it.

While an attempt could still have its effect, \"did not happen\" is refused and the time is
named from which on it is taken. --force is for when you know that nothing is under way any
more. It is never needed for --happened.

Examples:
  toolonce resolve 2f9c41d07a3b --happened --result '{\"charge\": \"ch_1\"}'
  toolonce resolve 2f9c41d07a3b --happened --result @result.json --reason 'in the ledger'
  toolonce resolve 2f9c41d07a3b --did-not-happen --reason 'not in the ledger' --by ada";

pub(crate) const APPROVE: &str = "\
Permits one execution of a call that awaits approval, with the arguments that were asked about.

Nothing runs at once: the call is executed when the agent makes it again. The permission is
used up by that, and doesn't end before.

Example:
  toolonce approve 81b0de55c2f4 --by ada";

pub(crate) const DENY: &str = "\
Refuses a call that awaits approval, for the rest of its run. The model is told so, with the
reason if you give one.

Example:
  toolonce deny 81b0de55c2f4 --reason 'over the limit of this month' --by ada";

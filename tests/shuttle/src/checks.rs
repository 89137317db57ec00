// Included beside each flight.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use shuttle::future::{block_on, spawn, yield_now};
use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::Arc;

use flight::{FlightEnd, Flights};

/// What a call does when it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leads {
    /// It has its effect and records that.
    Records,
    /// It gets nowhere.
    Leaves,
    /// It is gone where it claims, as by a panic: shuttle's locks don't bear to be taken while one unwinds.
    Dies,
}

/// One unit of work and what is known of it.
#[derive(Default)]
struct Unit {
    flights: Flights,
    is_led: AtomicBool,
    /// The record: the effect's number, 0 if there is none.
    recorded: AtomicU32,
    effects: AtomicU32,
}

impl Unit {
    /// A call as the guard drives it: it leads or follows until it has an answer.
    async fn call(&self, mut leads: Leads, mut leaves_once: bool) -> u32 {
        loop {
            let mut follower = match self.flights.lead((7, 0), 1) {
                Err(follower) => follower,
                Ok(leader) => {
                    assert!(!self.is_led.swap(true, Ordering::SeqCst), "two lead");
                    // What was read before it led may be older than the flight before.
                    let recorded = self.recorded.load(Ordering::SeqCst);
                    match leads {
                        _ if recorded > 0 => {
                            self.is_led.store(false, Ordering::SeqCst);
                            leader.end(FlightEnd::Success);
                            return recorded;
                        }
                        Leads::Records => {
                            yield_now().await;
                            leader.going();
                            yield_now().await;
                            let number = self.effects.fetch_add(1, Ordering::SeqCst) + 1;
                            self.recorded.store(number, Ordering::SeqCst);
                            self.is_led.store(false, Ordering::SeqCst);
                            leader.end(FlightEnd::Success);
                            return number;
                        }
                        Leads::Leaves => {
                            leader.going();
                            yield_now().await;
                            self.is_led.store(false, Ordering::SeqCst);
                            drop(leader);
                        }
                        Leads::Dies => {
                            self.is_led.store(false, Ordering::SeqCst);
                            drop(leader);
                        }
                    }
                    // The next time somebody else's turn has come, or its own to do it.
                    leads = Leads::Records;
                    continue;
                }
            };
            if follower.is_claiming() {
                follower.claimed().await;
                continue;
            }
            if std::mem::take(&mut leaves_once) {
                let mut ended = pin!(follower.ended());
                // It looks once, and is gone.
                let looked = std::future::poll_fn(|context| Poll::Ready(ended.as_mut().poll(context)));
                if looked.await.is_pending() {
                    continue;
                }
            }
            if follower.ended().await == FlightEnd::Success {
                let recorded = self.recorded.load(Ordering::SeqCst);
                assert!(recorded > 0, "told of an outcome before there is one");
                return recorded;
            }
        }
    }
}

/// Calls that lead in these ways, and one that leaves while it follows: there is one effect, and each gets its number.
pub fn race(ways: &'static [Leads]) {
    let unit = Arc::new(Unit::default());
    let calls: Vec<_> = ways
        .iter()
        .enumerate()
        .map(|(n, way)| {
            let unit = Arc::clone(&unit);
            spawn(async move { unit.call(*way, n == 1).await })
        })
        .collect();
    for call in calls {
        assert_eq!(block_on(call).unwrap(), 1, "each gets the one answer");
    }
    assert_eq!(unit.effects.load(Ordering::SeqCst), 1, "there is one effect");
    assert!(unit.flights.follow((7, 0)).is_none(), "nobody leads any more");
}

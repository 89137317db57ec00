//! Tries many orders of one of the flights, by its name, in the same ones each time: 101 says that something was found.
//!
//! A process for each, for a mutant that is found can abort it: shuttle's locks panic where they are taken while one
//! unwinds.

use std::env;

fn main() {
    let name = env::args().nth(1).expect("the name of a flight");
    macro_rules! pick {
        ($($flight:ident),*) => {
            match name.as_str() {
                $(stringify!($flight) => toolonce_shuttle::try_orders!($flight, 4_000, Some(7)),)*
                _ => panic!("there is no flight {name}"),
            }
        };
    }
    pick!(as_it_is, wakes_first, looks_then_enters, tells_nobody_of_its_end, leaves_its_place_taken, lets_two_lead);
}

//! The names of all queues, each of which is unique.
//!
//! Queues that ask for one name and accept a number (`io`, `io#2`, `io#3`) are twins. Finding the
//! first free number takes a time that does not depend on how many of them exist: a base name knows
//! the numbers below `next` that are free again. A number whose name belongs to another queue, which
//! asked for exactly that name, is passed over; it becomes free with that name. So every name lists
//! the numbers that it occupies.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use super::name::Name;
use crate::words::sync::{Lock, LockGuard};

pub(crate) struct Names(Lock<Taken>);

/// The names in use.
pub(crate) struct Taken {
    /// Each name, and the numbers that it occupies.
    names: HashMap<Name, Vec<Number>>,
    /// The base names of which a number is occupied.
    bases: HashMap<Name, Base>,
}

/// A number of a base name. 1 is the base name itself.
struct Number {
    base: Name,
    number: u32,
}

/// The numbers of a base name.
struct Base {
    /// All numbers from here on are free, or were never tried.
    next: u32,
    /// The free numbers below.
    free: BTreeSet<u32>,
    /// How many numbers are occupied.
    occupied: usize,
}

impl Base {
    /// The lowest number that may be free. It is occupied from now on.
    fn occupy(&mut self) -> u32 {
        self.occupied += 1;
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

impl Names {
    pub(crate) fn new() -> Names {
        Names(Lock::new(Taken { names: HashMap::new(), bases: HashMap::new() }))
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, Taken> {
        self.0.lock()
    }

    /// Registers a queue's name. Returns false if it is taken.
    pub(super) fn claim(&self, name: Name) -> bool {
        match self.0.lock().names.entry(name) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(Vec::new());
                true
            }
        }
    }

    /// Registers `base` with the first number, from `first` on, whose name is free. `first` is the
    /// same in all calls for a base.
    pub(super) fn claim_numbered(&self, base: Name, first: u32) -> Name {
        let taken = &mut *self.0.lock();
        let fresh = || Base { next: first, free: BTreeSet::new(), occupied: 0 };
        let numbers = taken.bases.entry(base).or_insert_with(fresh);
        loop {
            let number = numbers.occupy();
            let name = if number == 1 { base } else { base.with_number(number) };
            match taken.names.entry(name) {
                Entry::Occupied(mut other) => other.get_mut().push(Number { base, number }),
                Entry::Vacant(vacant) => {
                    vacant.insert(vec![Number { base, number }]);
                    return name;
                }
            }
        }
    }

    pub(crate) fn release(&self, name: &Name) {
        let taken = &mut *self.0.lock();
        for Number { base, number } in taken.names.remove(name).into_iter().flatten() {
            let Entry::Occupied(mut numbers) = taken.bases.entry(base) else { continue };
            numbers.get_mut().occupied -= 1;
            if numbers.get().occupied == 0 {
                numbers.remove();
            } else {
                numbers.get_mut().free.insert(number);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn claimed(names: &Names, base: &str) -> String {
        names.claim_numbered(name(base), 1).as_str().to_owned()
    }

    #[test]
    fn a_name_that_is_taken_gets_the_first_free_number() {
        let names = Names::new();
        for expected in ["io", "io#2", "io#3", "io#4"] {
            assert_eq!(claimed(&names, "io"), expected);
        }
        for gone in ["io#3", "io", "io#2"] {
            names.release(&name(gone));
        }
        for expected in ["io", "io#2", "io#3", "io#5"] {
            assert_eq!(claimed(&names, "io"), expected);
        }
        assert!(!names.claim(name("io#5")) && names.claim(name("io#6")));
    }

    // Catches: a number whose name was chosen by another queue is never used again.
    #[test]
    fn a_number_is_free_when_the_queue_of_that_very_name_has_gone() {
        let names = Names::new();
        assert!(names.claim(name("io")) && names.claim(name("io#3")));
        assert_eq!([claimed(&names, "io"), claimed(&names, "io")], ["io#2", "io#4"]);
        names.release(&name("io#3"));
        names.release(&name("io"));
        assert_eq!(claimed(&names, "io"), "io");
        assert_eq!([claimed(&names, "io"), claimed(&names, "io")], ["io#3", "io#5"]);
    }

    #[test]
    fn long_names_that_are_cut_alike_share_no_name() {
        let names = Names::new();
        let bases = ["x".repeat(31), "x".repeat(30) + "y"];
        let mut all = BTreeSet::new();
        for round in 0..200 {
            assert!(all.insert(claimed(&names, &bases[round % 2])));
        }
        assert!(all.iter().all(|name| name.len() <= 31));
        for gone in &all {
            names.release(&name(gone));
        }
        let taken = names.lock();
        assert!(taken.names.is_empty() && taken.bases.is_empty(), "nothing is left behind");
    }

    // Catches: each of N twins tries the names of all others.
    #[test]
    fn the_next_number_is_found_at_once() {
        let names = Names::new();
        let tries = |names: &Names| {
            let before = names.lock().bases.get(&name("io")).map_or(0, |base| base.occupied);
            claimed(names, "io");
            names.lock().bases[&name("io")].occupied - before
        };
        assert!((0..2_000).all(|_| tries(&names) == 1));
        for number in (2..2_000).step_by(7) {
            names.release(&name(&format!("io#{number}")));
            assert_eq!(tries(&names), 1);
        }
    }
}

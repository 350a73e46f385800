//! What the host must do on a thread before that thread runs an item of a queue: numbers that the
//! engine stores and passes on, and that only the host understands.

use std::ptr;

use crate::words::sync::{AtomicPtr, Ordering};

/// The demands of a queue. They are added and removed at any time, beside threads that read them.
///
/// A place is never freed while the queue lives, since a reader may be at it: a removal leaves it empty
/// for the next demand. A place is made only if all others were full when the adder looked at them.
pub struct Demands {
    /// The place that was made last. A list of boxes, which this owns.
    last: AtomicPtr<Place>,
}

struct Place {
    /// The number, as an address; null in an empty place.
    number: AtomicPtr<()>,
    earlier: *mut Place,
}

// SAFETY: `earlier` does not change once the place is in the list.
unsafe impl Sync for Demands {}
// SAFETY: as above.
unsafe impl Send for Demands {}

/// Some of a queue's demands, copied, for a thread that holds neither the queue nor a lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    numbers: [usize; Wanted::MAX],
    count: usize,
}

impl Wanted {
    /// The most demands that are copied at a time.
    const MAX: usize = 8;

    /// Adds a demand. False if there is no room.
    pub fn add(&mut self, number: usize) -> bool {
        let Some(place) = self.numbers.get_mut(self.count) else { return false };
        *place = number;
        self.count += 1;
        true
    }

    /// The demands, in the order in which they were added.
    pub fn numbers(&self) -> &[usize] {
        &self.numbers[..self.count]
    }
}

impl Demands {
    pub(crate) fn new() -> Demands {
        Demands { last: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Adds a demand, for the items that are queued from now on. Returns false if the queue makes it
    /// already. Two threads that add the same one at once may both do so.
    pub fn add(&self, number: usize) -> bool {
        if self.contains(number) {
            return false;
        }
        let wanted = ptr::without_provenance_mut(number);
        // SeqCst, here and in the removal: see its caller.
        let fill = |place: &Place| {
            let number = &place.number;
            number
                .compare_exchange(ptr::null_mut(), wanted, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        };
        if !self.places().any(fill) {
            self.add_place(wanted);
        }
        true
    }

    fn add_place(&self, number: *mut ()) {
        let mut last = self.last.load(Ordering::Relaxed);
        let number = AtomicPtr::new(number);
        let place = Box::into_raw(Box::new(Place { number, earlier: last }));
        // Release is part of it: a thread that finds the place sees its fields.
        while let Err(now) =
            self.last.compare_exchange(last, place, Ordering::SeqCst, Ordering::Relaxed)
        {
            last = now;
            // SAFETY: from a box, and in no list.
            unsafe { (*place).earlier = last };
        }
    }

    /// Removes a demand. A thread that has read it before may still meet it.
    pub fn remove(&self, number: usize) {
        let unwanted = ptr::without_provenance_mut(number);
        for place in self.places() {
            // Not a store: the place may have another demand by now.
            let _ = place.number.compare_exchange(
                unwanted,
                ptr::null_mut(),
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
        }
    }

    fn contains(&self, number: usize) -> bool {
        self.places().any(|place| place.number.load(Ordering::SeqCst).addr() == number)
    }

    /// The places, the last one first.
    #[inline(always)]
    fn places(&self) -> impl Iterator<Item = &Place> {
        // SAFETY: null, or a place of the list, which is freed with the list. SeqCst, of which the
        // acquire shows the fields.
        let first = unsafe { self.last.load(Ordering::SeqCst).as_ref() };
        // SAFETY: as above.
        std::iter::successors(first, |place| unsafe { place.earlier.as_ref() })
    }

    /// Calls `f` with each demand.
    #[inline(always)]
    pub fn for_each(&self, mut f: impl FnMut(usize)) {
        for place in self.places() {
            // Acquire: what the number stands for.
            let number = place.number.load(Ordering::Acquire).addr();
            if number != 0 {
                f(number);
            }
        }
    }
}

impl Drop for Demands {
    fn drop(&mut self) {
        let mut next = self.last.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: a box of the list, of which no thread has a reference.
            next = unsafe { Box::from_raw(next) }.earlier;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn numbers(demands: &Demands) -> Vec<usize> {
        let mut numbers = Vec::new();
        demands.for_each(|number| numbers.push(number));
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn a_demand_that_is_removed_is_not_made_and_leaves_its_place_to_the_next_one() {
        let demands = Demands::new();
        assert_eq!([1, 2, 3, 2].map(|number| demands.add(number)), [true, true, true, false]);
        for number in 4..1_000 {
            demands.remove(2);
            demands.remove(number - 1);
            assert!(demands.add(number));
            assert_eq!(numbers(&demands), if number == 4 { vec![1, 4] } else { vec![1, number] });
        }
        assert_eq!(demands.places().count(), 3);
    }

    #[test]
    fn threads_add_and_remove_their_demands_beside_each_other() {
        let demands = Demands::new();
        std::thread::scope(|threads| {
            for number in 1..5 {
                let demands = &demands;
                threads.spawn(move || {
                    for _ in 0..10_000 {
                        assert!(demands.add(number));
                        assert!(numbers(demands).contains(&number));
                        demands.remove(number);
                    }
                });
            }
        });
        assert!(numbers(&demands).is_empty());
        assert!(demands.places().count() < 1_000, "places are used again");
    }
}

//! Calls a function for all items of a list at the same time, by a thread each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;

/// The most threads. A process of a list that is asked takes a descriptor, too.
const AT_ONCE: usize = 512;
/// The stack of such a thread.
const STACK: usize = 512 << 10;

/// Calls `f` for all items at the same time, as far as the system gives threads. The second argument is
/// the number of items that the calling thread has yet to do, this one included. The results are in the
/// order of the items.
pub(crate) fn at_once<T: Sync, R: Send>(items: &[T], f: impl Fn(&T, usize) -> R + Sync) -> Vec<R> {
    by_threads(AT_ONCE, items, f)
}

/// The same by this number of threads at most.
fn by_threads<T: Sync, R: Send>(
    most: usize,
    items: &[T],
    f: impl Fn(&T, usize) -> R + Sync,
) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Written until all threads are started.
    let threads = RwLock::new(1);
    let mut started = threads.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let work = || {
        let threads = *threads.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        while let Some((place, item)) = {
            let place = next.fetch_add(1, Ordering::Relaxed);
            items.get(place).map(|item| (place, item))
        } {
            let result = f(item, (items.len() - place).div_ceil(threads));
            results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((place, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..items.len().min(most) {
            // Without one more thread, those that exist have more to do.
            if thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).is_err() {
                break;
            }
            *started += 1;
        }
        drop(started);
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by_key(|&(place, _)| place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..2_000).collect();
        assert_eq!(at_once(&items, |item, _| item * 2), (0..4_000).step_by(2).collect::<Vec<_>>());
        assert!(at_once(&[], |item: &u8, _| *item).is_empty());
    }

    // Catches: a silent process that takes the time of those behind it in the list.
    #[test]
    fn each_item_has_a_share_of_the_time_where_threads_are_few() {
        assert_eq!(by_threads(1, &[0; 4], |_, items| items), [4, 3, 2, 1]);
        assert_eq!(by_threads(512, &[0; 4], |_, items| items), [1; 4]);
        assert_eq!(by_threads(2, &[0; 5], |_, items| items), [3, 2, 2, 1, 1]);
    }

    #[test]
    fn a_hundred_items_are_worked_on_at_the_same_time() {
        let all = std::sync::Barrier::new(100);
        assert_eq!(at_once(&[0; 100], |_, _| all.wait()).len(), 100);
    }
}

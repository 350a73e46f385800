//! Calls a function for all items of a list at the same time, by a thread each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;

/// The most threads. A process of a list that is asked takes a descriptor, too.
const AT_ONCE: usize = 512;
/// The stack of such a thread.
const STACK: usize = 512 << 10;

/// Calls `f` for all items at the same time, as far as the system gives threads. The second argument is
/// the item's share of the time that is left, from 0 to 1. The users of the items have equal shares of
/// the time: no user takes that of another by a number of items. The results are in the order of the
/// items.
pub(crate) fn at_once<T: Sync, R: Send>(
    items: &[T],
    user: impl Fn(&T) -> u32,
    f: impl Fn(&T, f64) -> R + Sync,
) -> Vec<R> {
    let users: Vec<u32> = items.iter().map(user).collect();
    by_threads(AT_ONCE, items, &parts(&users), f)
}

/// The part that each item has of all items that are left, itself included.
fn parts(users: &[u32]) -> Vec<f64> {
    let mut counts = HashMap::new();
    users.iter().for_each(|user| *counts.entry(*user).or_insert(0.0) += 1.0);
    let mut left = 0.0;
    let mut parts: Vec<f64> = users
        .iter()
        .rev()
        .map(|user| {
            let weight: f64 = 1.0 / counts[user];
            left += weight;
            weight / left
        })
        .collect();
    parts.reverse();
    parts
}

/// The same by this number of threads at most.
fn by_threads<T: Sync, R: Send>(
    most: usize,
    items: &[T],
    parts: &[f64],
    f: impl Fn(&T, f64) -> R + Sync,
) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Written until all threads are started.
    let threads = RwLock::new(1_u32);
    let mut started = threads.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let work = || {
        let threads = *threads.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        while let Some((place, item)) = {
            let place = next.fetch_add(1, Ordering::Relaxed);
            items.get(place).map(|item| (place, item))
        } {
            let result = f(item, (parts[place] * threads as f64).min(1.0));
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
        let results = at_once(&items, |_| 7, |item, _| item * 2);
        assert_eq!(results, (0..4_000).step_by(2).collect::<Vec<_>>());
        assert!(at_once(&[], |_| 7, |item: &u8, _| *item).is_empty());
    }

    // Catches: a silent process that takes the time of those behind it in the list.
    #[test]
    fn each_item_has_a_share_of_the_time_where_threads_are_few() {
        let shares = |threads, users: &[u32]| {
            let percent = |_: &u32, share: f64| (share * 100.0).round();
            by_threads(threads, users, &parts(users), percent)
        };
        assert_eq!(shares(1, &[7; 4]), [25.0, 33.0, 50.0, 100.0]);
        assert_eq!(shares(512, &[7; 4]), [100.0; 4]);
        assert_eq!(shares(2, &[7; 5]), [40.0, 50.0, 67.0, 100.0, 100.0]);
    }

    // Catches: a user whose processes have no time, as another has a thousand that are silent.
    #[test]
    fn users_have_equal_shares_of_the_time() {
        let users: Vec<u32> = [8, 7, 8, 7].into_iter().chain([8; 998]).collect();
        let mut left = 1.0;
        let mut times = [0.0; 2];
        for (user, part) in users.iter().zip(parts(&users)) {
            times[usize::from(*user == 8)] += left * part;
            left -= left * part;
        }
        assert!(times.iter().all(|time: &f64| (time - 0.5).abs() < 1e-6), "{times:?}");
    }

    #[test]
    fn a_hundred_items_are_worked_on_at_the_same_time() {
        let all = std::sync::Barrier::new(100);
        assert_eq!(at_once(&[0; 100], |_| 7, |_, _| all.wait()).len(), 100);
    }
}

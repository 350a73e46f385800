//! Independent simulations, as many at a time as this machine has CPUs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use super::UserError;

/// Calls `run` for each of these tasks, several at a time, and `take` with the results in the order of
/// the tasks. Ends early, with false, if `take` returns false.
pub(super) fn in_order<T: Sync, R: Send>(
    tasks: &[T],
    run: impl Fn(&T) -> Result<R, UserError> + Sync,
    mut take: impl FnMut(R) -> Result<bool, UserError>,
) -> Result<bool, UserError> {
    let next = AtomicUsize::new(0);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let (sender, results) = channel();
        for _ in 0..cpus.min(tasks.len()) {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = tasks.get(at) else { return };
                    if sender.send((at, run(task))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let (mut early, mut taken) = (BTreeMap::new(), 0);
        for (at, result) in results {
            early.insert(at, result?);
            while let Some(result) = early.remove(&taken) {
                taken += 1;
                if !take(result)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_tasks() {
        // With two CPUs and more, the first task ends after the second has.
        let (sender, receiver) = channel();
        let receiver = Mutex::new(receiver);
        let several = std::thread::available_parallelism().map_or(1, usize::from) > 1;
        let run = |&task: &usize| {
            match task {
                0 if several => {
                    let _ = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                }
                1 => _ = sender.send(()),
                _ => {}
            }
            Ok(task)
        };
        let mut taken = Vec::new();
        let tasks: Vec<usize> = (0..20).collect();
        let take = |task| {
            taken.push(task);
            Ok(true)
        };
        assert!(matches!(in_order(&tasks, run, take), Ok(true)));
        assert_eq!(taken, tasks);
    }

    #[test]
    fn the_first_refusal_or_error_ends_all() {
        let mut taken = 0;
        let take = |_| {
            taken += 1;
            Ok(taken < 2)
        };
        assert!(matches!(in_order(&[1; 100], |_| Ok(()), take), Ok(false)));
        assert_eq!(taken, 2);
        let run = |_: &u8| Err::<(), _>(UserError("no".to_owned()));
        assert!(in_order(&[1; 100], run, |()| Ok(true)).is_err());
    }
}

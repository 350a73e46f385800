//! Every pool runs every job once, including jobs that wait.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;

use uwork_rivals::jobs::job_rivals;

#[test]
fn every_pool_runs_every_job_once() {
    const JOBS: usize = 100;
    for rival in job_rivals() {
        let pool = rival.start(2, 4);
        let (ended, ends) = channel();
        for number in 0..JOBS {
            let (ended, wait) = (ended.clone(), pool.wait());
            let blocks = number % 3 == 0;
            let job = move || {
                let calls = AtomicU32::new(0);
                if blocks {
                    wait(&mut || {
                        calls.fetch_add(1, Ordering::Relaxed);
                    });
                }
                ended.send((number, calls.into_inner())).expect("the test waits");
            };
            pool.submit(Box::new(job), blocks);
        }
        drop(ended);
        let seen: Vec<(usize, u32)> = ends.iter().collect();
        assert_eq!(seen.len(), JOBS, "{}", rival.runner);
        let numbers: BTreeSet<usize> = seen.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers.len(), JOBS, "{}", rival.runner);
        for (number, calls) in seen {
            assert_eq!(
                calls,
                u32::from(number % 3 == 0),
                "{}: a waiting closure is called once",
                rival.runner
            );
        }
    }
}

#[test]
fn a_pool_that_replaces_blocked_items_starts_the_next_item() {
    for rival in job_rivals().into_iter().filter(|rival| rival.replaces_blocked) {
        let pool = rival.start(1, 4);
        let (go, gate) = channel();
        let (wait, (done, last)) = (pool.wait(), channel());
        let waits = move || wait(&mut || gate.recv().expect("the next item releases it"));
        pool.submit(Box::new(waits), true);
        pool.submit(
            Box::new(move || {
                go.send(()).expect("the blocked item waits");
                done.send(()).expect("the test waits");
            }),
            false,
        );
        last.recv().unwrap_or_else(|_| panic!("{}: the next item never ran", rival.runner));
    }
}

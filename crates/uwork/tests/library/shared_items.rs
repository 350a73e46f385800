//! Items that several queues share.

use crate::support::items::Job;
use crate::support::{queue, watchdog};
use uwork::{AffinityScope, AffinityScopeChoice};

// Catches: an item that is lost when many queues share it and every run waits.
#[test]
fn items_that_many_queues_share_and_that_wait() {
    let _watchdog = watchdog();
    let queues = [
        queue("stress").build().unwrap(),
        queue("stress").per_cpu().build().unwrap(),
        queue("stress").ordered().build().unwrap(),
        queue("stress").max_active(2).build().unwrap(),
        queue("stress")
            .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::System))
            .build()
            .unwrap(),
    ];
    let jobs: Vec<_> =
        (0..100).map(|_| Job::new(|_| uwork::blocking(std::thread::yield_now))).collect();
    let mut queued = 0;
    for _ in 0..60 {
        for queue in &queues {
            for job in &jobs {
                queued += u32::from(queue.enqueue(job.clone()).is_queued());
            }
        }
        queues.iter().for_each(|queue| queue.flush().unwrap());
    }
    assert_eq!(jobs.iter().map(|job| job.tally.finished()).sum::<u32>(), queued);
    assert!(jobs.iter().all(|job| !job.tally.overlapped() && !job.work.is_pending()));
}

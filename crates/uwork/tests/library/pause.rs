//! Pause and resume of one queue, on threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::support::flag::SetOnDrop;
use crate::support::gate::{Gate, Log};
use crate::support::items::Job;
use crate::support::{queue, until, watchdog};
use uwork::{AffinityScope, AffinityScopeChoice, Builder, ErrorKind, Queue};

fn one_of_each() -> Vec<Queue> {
    let kinds: [fn(Builder) -> Builder; 6] = [
        Builder::per_cpu,
        Builder::ordered,
        Builder::dedicated,
        Builder::bh,
        |builder| builder.affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::System)),
        |builder| builder.affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Cpu)),
    ];
    kinds.map(|kind| kind(queue("pause")).build().unwrap()).into()
}

// Catches: an item that runs after a pause has returned, one that is lost or runs twice, a pause
// that misses the wake of the last worker and hangs.
#[test]
fn no_item_runs_between_a_pause_and_its_resume() {
    const PRODUCERS: u32 = 2;
    const PAUSES: u32 = 50;
    let _watchdog = watchdog();
    for queue in one_of_each() {
        let (inside, ran, stop) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
        let state = Arc::new((inside, ran, stop));
        let over = SetOnDrop(&state.2);
        let produce = || {
            let (queue, state) = (queue.clone(), state.clone());
            thread::spawn(move || {
                let mut handles = Vec::new();
                while !state.2.load(Ordering::SeqCst) {
                    let of_item = state.clone();
                    let item = move || {
                        of_item.0.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        of_item.1.fetch_add(1, Ordering::SeqCst);
                        of_item.0.fetch_sub(1, Ordering::SeqCst);
                    };
                    handles.push(queue.spawn(item));
                    thread::yield_now();
                }
                handles.len() as u32
            })
        };
        let producers: Vec<_> = (0..PRODUCERS).map(|_| produce()).collect();
        for _ in 0..PAUSES {
            queue.pause().unwrap();
            let before = state.1.load(Ordering::SeqCst);
            for _ in 0..10 {
                thread::yield_now();
                assert_eq!(state.0.load(Ordering::SeqCst), 0, "an item runs while paused");
            }
            assert_eq!(state.1.load(Ordering::SeqCst), before);
            queue.resume().unwrap();
        }
        drop(over);
        let queued: u32 = producers.into_iter().map(|producer| producer.join().unwrap()).sum();
        queue.flush().unwrap();
        assert_eq!(state.1.load(Ordering::SeqCst), queued);
    }
}

// Catches: a pause that returns while an item runs, one that stops other queues, an item of the
// queue that may pause it.
#[test]
fn a_pause_waits_for_the_running_item_of_its_queue_only() {
    let _watchdog = watchdog();
    for paused in
        one_of_each().into_iter().filter(|queue| !queue.flags().contains(uwork::Flags::BH))
    {
        let (log, started, may_end) = (Log::new(), Gate::new(), Gate::new());
        let other = queue("beside").per_cpu().build().unwrap();
        let (first, began, ends) = (log.clone(), started.clone(), may_end.clone());
        let of_item = paused.clone();
        let running = Job::new(move |_| {
            assert_eq!(of_item.pause().unwrap_err().kind(), ErrorKind::WouldDeadlock);
            began.open();
            ends.wait();
            first.push(1);
        });
        assert!(paused.enqueue(running).is_queued());
        started.wait();
        let (pauser, second) = (paused.clone(), log.clone());
        let pauser = thread::spawn(move || {
            pauser.pause().unwrap();
            second.push(2);
        });
        until("the pause has begun", || paused.is_paused());
        other.spawn(|| ()).join().unwrap();
        assert!(log.events().is_empty());
        may_end.open();
        pauser.join().unwrap();
        let late = paused.spawn(|| ());
        other.spawn(|| ()).join().unwrap();
        assert!(!late.is_finished());
        assert!(paused.dump().to_string().contains("  paused"));
        paused.resume().unwrap();
        late.join().unwrap();
        assert_eq!(paused.resume().unwrap_err().kind(), ErrorKind::NotPaused);
        assert_eq!(log.events(), [1, 2]);
    }
}

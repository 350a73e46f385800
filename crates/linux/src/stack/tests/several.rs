//! Requests to several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use uwork_engine::host::NoStack;

use super::super::{of_threads, signal};
use super::{set_mask, start};
use crate::bounded::until;

/// Whether the calling thread, which blocks signals, has a request.
fn is_asked() -> bool {
    let signal = signal::installed().expect("a free signal");
    let mut pending = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is live, and filled by the first call.
    unsafe {
        assert_eq!(libc::sigpending(pending.as_mut_ptr()), 0);
        libc::sigismember(pending.as_ptr(), signal) == 1
    }
}

/// Handles the signals that are pending.
fn answer() {
    set_mask(libc::SIG_UNBLOCK);
    set_mask(libc::SIG_BLOCK);
}

/// What the two threads have done.
#[derive(Default)]
struct Done {
    /// Requests of which the second thread has told the first one.
    told: AtomicUsize,
    /// Those after which the first thread has answered.
    answered: AtomicUsize,
    is_over: AtomicBool,
}

/// Answers whenever the other thread has been asked.
fn answers_second(other_is_asked: &Receiver<()>, done: &Done) {
    set_mask(libc::SIG_BLOCK);
    while other_is_asked.recv().is_ok() {
        answer();
        done.answered.fetch_add(1, Ordering::SeqCst);
    }
}

fn answers_and_tells(tell: &Sender<()>, done: &Done) {
    set_mask(libc::SIG_BLOCK);
    while !done.is_over.load(Ordering::SeqCst) {
        if is_asked() {
            done.told.fetch_add(1, Ordering::SeqCst);
            tell.send(()).expect("the other thread");
            answer();
        }
        std::thread::yield_now();
    }
}

// Catches: threads without a CPU that are waited for one after the other.
#[test]
fn all_threads_are_asked_before_one_is_waited_for() {
    let (tell, told) = channel();
    let done = Arc::new(Done::default());
    let of_first = done.clone();
    let of_second = done.clone();
    let (first, waits) = start(move || answers_second(&told, &of_first));
    let (second, tells) = start(move || answers_and_tells(&tell, &of_second));
    // Again, where a thread got no CPU in its time. The first thread answers to no earlier request.
    until(|| {
        let [told, answered] = [&done.told, &done.answered].map(|it| it.load(Ordering::SeqCst));
        if told != answered {
            return None;
        }
        let stacks = of_threads(&[first, second], false);
        assert_eq!(stacks.len(), 2);
        stacks.iter().all(Result::is_ok).then_some(())
    });
    done.is_over.store(true, Ordering::SeqCst);
    tells.join().unwrap();
    waits.join().unwrap();
}

#[test]
fn each_thread_has_its_own_outcome() {
    let (tell, told) = channel::<()>();
    let (number, thread) = start(move || told.recv().unwrap_err());
    let own = crate::thread::id();
    let is_in_order = |stacks: &[Result<_, NoStack>]| {
        let gone = |at: usize| matches!(stacks[at], Err(NoStack::Unavailable));
        assert!(gone(0) && gone(2) && stacks.len() == 4);
        stacks[1].is_ok() && stacks[3].is_ok()
    };
    until(|| is_in_order(&of_threads(&[u64::MAX, own, 0, number], true)).then_some(()));
    assert!(of_threads(&[], true).is_empty());
    drop(tell);
    thread.join().unwrap();
}

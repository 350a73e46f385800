//! Flat combining, and the pool of reusable buffers: order, counts, stalls, panics.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::flag::SetOnDrop;
use crate::support::gate::Gate;
use crate::support::random::Random;
use crate::support::{until, watchdog, within};
use uwork::combine::{Combined, Combiner, Parcel, Parcels};
use uwork::recycle::Pool;

const THREADS: u64 = 8;
const PARCELS: u64 = 20_000;

/// The number of a thread, and the number of its parcel.
type Numbered = (u64, u64);

/// The combiner's data: for example a socket, which has no room now and then.
struct Sent {
    last: [Option<u64>; THREADS as usize],
    count: u64,
    random: Random,
    inside: AtomicBool,
}

impl Sent {
    fn new() -> Sent {
        let inside = AtomicBool::new(false);
        Sent { last: [None; THREADS as usize], count: 0, random: Random::new(1), inside }
    }

    fn send(&mut self, parcel: Numbered) {
        let (thread, number) = parcel;
        let last = self.last[thread as usize].replace(number);
        assert!(last < Some(number), "thread {thread}: {number} after {last:?}");
        self.count += 1;
    }
}

#[test]
fn every_parcel_is_handled_once_in_order_by_one_holder_at_a_time() {
    let _watchdog = watchdog();
    let combiner = Combiner::new(Sent::new());
    let pool = Pool::new(16);
    let handle = |sent: &mut Sent, parcels: &mut Parcels<'_, Numbered>| {
        assert!(!sent.inside.swap(true, Ordering::Relaxed), "two holders");
        let seen = parcels.iter().count();
        assert!(seen > 0);
        // Often not all of them: the rest comes again, before new parcels.
        for _ in 0..=sent.random.below(seen as u64) {
            if let Some(parcel) = parcels.pop() {
                sent.send(**parcel);
                let _ = pool.put(parcel);
            }
        }
        sent.inside.store(false, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (combiner, pool) = (&combiner, &pool);
            scope.spawn(move || {
                for number in 0..PARCELS {
                    let parcel = match pool.take() {
                        Some(mut parcel) => {
                            **parcel = (thread, number);
                            parcel
                        }
                        None => Parcel::new((thread, number)),
                    };
                    assert_ne!(combiner.submit(parcel, handle), Combined::Stalled);
                }
            });
        }
    });
    assert_eq!(combiner.into_inner().count, THREADS * PARCELS);
}

#[test]
fn a_resume_at_any_time_ends_a_stall() {
    let _watchdog = watchdog();
    let combiner = Arc::new(Combiner::new(Sent::new()));
    // Stalls for which a resume is still due, as from a poll for room.
    let owed = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let ended = SetOnDrop(&over);
    let handle = {
        let owed = owed.clone();
        move |sent: &mut Sent, parcels: &mut Parcels<'_, Numbered>| {
            while let Some(&mut first) = parcels.first_mut() {
                if sent.random.one_in(8) {
                    owed.fetch_add(1, Ordering::Relaxed);
                    return ControlFlow::Break(());
                }
                sent.send(first);
                parcels.pop();
            }
            ControlFlow::Continue(())
        }
    };
    let resumer = {
        let (combiner, owed, over, handle) =
            (combiner.clone(), owed.clone(), over.clone(), handle.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Acquire) || owed.load(Ordering::Relaxed) > 0 {
                if owed.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                    continue;
                }
                owed.fetch_sub(1, Ordering::Relaxed);
                combiner.resume(handle.clone());
            }
        })
    };
    let submitters: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (combiner, handle) = (combiner.clone(), handle.clone());
            std::thread::spawn(move || {
                for number in 0..PARCELS / 10 {
                    combiner.submit(Parcel::new((thread, number)), handle.clone());
                }
            })
        })
        .collect();
    submitters.into_iter().for_each(|thread| thread.join().unwrap());
    drop(ended);
    resumer.join().unwrap();
    assert!(!combiner.is_stalled());
    let combiner = Arc::into_inner(combiner).unwrap();
    assert_eq!(combiner.into_inner().count, THREADS * PARCELS / 10);
}

#[test]
fn threads_leave_their_parcels_to_the_current_holder() {
    let _watchdog = watchdog();
    let (combiner, inside, left) = (Combiner::new(Vec::new()), Gate::new(), AtomicBool::new(false));
    let take = |all: &mut Vec<u32>, parcels: &mut Parcels<'_, u32>| {
        while let Some(parcel) = parcels.pop() {
            all.push(parcel.into_inner());
        }
        ControlFlow::Continue(())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut first = true;
            let outcome = combiner.submit(Parcel::new(1), |all, parcels| {
                if std::mem::take(&mut first) {
                    inside.open();
                    until("two are left to the holder", || left.load(Ordering::Relaxed));
                }
                take(all, parcels)
            });
            assert_eq!(outcome, Combined::Done);
        });
        let _left = SetOnDrop(&left);
        inside.wait();
        assert_eq!(combiner.submit(Parcel::new(2), take), Combined::Left);
        assert_eq!(combiner.submit(Parcel::new(3), take), Combined::Left);
    });
    assert_eq!(combiner.into_inner(), [1, 2, 3]);
}

// Catches: a holder that works for other threads for as long as they submit.
#[test]
fn a_holder_is_relieved_by_a_submitter() {
    let _watchdog = watchdog();
    let combiner = Arc::new(Combiner::new(()));
    let (submitted, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let ended = SetOnDrop(&is_over);
    let (list, count, over) = (combiner.clone(), submitted.clone(), is_over.clone());
    let other = std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            list.submit(Parcel::new(()), |(), parcels| {
                while parcels.pop().is_some() {}
                ControlFlow::Continue(())
            });
            count.fetch_add(1, Ordering::Release);
            std::thread::yield_now();
        }
    });
    within("the holder is relieved", move || {
        let rounds = Cell::new(0);
        let handle = |_: &mut (), parcels: &mut Parcels<'_, ()>| {
            rounds.set(rounds.get() + 1);
            let before = submitted.load(Ordering::Acquire);
            while parcels.pop().is_some() {}
            // The second submission after the load was made after these parcels were taken, so more is
            // always pending.
            until("there is more", || submitted.load(Ordering::Acquire) >= before + 2);
            ControlFlow::Continue(())
        };
        loop {
            let outcome = combiner.submit(Parcel::new(()), handle);
            assert_eq!(outcome, Combined::Left, "there is always more");
            // If another thread was the holder, this thread was not.
            if rounds.get() > 0 {
                return;
            }
        }
    });
    drop(ended);
    other.join().unwrap();
}

#[test]
fn a_panic_leaves_remaining_parcels_to_the_resuming_thread() {
    let _watchdog = watchdog();
    let combiner = Combiner::new(0_u32);
    let panics = |sum: &mut u32, parcels: &mut Parcels<'_, u32>| -> ControlFlow<()> {
        *sum += parcels.pop().unwrap().into_inner();
        panic!("on purpose");
    };
    let adds = |sum: &mut u32, parcels: &mut Parcels<'_, u32>| {
        *sum += parcels.pop().unwrap().into_inner();
        ControlFlow::Continue(())
    };
    let panicked = AssertUnwindSafe(|| combiner.submit(Parcel::new(1), panics));
    assert!(catch_unwind(panicked).is_err());
    assert!(combiner.is_stalled());
    assert_eq!(combiner.submit(Parcel::new(2), adds), Combined::Left);
    assert_eq!(combiner.resume(adds), Combined::Done);
    assert_eq!(combiner.resume(adds), Combined::Left);
    assert_eq!(combiner.submit(Parcel::new(4), adds), Combined::Done);
    assert_eq!(combiner.into_inner(), 7);
}

// Catches: a resume that the panicking thread should have followed, and that no thread follows.
#[test]
fn a_panic_after_a_resume_leaves_remaining_parcels_to_the_next_submitter() {
    let _watchdog = watchdog();
    let combiner = Combiner::new(0_u32);
    let adds = |sum: &mut u32, parcels: &mut Parcels<'_, u32>| {
        *sum += parcels.pop().unwrap().into_inner();
        ControlFlow::Continue(())
    };
    let panics = |_: &mut u32, _: &mut Parcels<'_, u32>| -> ControlFlow<()> {
        assert_eq!(combiner.resume(adds), Combined::Left);
        panic!("on purpose");
    };
    let panicked = AssertUnwindSafe(|| combiner.submit(Parcel::new(1), panics));
    assert!(catch_unwind(panicked).is_err());
    assert!(!combiner.is_stalled());
    assert_eq!(combiner.submit(Parcel::new(2), adds), Combined::Done);
    assert_eq!(combiner.into_inner(), 3);
}

#[test]
fn remaining_parcels_are_dropped_with_the_combiner() {
    let _watchdog = watchdog();
    let shared = Arc::new(());
    let stall = |_: &mut (), _: &mut Parcels<'_, Arc<()>>| ControlFlow::Break(());
    let combiner = Combiner::new(());
    assert_eq!(combiner.submit(Parcel::new(shared.clone()), stall), Combined::Stalled);
    assert_eq!(combiner.submit(Parcel::new(shared.clone()), stall), Combined::Left);
    assert_eq!(Arc::strong_count(&shared), 3);
    drop(combiner);
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn a_buffer_pool_gives_each_buffer_to_one_taker_and_is_bounded() {
    let _watchdog = watchdog();
    let (pool, held) = (Pool::new(4), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..PARCELS {
                    let mut taken = pool.take_or(|| {
                        held.fetch_add(1, Ordering::Relaxed);
                        0_u64
                    });
                    // Two concurrent increments would lose one.
                    *taken += 1;
                    if let Err(taken) = pool.put(taken) {
                        held.fetch_sub(1, Ordering::Relaxed);
                        held.fetch_add(*taken << 32, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut uses = held.load(Ordering::Relaxed) >> 32;
    let mut kept = 0;
    while let Some(taken) = pool.take() {
        uses += *taken;
        kept += 1;
    }
    assert_eq!(uses, THREADS * PARCELS);
    assert_eq!(u64::from(held.load(Ordering::Relaxed) as u32), kept);
    assert!(kept <= 4);
}

//! Four threads at once. For allocators they form a ring: each thread allocates, and frees the
//! objects of the previous thread.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use uwork_rivals::alloc::Allocator;

use super::allocators::Timed;

const THREADS: usize = 4;
/// Objects in a parcel, and the number of parcels in flight. Both are large, so that the hand-over
/// costs little compared with the measured operations.
const PARCEL: usize = 256;
const ON_THE_WAY: usize = 8;

type Parcel = Vec<Object>;

struct Object(*mut u8);

// SAFETY: any thread may free an allocator's object.
unsafe impl Send for Object {}

/// Each thread allocates `parcels` parcels. One operation is an allocation and its release.
pub(super) fn ring(allocator: &impl Allocator, parcels: usize) -> Timed {
    let (mut senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| sync_channel::<Parcel>(ON_THE_WAY)).unzip();
    senders.rotate_left(1);
    let ends = senders.into_iter().zip(receivers);
    let parts = ends.map(|(to, from)| move || one(allocator, parcels, &to, &from));
    (timed(parts), (THREADS * parcels * PARCEL) as u64)
}

/// Every thread calls `part`, which performs `each` operations.
pub(super) fn together(part: impl Fn() + Sync, each: u64) -> Timed {
    (timed((0..THREADS).map(|_| &part)), THREADS as u64 * each)
}

/// Runs each part on a thread of its own. Measures from the common start, once all threads are
/// ready, to the end of the last part.
fn timed(parts: impl ExactSizeIterator<Item = impl FnOnce() + Send>) -> Duration {
    let ready = &Barrier::new(parts.len());
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let threads: Vec<_> = parts
            .map(|part| {
                scope.spawn(move || {
                    ready.wait();
                    let start = Instant::now();
                    part();
                    (start, Instant::now())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let first = spans.iter().map(|(start, _)| start).min();
    let last = spans.iter().map(|(_, end)| end).max();
    first.zip(last).map_or(Duration::ZERO, |(first, last)| *last - *first)
}

fn one(
    allocator: &impl Allocator,
    parcels: usize,
    to: &SyncSender<Parcel>,
    from: &Receiver<Parcel>,
) {
    let mut empty: Vec<Parcel> = Vec::new();
    let mut received = 0;
    let free = |mut parcel: Parcel| {
        for Object(object) in parcel.drain(..) {
            // SAFETY: allocated by another thread, freed once.
            unsafe { allocator.free(object) };
        }
        parcel
    };
    for _ in 0..parcels {
        let mut parcel = empty.pop().unwrap_or_else(|| Vec::with_capacity(PARCEL));
        for _ in 0..PARCEL {
            let object = allocator.alloc();
            // SAFETY: just allocated, large enough and aligned.
            unsafe { object.cast::<u64>().write(1) };
            parcel.push(Object(object));
        }
        // A thread that waits for room frees objects meanwhile. Otherwise all threads could wait
        // for each other.
        while let Err(TrySendError::Full(unsent)) = to.try_send(parcel) {
            parcel = unsent;
            match from.try_recv() {
                Ok(other) => {
                    empty.push(free(other));
                    received += 1;
                }
                Err(_) => thread::yield_now(),
            }
        }
        if let Ok(other) = from.try_recv() {
            empty.push(free(other));
            received += 1;
        }
    }
    while received < parcels {
        drop(free(from.recv().expect("every thread sends as many")));
        received += 1;
    }
}

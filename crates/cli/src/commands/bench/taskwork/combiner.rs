//! Eight threads that send small messages on one socket: through a `Combiner`, or each under a mutex.

use std::io::{IoSlice, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uwork::combine::{Batch, Combiner, Parcel};
use uwork_rivals::load::cpu_time;
use uwork_rivals::posts::Posts;

use super::figures::{Measured, P50, P99, rate_of};
use crate::commands::bench::contestant::{Contestant, Names};
use crate::commands::bench::uwork_pool;

const SENDERS: usize = 8;
const BYTES: usize = 64;
/// Messages of a sender that are not yet sent, at most.
const OUTSTANDING: u32 = 64;
/// Messages that one call takes.
const AT_ONCE: usize = 256;

/// A message, and whose it is.
type Message = ([u8; BYTES], usize);

pub(super) fn contestants(quick: bool) -> Vec<Contestant<Measured>> {
    let messages = if quick { 5_000 } else { 100_000 };
    let contestant = |variant: &str, measure: fn(usize) -> Posts| Contestant {
        names: Names { case: "combiner", runner: uwork_pool::RUNNER, variant: variant.to_owned() },
        standing: None,
        measure: Box::new(move || Ok(Measured(rate_of(&measure(messages), [P50, P99])))),
    };
    vec![contestant("combiner", combined), contestant("mutex", locked)]
}

/// Each sender calls `send(sender)` so often; the clock stops when the other end has all bytes. `latency` is that
/// of a call.
fn measure<S: FnMut() + Send>(
    messages: usize,
    mut receiver: UnixStream,
    sender: impl Fn(usize) -> S + Sync,
) -> Posts {
    let new = || Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds");
    let (begin, cpu) = (Instant::now(), cpu_time());
    let mut times = new();
    let all = SENDERS * messages;
    thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|at| {
                let (mut send, mut times) = (sender(at), new());
                scope.spawn(move || {
                    for _ in 0..messages {
                        let start = Instant::now();
                        send();
                        times.saturating_record((start.elapsed().as_nanos() as u64).max(1));
                    }
                    times
                })
            })
            .collect();
        let mut buffer = vec![0; 1 << 16];
        let mut left = all * BYTES;
        while left > 0 {
            let bytes = receiver.read(&mut buffer).expect("the socket is open");
            assert!(bytes > 0, "the socket is open");
            left -= bytes;
        }
        for sender in senders {
            times.add(sender.join().expect("no panic")).expect("of the same bounds");
        }
    });
    let (wall, cpu): (Duration, _) = (begin.elapsed(), cpu_time().saturating_sub(cpu));
    let at = |part| times.value_at_quantile(part);
    Posts { posts: all as u64, wall, cpu, p50_ns: at(0.5), p99_ns: at(0.99) }
}

fn locked(messages: usize) -> Posts {
    let (socket, receiver) = UnixStream::pair().expect("two descriptors");
    let socket = Mutex::new(socket);
    measure(messages, receiver, |_| {
        || {
            let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
            socket.write_all(&[b'x'; BYTES]).expect("the socket is open");
        }
    })
}

/// A sender's parcels, and how many are under way.
struct Credit {
    /// Boxes that come back.
    pool: uwork::recycle::Pool<Parcel<Message>>,
    used: AtomicU32,
}

fn combined(messages: usize) -> Posts {
    let (socket, receiver) = UnixStream::pair().expect("two descriptors");
    let credits: Vec<Credit> = (0..SENDERS)
        .map(|_| Credit {
            pool: uwork::recycle::Pool::new(OUTSTANDING as usize),
            used: AtomicU32::new(0),
        })
        .collect();
    let combiner = Combiner::new(socket);
    let handle = |socket: &mut UnixStream, batch: &mut Batch<'_, Message>| {
        let mut slices = [IoSlice::new(&[]); AT_ONCE];
        let mut count = 0;
        for (slice, message) in slices.iter_mut().zip(batch.iter()) {
            *slice = IoSlice::new(&message.0);
            count += 1;
        }
        let mut sent = &mut slices[..count];
        while !sent.is_empty() {
            let bytes = socket.write_vectored(sent).expect("the socket is open");
            IoSlice::advance_slices(&mut sent, bytes);
        }
        for _ in 0..count {
            let parcel = batch.pop().expect("it was counted");
            let credit = &credits[parcel.1];
            let _ = credit.pool.put(parcel);
            credit.used.fetch_sub(1, Ordering::Release);
        }
        ControlFlow::Continue(())
    };
    measure(messages, receiver, |at| {
        let (combiner, credit) = (&combiner, &credits[at]);
        move || {
            while credit.used.load(Ordering::Acquire) >= OUTSTANDING {
                thread::yield_now();
            }
            credit.used.fetch_add(1, Ordering::Relaxed);
            let parcel = credit.pool.take().unwrap_or_else(|| Parcel::new(([b'x'; BYTES], at)));
            combiner.submit(parcel, handle);
        }
    })
}

//! Eight threads that send small messages on one socket: through a `Combiner`, or each under a
//! mutex.
//!
//! Each sample has two parts. For the rate, all threads send as fast as they can. For the
//! latencies, all threads get some messages at the same time in each millisecond; a latency is the
//! time from then until the message is in the socket.

use std::io::{IoSlice, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uwork::combine::{Combiner, Parcel, Parcels};
use uwork::recycle::Pool;
use uwork_rivals::load::cpu_time;
use uwork_rivals::posts::Posts;

use super::figures::{P50, P99, rate_of};
use crate::bench::contestant::{Contestant, Names};
use crate::bench::measured::Measured;
use crate::bench::uwork_pool;

const SENDERS: usize = 8;
const BYTES: usize = 64;
/// Maximum number of unsent messages per sender.
const OUTSTANDING: u32 = 64;
/// Maximum number of messages in one system call.
const AT_ONCE: usize = 256;
/// Messages per sender in a period.
const BURST: usize = 16;
const PERIOD: Duration = Duration::from_millis(1);

const _: () = assert!(BURST < OUTSTANDING as usize, "a burst waits for nothing");

/// The messages of a sender.
#[derive(Clone, Copy)]
enum Load {
    /// This many messages, as fast as possible.
    Flood(usize),
    /// This many bursts, one in each period.
    Bursts(usize),
}

impl Load {
    fn messages(self) -> usize {
        match self {
            Load::Flood(messages) => messages,
            Load::Bursts(bursts) => bursts * BURST,
        }
    }
}

/// The latencies, if they are recorded.
struct Times(Option<Histogram<u64>>);

impl Times {
    fn new(load: Load) -> Times {
        let new = || Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds");
        Times(matches!(load, Load::Bursts(_)).then(new))
    }

    /// Records messages that have just been sent, by their start times.
    fn record(&mut self, since: impl Iterator<Item = Instant>) {
        if let Some(times) = &mut self.0 {
            let now = Instant::now();
            since.for_each(|since| {
                let nanos = now.saturating_duration_since(since).as_nanos() as u64;
                times.saturating_record(nanos.max(1));
            });
        }
    }
}

/// A way to send.
trait Sends: Sync {
    /// Sends a message of `sender`, whose latency starts at `since`.
    fn send(&self, sender: usize, since: Instant);

    /// The latencies of all messages.
    fn times(self) -> Times;
}

pub(super) fn contestants(quick: bool) -> Vec<Contestant<Measured>> {
    let flood = Load::Flood(if quick { 5_000 } else { 100_000 });
    let bursts = Load::Bursts(if quick { 100 } else { 1_000 });
    let names = |variant: &str| {
        let variant = variant.to_owned();
        Names { case: "combiner", runner: uwork_pool::RUNNER, variant }
    };
    fn both<S: Sends>(make: fn(UnixStream, Load) -> S, flood: Load, bursts: Load) -> Measured {
        let (rate, times) = (measure(make, flood), measure(make, bursts));
        let posts = Posts { p50_ns: times.p50_ns, p99_ns: times.p99_ns, ..rate };
        Measured::new(rate_of(&posts, [P50, P99]))
    }
    let combined = move |_| Ok(both(Combined::new, flood, bursts));
    let locked = move |_| Ok(both(Locked::new, flood, bursts));
    let contestant =
        |variant, measure| Contestant { names: names(variant), standing: None, measure };
    vec![contestant("combiner", Box::new(combined)), contestant("mutex", Box::new(locked))]
}

/// Measures until the receiver has all bytes.
fn measure<S: Sends>(make: impl Fn(UnixStream, Load) -> S, load: Load) -> Posts {
    let (socket, mut receiver) = UnixStream::pair().expect("two descriptors");
    let way = make(socket, load);
    let (begin, cpu) = (Instant::now(), cpu_time());
    let all = SENDERS * load.messages();
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let way = &way;
            scope.spawn(move || match load {
                Load::Flood(messages) => (0..messages).for_each(|_| way.send(sender, begin)),
                Load::Bursts(bursts) => send_bursts(way, sender, begin, bursts),
            });
        }
        let mut buffer = vec![0; 1 << 16];
        let mut left = all * BYTES;
        while left > 0 {
            let bytes = receiver.read(&mut buffer).expect("the socket is open");
            assert!(bytes > 0, "the socket is open");
            left -= bytes;
        }
    });
    let (wall, cpu) = (begin.elapsed(), cpu_time().saturating_sub(cpu));
    let times = way.times().0;
    let at = |part| times.as_ref().map_or(0, |times| times.value_at_quantile(part));
    Posts { posts: all as u64, wall, cpu, p50_ns: at(0.5), p99_ns: at(0.99) }
}

fn send_bursts(way: &impl Sends, sender: usize, begin: Instant, bursts: usize) {
    for burst in 1..=bursts {
        thread::sleep((begin + PERIOD * burst as u32).saturating_duration_since(Instant::now()));
        let since = Instant::now();
        (0..BURST).for_each(|_| way.send(sender, since));
    }
}

/// Each thread writes its own messages, under a mutex.
struct Locked(Mutex<(UnixStream, Times)>);

impl Locked {
    fn new(socket: UnixStream, load: Load) -> Locked {
        Locked(Mutex::new((socket, Times::new(load))))
    }
}

impl Sends for Locked {
    fn send(&self, _: usize, since: Instant) {
        let (socket, times) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        socket.write_all(&[b'x'; BYTES]).expect("the socket is open");
        times.record(std::iter::once(since));
    }

    fn times(self) -> Times {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// A message.
struct Message {
    bytes: [u8; BYTES],
    sender: usize,
    since: Instant,
}

/// The parcels of a sender, and the number in flight. On cache lines of its own.
#[repr(align(128))]
struct Credit {
    /// A pool of reusable boxes.
    pool: Pool<Parcel<Message>>,
    used: AtomicU32,
}

/// The combiner's holder writes the messages of all threads.
struct Combined {
    combiner: Combiner<Message, (UnixStream, Times)>,
    credits: Vec<Credit>,
}

impl Combined {
    fn new(socket: UnixStream, load: Load) -> Combined {
        let credit = || Credit { pool: Pool::new(OUTSTANDING as usize), used: AtomicU32::new(0) };
        Combined {
            combiner: Combiner::new((socket, Times::new(load))),
            credits: (0..SENDERS).map(|_| credit()).collect(),
        }
    }

    fn handle(
        &self,
        (socket, times): &mut (UnixStream, Times),
        parcels: &mut Parcels<'_, Message>,
    ) -> ControlFlow<()> {
        let mut slices = [IoSlice::new(&[]); AT_ONCE];
        let mut count = 0;
        for (slice, message) in slices.iter_mut().zip(parcels.iter()) {
            *slice = IoSlice::new(&message.bytes);
            count += 1;
        }
        let mut unsent = &mut slices[..count];
        while !unsent.is_empty() {
            let bytes = socket.write_vectored(unsent).expect("the socket is open");
            IoSlice::advance_slices(&mut unsent, bytes);
        }
        times.record(parcels.iter().take(count).map(|message| message.since));
        for _ in 0..count {
            let parcel = parcels.pop().expect("it was counted");
            let credit = &self.credits[parcel.sender];
            let _ = credit.pool.put(parcel);
            credit.used.fetch_sub(1, Ordering::Release);
        }
        ControlFlow::Continue(())
    }
}

impl Sends for Combined {
    fn send(&self, sender: usize, since: Instant) {
        let credit = &self.credits[sender];
        while credit.used.load(Ordering::Acquire) >= OUTSTANDING {
            thread::yield_now();
        }
        credit.used.fetch_add(1, Ordering::Relaxed);
        let new = || Parcel::new(Message { bytes: [b'x'; BYTES], sender, since });
        let mut parcel = credit.pool.take().unwrap_or_else(new);
        parcel.since = since;
        self.combiner.submit(parcel, |held, parcels| self.handle(held, parcels));
    }

    fn times(self) -> Times {
        self.combiner.into_inner().1
    }
}

//! Items that block without saying so, beside short ones that nobody should hold up.
//!
//! Readers wait for a pipe, as code does that knows nothing of uwork. They have a queue of their own, whose
//! `max_active` says how many threads they may cost. `UWORK_BLOCKING=declared` shows what it is like when
//! nobody notices.

use std::io::{Read, Write, pipe};
use std::time::{Duration, Instant};

use uwork::{BlockingTier, Queue, Setup};

const READERS: usize = 8;
const SHORT_ITEMS: usize = 200;
/// When the pipes are written to: long after the short items could have been done.
const LATE: Duration = Duration::from_millis(200);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Setup::new().blocking_tier(BlockingTier::Events).install()?;
    let blocking = uwork::dump().blocking;
    println!("waits are noticed by way of {}: {}", blocking.tier, blocking.reason);

    let readers = Queue::builder("readers").max_active(READERS as u32).build()?;
    let short = Queue::builder("short").build()?;
    let (mut ends, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..READERS {
        let (mut from, to) = pipe()?;
        ends.push(to);
        reads.push(readers.spawn(move || {
            let mut text = String::new();
            from.read_to_string(&mut text).map(|_| text)
        }));
    }
    let began = Instant::now();
    let answers: Vec<_> =
        (0..SHORT_ITEMS).map(|n| short.spawn(move || (n, began.elapsed()))).collect();
    let writer = std::thread::spawn(move || {
        std::thread::sleep(LATE);
        ends.into_iter().try_for_each(|mut end| end.write_all(b"late"))
    });

    // Not joined one by one: that would run here what has not started.
    short.flush()?;
    let (mut sum, mut last) = (0, Duration::ZERO);
    for answer in answers {
        let (n, at) = answer.join()?;
        (sum, last) = (sum + n, last.max(at));
    }
    println!("{SHORT_ITEMS} short items done after {} us", last.as_micros());
    writer.join().expect("no panic there")?;
    for read in reads {
        assert_eq!(read.join()??, "late");
    }
    println!("{READERS} reads done after {} ms", began.elapsed().as_millis());
    assert_eq!(sum, SHORT_ITEMS * (SHORT_ITEMS - 1) / 2);
    Ok(())
}

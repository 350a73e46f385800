//! Items that block without declaring it, beside short items that should not be delayed.
//!
//! Readers wait for a pipe, in code that knows nothing of uwork. They have a queue of their own,
//! whose `max_active` limits the number of threads that they use. `UWORK_BLOCKING=declared` shows
//! the behaviour without detection.

use std::io::{Read, Write, pipe};
use std::time::{Duration, Instant};

use uwork::{BlockingTier, Queue, Setup};

const READERS: usize = 8;
const SHORT_ITEMS: usize = 200;
/// When the pipes are written: long after the short items could have ended.
const LATE: Duration = Duration::from_millis(200);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Setup::new().blocking_tier(BlockingTier::Standby).install()?;
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

    // Not joined one by one: a join would run items that have not started in this thread.
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

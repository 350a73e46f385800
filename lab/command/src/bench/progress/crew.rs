//! The workers of the tested pool: controls how many are idle when a try begins.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use uwork::{JoinHandle, Queue};

use super::child::HANGS;
use crate::UserError;

/// The number of idle workers in variants with more than one.
const SPARE: usize = 3;
/// Interval between two checks of the pool.
const GLANCE: Duration = Duration::from_micros(100);

/// The pool's workers, and the items that occupy some of them.
pub(super) struct Crew {
    queue: Queue,
    /// A CPU of the pool.
    cpu: u32,
    holders: Vec<Holder>,
}

/// An item in a declared block that lasts until it is released: its worker is neither running nor
/// idle.
struct Holder {
    release: Sender<()>,
    handle: JoinHandle<()>,
}

impl Crew {
    /// The workers of the pool in which `queue` runs items that are queued on `cpu`.
    pub(super) fn of(queue: &Queue, cpu: u32) -> Self {
        Self { queue: queue.clone(), cpu, holders: Vec::new() }
    }

    /// Returns when exactly one worker is idle and no other runs.
    pub(super) fn leave_one_idle(&mut self) -> Result<(), UserError> {
        let start = Instant::now();
        loop {
            match self.rest()? {
                1 => return Ok(()),
                0 if !self.holders.is_empty() => self.release_one(),
                _ => self.hold_one()?,
            }
            check(start, "the pool does not reach exactly one idle worker")?;
        }
    }

    /// Returns when several workers are idle and no other runs.
    pub(super) fn leave_several_idle(&mut self) -> Result<(), UserError> {
        let start = Instant::now();
        while self.rest()? < SPARE {
            // The held items occupy this many workers at once.
            for _ in 0..SPARE {
                self.hold_one()?;
            }
            while !self.holders.is_empty() {
                self.release_one();
            }
            check(start, "the pool does not reach several idle workers")?;
        }
        Ok(())
    }

    /// Waits until no worker runs or is being woken. Returns the number of idle workers.
    pub(super) fn rest(&self) -> Result<usize, UserError> {
        let start = Instant::now();
        loop {
            let (workers, idle, rests) = self.look()?;
            if rests && idle + self.holders.len() == workers {
                return Ok(idle);
            }
            check(start, "the pool does not come to rest")?;
            thread::sleep(GLANCE);
        }
    }

    /// The number of workers, the number of idle workers, and whether the pool may be at rest.
    fn look(&self) -> Result<(usize, usize, bool), UserError> {
        let mine: Vec<u32> = self.queue.dump().pwqs.iter().map(|pwq| pwq.pool).collect();
        let dump = uwork::dump();
        let mut pools = dump.pools.iter();
        let pool = pools.find(|pool| mine.contains(&pool.id) && pool.cpus.contains(self.cpu));
        let Some(pool) = pool else {
            return Err(UserError(format!("the queue has no pool with CPU {}", self.cpu)));
        };
        let rests = pool.nr_running == 0 && !pool.waking && pool.nr_ready == 0;
        Ok((pool.nr_workers as usize, pool.nr_idle as usize, rests))
    }

    /// Occupies a worker, and returns when its item is blocked.
    fn hold_one(&mut self) -> Result<(), UserError> {
        let (release, released) = channel();
        let (holds, held) = channel();
        let handle = self.queue.spawn(move || {
            uwork::blocking(|| {
                // Dropping the sender releases the item.
                let _ = holds.send(());
                let _ = released.recv();
            });
        });
        held.recv_timeout(HANGS)
            .map_err(|_| UserError("an item that takes a worker does not start".to_owned()))?;
        self.holders.push(Holder { release, handle });
        Ok(())
    }

    fn release_one(&mut self) {
        if let Some(Holder { release, handle }) = self.holders.pop() {
            drop(release);
            handle.join().expect("it does not panic");
        }
    }
}

fn check(start: Instant, what: &str) -> Result<(), UserError> {
    if start.elapsed() > HANGS {
        return Err(UserError(format!("{what} within {} s", HANGS.as_secs())));
    }
    Ok(())
}

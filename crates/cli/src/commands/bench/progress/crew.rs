//! The workers of the pool under test: how many of them are idle when a try begins.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use uwork::{JoinHandle, Queue};

use super::child::HANGS;
use crate::commands::UserError;

/// What idle workers there are in the variants that have more than one.
const SPARE: usize = 3;
/// Between two looks at the pool.
const GLANCE: Duration = Duration::from_micros(100);

/// The workers, and the items that hold some of them.
pub(super) struct Crew {
    queue: Queue,
    /// A CPU of the pool.
    cpu: u32,
    holders: Vec<Holder>,
}

/// An item that waits, declared, until it is released: its worker neither runs nor is idle.
struct Holder {
    release: Sender<()>,
    handle: JoinHandle<()>,
}

impl Crew {
    /// Of the pool in which `queue` runs items that are queued on `cpu`.
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
            check(start, "the pool does not come down to one idle worker")?;
        }
    }

    /// Returns when several workers are idle and no other runs.
    pub(super) fn leave_several_idle(&mut self) -> Result<(), UserError> {
        let start = Instant::now();
        while self.rest()? < SPARE {
            // Held at once, they are as many workers.
            for _ in 0..SPARE {
                self.hold_one()?;
            }
            while !self.holders.is_empty() {
                self.release_one();
            }
            check(start, "the pool does not get several idle workers")?;
        }
        Ok(())
    }

    /// Waits until no worker runs and none is on its way. How many are idle then.
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

    /// The pool's workers, how many of them are idle, and whether it may be at rest.
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

    /// Takes a worker, and returns when it waits.
    fn hold_one(&mut self) -> Result<(), UserError> {
        let (release, released) = channel();
        let (holds, held) = channel();
        let handle = self.queue.spawn(move || {
            uwork::blocking(|| {
                // A release is the end of the other side.
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

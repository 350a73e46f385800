//! Reaching other CPUs' parts, as the mode says.
//!
//! In mode 0 a worker of that CPU does it, on a queue of the library's own; in modes 1 and 2 the caller does. Where
//! there is no worker for a CPU, or the caller is one whose queue could wait for itself, the caller does it in
//! mode 0 as well: by force, which is always right and disturbs somebody at most.

use std::panic::resume_unwind;
use std::sync::OnceLock;

use uwork_engine::percpu::Recursion;
use uwork_policy::percpu::Mode;

use super::error::recursion;
use super::locks::Locks;
use crate::builder::Builder;
use crate::error::Error;
use crate::every_cpu::Call;
use crate::own_queue::own_queue;
use crate::queue::Queue;

/// The queue, made if it is not there.
pub(super) fn make_queue() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    own_queue(&QUEUE, "uwork/percpu", Builder::per_cpu)
}

/// The queue for functions that go to another CPU. Nothing if the caller is one of those: it would hold a place
/// that it waits for.
fn queue() -> Option<&'static Queue> {
    let queue = make_queue();
    (!queue.0.runs_here()).then_some(queue)
}

impl Locks {
    /// The queue to go to `cpu` by, if the mode wants that and the caller is not there.
    fn way_to(&self, cpu: u32) -> Option<&'static Queue> {
        let is_there = crate::linux::current_cpu() == cpu;
        if self.mode() != Mode::Local || is_there { None } else { queue() }
    }

    /// Takes the lock of `cpu`.
    ///
    /// # Errors
    /// There is no such CPU, or the caller holds it.
    pub fn lock_of(&self, cpu: u32) -> Result<(), Error> {
        self.check(cpu)?;
        let (row, token) = (self.row(), self.token());
        let take = || row.lock_at(cpu, token, token);
        let taken = self.way_to(cpu).and_then(|queue| on_worker(queue, cpu, take));
        taken.unwrap_or_else(take).map_err(|Recursion| recursion())
    }

    /// Takes the lock of `cpu` if nobody has it. In mode 0 that waits for a worker of that CPU, but not for a
    /// holder.
    ///
    /// # Errors
    /// There is no such CPU, or the caller holds it.
    pub fn try_lock_of(&self, cpu: u32) -> Result<bool, Error> {
        self.check(cpu)?;
        let (row, token) = (self.row(), self.token());
        if row.at(cpu).is_held_by(token) {
            return Err(recursion());
        }
        let take = || row.try_at(cpu, token);
        let taken = self.way_to(cpu).and_then(|queue| on_worker(queue, cpu, take));
        Ok(taken.unwrap_or_else(take))
    }

    /// Calls `f` with the lock of `cpu` held, which `f` gives up: in mode 0 on that CPU.
    ///
    /// # Errors
    /// There is no such CPU, or the caller holds its lock.
    ///
    /// # Panics
    /// If `f` does.
    pub fn visit<R: Send>(&self, cpu: u32, f: impl FnOnce() -> R + Send) -> Result<R, Error> {
        self.check(cpu)?;
        let asker = self.token();
        let Some(queue) = self.way_to(cpu) else {
            self.lock_from_here(cpu, asker).map_err(|Recursion| recursion())?;
            return Ok(f());
        };
        // Taken out by whoever runs it: a call that was refused drops its function.
        let f = std::sync::Mutex::new(Some(f));
        let visit = || {
            self.lock_from_here(cpu, asker).map_err(|Recursion| recursion())?;
            let f = f.lock().expect("nobody panics here").take();
            Ok(f.expect("it is called once")())
        };
        on_worker(queue, cpu, visit).unwrap_or_else(visit)
    }

    /// Calls `f` with the lock of each CPU held that `wanted` wants, and which `f` gives up: in mode 0 on those
    /// CPUs, at the same time.
    ///
    /// # Errors
    /// The caller holds one of the locks. The others' parts were visited.
    ///
    /// # Panics
    /// If `f` does: in mode 0 after all were visited, if they were visited by workers; else at once, without the
    /// CPUs behind it.
    pub fn visit_all(
        &self,
        wanted: impl Fn(u32) -> bool,
        f: impl Fn(u32) + Sync,
    ) -> Result<(), Error> {
        let asker = self.token();
        let visit = |cpu| match self.lock_from_here(cpu, asker) {
            Ok(()) => {
                f(cpu);
                Ok(())
            }
            Err(Recursion) => Err(recursion()),
        };
        let visit = &visit;
        let cpus: Vec<u32> = (0..self.cpus()).filter(|&cpu| wanted(cpu)).collect();
        let mut outcome = Ok(());
        let Some(queue) = (if self.mode() == Mode::Local { queue() } else { None }) else {
            for cpu in cpus {
                outcome = outcome.and(visit(cpu));
            }
            return outcome;
        };
        let calls: Box<[_]> = cpus.iter().map(|&cpu| Call::new(move || visit(cpu))).collect();
        for (call, &cpu) in calls.iter().zip(&cpus) {
            // SAFETY: waited for below, with nothing in between that could unwind. What was not queued is
            // found then.
            let _ = unsafe { call.begin(queue, cpu) };
        }
        calls.iter().for_each(Call::wait);
        let mut panic = None;
        for (call, &cpu) in calls.into_iter().zip(&cpus) {
            match call.into_outcome() {
                Some(Ok(visited)) => outcome = outcome.and(visited),
                Some(Err(payload)) => panic = panic.or(Some(payload)),
                None => outcome = outcome.and(visit(cpu)),
            }
        }
        panic.map_or(outcome, |payload| resume_unwind(payload))
    }
}

/// Calls `f` on a worker of `cpu`, and waits. Nothing if it was not called: there is no worker there.
///
/// # Panics
/// If `f` does.
fn on_worker<R: Send>(queue: &Queue, cpu: u32, f: impl FnOnce() -> R + Send) -> Option<R> {
    let call = Call::new(f);
    // SAFETY: waited for below, with nothing in between that could unwind.
    let begun = unsafe { call.begin(queue, cpu) };
    call.wait();
    match call.into_outcome() {
        Some(Ok(value)) => begun.is_ok().then_some(value),
        Some(Err(payload)) => resume_unwind(payload),
        None => None,
    }
}

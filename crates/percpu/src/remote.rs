//! Access to other CPUs' parts, as the mode requires.
//!
//! In mode 0 a worker of that CPU accesses the part, on a queue of the library's own; in modes 1
//! and 2 the caller does. If the CPU has no worker, or the caller must not wait for one (it runs on
//! that queue itself, or is in a thread hook or an item of a BH queue), the caller does it in mode 0
//! as well, by the forced path. That is always
//! correct, and at worst disturbs another thread.
//!
//! A worker never waits for a lock, as the lock's holder may itself wait for a worker of that CPU.
//! If the worker finds the lock taken, its caller waits until the lock appears free, and asks
//! again.

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::OnceLock;

use uwork_engine::Queue;
use uwork_engine::percpu::Recursion;
use uwork_linux::library_queue::try_library_queue;
use uwork_linux::on_cpu::{self, Call};
use uwork_linux::{Error, Linux, current_cpu, engine};
use uwork_policy::percpu::Mode;

use super::error::recursion;
use super::locks::Locks;

/// The queue for functions that go to another CPU. None if it cannot be made, if the caller runs on
/// it and would hold a permit that it waits for, or if the caller must not wait.
fn queue() -> Option<&'static Queue<Linux>> {
    static QUEUE: OnceLock<Queue<Linux>> = OnceLock::new();
    if !engine().may_wait() {
        return None;
    }
    let queue = try_library_queue(&QUEUE, "uwork/percpu", on_cpu::queue)?;
    (!queue.runs_here()).then_some(queue)
}

/// The outcome of an attempt: None if the lock was taken.
type Attempt<R> = Result<Option<R>, Recursion>;

impl Locks {
    /// The queue by which to access `cpu`, if the mode requires it and the caller is on another
    /// CPU.
    fn queue_to(&self, cpu: u32) -> Option<&'static Queue<Linux>> {
        let is_there = current_cpu() == cpu;
        if self.mode() != Mode::Local || is_there { None } else { queue() }
    }

    /// Lets a worker of `cpu` try until it gets the lock. None if the CPU has no worker.
    fn ask<R: Send>(
        &self,
        queue: &Queue<Linux>,
        cpu: u32,
        mut attempt: impl FnMut() -> Attempt<R> + Send,
    ) -> Option<Result<R, Recursion>> {
        loop {
            match on_worker(queue, cpu, &mut attempt)? {
                Ok(Some(value)) => return Some(Ok(value)),
                Ok(None) => self.row().wait_for(cpu),
                Err(Recursion) => return Some(Err(Recursion)),
            }
        }
    }

    /// Takes the lock of `cpu`.
    ///
    /// # Errors
    /// The CPU does not exist, or the caller holds it.
    pub fn lock_of(&self, cpu: u32) -> Result<(), Error> {
        self.check(cpu)?;
        let (row, token) = (self.row(), self.token());
        let attempt = || Ok(row.try_for(cpu, token, token)?.then_some(()));
        let taken = self.queue_to(cpu).and_then(|queue| self.ask(queue, cpu, attempt));
        taken.unwrap_or_else(|| row.lock_at(cpu, token, token)).map_err(|Recursion| recursion())
    }

    /// Takes the lock of `cpu` if it is free. In mode 0 that waits for a worker of that CPU, but
    /// not for a holder.
    ///
    /// # Errors
    /// The CPU does not exist, or the caller holds it.
    pub fn try_lock_of(&self, cpu: u32) -> Result<bool, Error> {
        self.check(cpu)?;
        let (row, token) = (self.row(), self.token());
        if row.at(cpu).is_held_by(token) {
            return Err(recursion());
        }
        let take = || row.try_at(cpu, token);
        let taken = self.queue_to(cpu).and_then(|queue| on_worker(queue, cpu, take));
        Ok(taken.unwrap_or_else(take))
    }

    /// Calls `f` with the lock of `cpu` held; `f` releases it. In mode 0 it runs on that CPU.
    ///
    /// # Errors
    /// The CPU does not exist, or the caller holds its lock.
    ///
    /// # Panics
    /// If `f` panics.
    pub fn visit<R: Send>(&self, cpu: u32, f: impl FnOnce() -> R + Send) -> Result<R, Error> {
        self.check(cpu)?;
        let asker = self.token();
        // Taken out by the call that runs it: a refused call drops its function.
        let mut f = Some(f);
        let mut visit = || f.take().expect("it is called once")();
        let visited = self.queue_to(cpu).and_then(|queue| {
            self.ask(queue, cpu, || Ok(self.try_from_here(cpu, asker)?.then(&mut visit)))
        });
        let visited = visited.unwrap_or_else(|| {
            self.lock_from_here(cpu, asker)?;
            Ok(visit())
        });
        visited.map_err(|Recursion| recursion())
    }

    /// Calls `f` with the lock of each of these CPUs held; `f` releases it. In mode 0 it runs on
    /// those CPUs, at the same time.
    ///
    /// # Errors
    /// A CPU does not exist, and no part was visited; or the caller holds one of the locks, and all
    /// other parts were visited.
    ///
    /// # Panics
    /// If `f` panics: in mode 0 after all were visited, if workers visited them; else at once, and
    /// later CPUs are not visited.
    pub fn visit_all(
        &self,
        cpus: impl IntoIterator<Item = u32>,
        f: impl Fn(u32) + Sync,
    ) -> Result<(), Error> {
        let asker = self.token();
        let visit = |cpu| {
            self.lock_from_here(cpu, asker).map_err(|Recursion| recursion())?;
            f(cpu);
            Ok(())
        };
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.iter().try_for_each(|&cpu| self.check(cpu))?;
        let (mut outcome, mut panic) = (Ok(()), None);
        while let Some(queue) = (self.mode() == Mode::Local).then(queue).flatten() {
            let attempt = |cpu| Ok(self.try_from_here(cpu, asker)?.then(|| f(cpu)));
            let mut busy = Vec::new();
            for (cpu, attempted) in on_workers(queue, &cpus, attempt) {
                match attempted {
                    Some(Ok(Ok(Some(())))) => {}
                    Some(Ok(Ok(None))) => busy.push(cpu),
                    Some(Ok(Err(Recursion))) => outcome = Err(recursion()),
                    Some(Err(payload)) => panic = panic.or(Some(payload)),
                    None => outcome = outcome.and(visit(cpu)),
                }
            }
            cpus = busy;
            let Some(&cpu) = cpus.first() else { break };
            self.row().wait_for(cpu);
        }
        // CPUs that no worker visited.
        for cpu in cpus {
            outcome = outcome.and(visit(cpu));
        }
        panic.map_or(outcome, |payload| resume_unwind(payload))
    }
}

/// The outcome of a call: None if `f` was not called, for lack of a worker.
type Outcome<R> = Option<Result<R, Box<dyn Any + Send>>>;

/// Calls `f` on a worker of each of these CPUs at the same time, and waits for all.
fn on_workers<R: Send>(
    queue: &Queue<Linux>,
    cpus: &[u32],
    f: impl Fn(u32) -> R + Sync,
) -> Vec<(u32, Outcome<R>)> {
    let f = &f;
    let calls: Box<[_]> = cpus.iter().map(|&cpu| Call::new(move || f(cpu))).collect();
    for (call, &cpu) in calls.iter().zip(cpus) {
        // SAFETY: waited for below, and nothing in between can unwind. A call that was not queued
        // is detected then.
        let _ = unsafe { call.begin(queue, cpu) };
    }
    calls.iter().for_each(Call::wait);
    calls.into_iter().zip(cpus).map(|(call, &cpu)| (cpu, call.into_outcome())).collect()
}

/// Calls `f` on a worker of `cpu`, and waits. None if it was not called, for lack of a worker.
///
/// # Panics
/// If `f` panics.
fn on_worker<R: Send>(queue: &Queue<Linux>, cpu: u32, f: impl FnOnce() -> R + Send) -> Option<R> {
    let call = Call::new(f);
    // SAFETY: waited for below, and nothing in between can unwind.
    let begun = unsafe { call.begin(queue, cpu) };
    call.wait();
    match call.into_outcome() {
        Some(Ok(value)) => begun.is_ok().then_some(value),
        Some(Err(payload)) => resume_unwind(payload),
        None => None,
    }
}

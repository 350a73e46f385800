//! Instructions that take time: what a thread owes is put on the clock before it can observe
//! others, and before others can observe it.
//!
//! Accesses to lines that no other CPU has used are charged and not settled: no other thread can
//! tell when they happened. Before any other access, a lock, a wake or a pause, and when it owes
//! much, the thread settles: it keeps its
//! CPU for the time that it owes, and threads of other CPUs run meanwhile. So a thread can be
//! suspended at any access and with locks held. That is why locks are taken on the machine first,
//! and the system's mutex is always free then.

use std::cell::RefMut;
use std::panic::Location;
use std::sync::atomic::Ordering;

use super::VirtualHost;
use crate::costs::Cost;
use crate::costs::bill::{Bill, Use};
use crate::machine::{Doing, Machine};

impl VirtualHost {
    /// From now on, instructions take time on this machine.
    pub fn start_bill(&self, bill: Bill) {
        let mut machine = self.machine();
        machine.chaos.slice_ns = bill.costs().ns(Cost::Slice);
        let start_ns = bill.costs().ns(Cost::Start);
        machine.chaos.spawn_ns = machine.chaos.spawn_ns.max(start_ns);
        machine.bill = Some(Box::new(bill));
        self.0.pays.store(true, Ordering::Relaxed);
    }

    /// Whether instructions take time, and this is a thread of the machine.
    pub fn pays(&self) -> bool {
        self.0.pays.load(Ordering::Relaxed) && self.machine().current.is_some()
    }

    /// Charges a figure to the executing thread, if instructions take time.
    pub fn charge(&self, cost: Cost) {
        if self.pays()
            && let Some(bill) = &mut self.machine().bill
        {
            bill.charge(cost);
        }
    }

    /// Charges time to the executing thread, if instructions take time.
    pub fn charge_ns(&self, ns: u64) {
        if self.pays()
            && let Some(bill) = &mut self.machine().bill
        {
            bill.charge_ns(ns);
        }
    }

    /// A figure of the machine in nanoseconds; 0 if instructions take no time.
    pub fn figure(&self, cost: Cost) -> u64 {
        self.machine().bill.as_ref().map_or(0, |bill| bill.costs().ns(cost))
    }

    /// Puts what the executing thread owes on the clock.
    pub fn settle(&self) {
        if !self.pays() {
            return;
        }
        let mut machine = self.machine();
        let ns = machine.bill.as_mut().map_or(0, |bill| bill.settle());
        if ns > 0 {
            self.compute_on(machine, ns);
        }
    }

    /// The executing thread settles, and computes for this time.
    pub(super) fn compute(&self, ns: u64) {
        self.settle();
        self.compute_on(self.machine(), ns);
    }

    fn compute_on(&self, mut machine: RefMut<'_, Machine>, ns: u64) {
        let anchor = machine.anchor();
        let others_first = machine.compute(ns);
        drop(machine);
        if others_first {
            self.switch(anchor);
        }
    }

    /// The executing thread uses the line at this address.
    pub fn use_line(&self, address: usize, how: Use, here: &'static Location<'static>) {
        if !self.pays() {
            return;
        }
        let mut machine = self.machine();
        let cpu = machine.current_cpu();
        if machine.bill.as_mut().is_some_and(|bill| bill.must_settle(address, cpu)) {
            drop(machine);
            self.settle();
        } else {
            drop(machine);
        }
        if how == Use::Update {
            self.await_stores();
        }
        let mut machine = self.machine();
        let (cpu, now) = (machine.current_cpu(), machine.now);
        if machine.bill.as_mut().is_some_and(|bill| bill.hits(address, cpu, how, now)) {
            return;
        }
        drop(machine);
        self.settle();
        let mut machine = self.machine();
        let (cpu, now) = (machine.current_cpu(), machine.now);
        let Some(bill) = &mut machine.bill else { return };
        let transfer = bill.access(address, cpu, how, here, now);
        let ns = transfer.wait_ns + transfer.ps / 1_000;
        if ns > 0 {
            // The access is made when the line arrives.
            self.compute_on(machine, ns);
        } else {
            drop(machine);
        }
        if let Some(bill) = &mut self.machine().bill {
            bill.charge_access(how);
        }
    }

    /// A locked instruction or a fence waits until the stores before it have their lines.
    pub fn await_stores(&self) {
        if !self.pays() {
            return;
        }
        let machine = self.machine();
        let (cpu, now) = (machine.current_cpu(), machine.now);
        let ns = machine.bill.as_ref().map_or(0, |bill| bill.stores_ns(cpu, now));
        drop(machine);
        if ns > 0 {
            self.charge_ns(ns);
            self.settle();
        }
    }

    /// The executing thread takes a lock. While another thread holds it, it spins for a time, then
    /// sleeps.
    pub fn take_lock(&self, lock: usize, spin_ns: u64, here: &'static Location<'static>) {
        while self.pays() {
            self.use_line(lock, Use::Update, here);
            self.settle();
            let mut machine = self.machine();
            let (now, thread) = (machine.now, machine.current.expect("it pays"));
            let Some(bill) = &mut machine.bill else { return };
            if bill.locks.take(lock, thread) {
                return;
            }
            bill.locks.wait(lock, thread);
            self.compute_on(machine, spin_ns.max(1));
            self.sleep_for_lock(lock, now);
        }
    }

    /// Sleeps until the holder has released the lock, if it has not yet.
    fn sleep_for_lock(&self, lock: usize, since: u64) {
        let is_waiting = |machine: &Machine| {
            let thread = machine.current.expect("it pays");
            machine.bill.as_ref().is_some_and(|bill| bill.locks.is_waiting(lock, thread))
        };
        let mut machine = self.machine();
        let waits = is_waiting(&machine);
        let spun_ns = machine.now - since;
        if let Some(bill) = &mut machine.bill {
            bill.spun(spun_ns);
            if waits {
                bill.slept += 1;
                bill.charge(Cost::Syscall);
            }
        }
        drop(machine);
        self.settle();
        let waits = is_waiting(&self.machine());
        if waits {
            self.pause(Doing::Parked, 0, None);
        }
    }

    /// The executing thread has released a lock, with a store or with a locked instruction. A thread
    /// that sleeps for it is woken.
    pub fn release_lock(&self, lock: usize, how: Use, here: &'static Location<'static>) {
        if !self.pays() {
            return;
        }
        self.use_line(lock, how, here);
        self.settle();
        let mut machine = self.machine();
        let next = machine.bill.as_mut().and_then(|bill| bill.locks.release(lock));
        let Some(next) = next else { return };
        let cost = machine.wake_cost(next);
        if machine.is_parked(next)
            && let Some(bill) = &mut machine.bill
        {
            bill.charge(cost);
        }
        machine.end_wait(next);
    }
}

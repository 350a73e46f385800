//! The trace: what submitters and workers record of their items, and how it is read. The records are
//! in `words::trace`.

use crate::engine::Engine;
use crate::words::dump::Function;
use crate::words::host::Host;
use crate::words::item::Work;
use crate::words::trace::Ring;
pub use crate::words::trace::{
    ITEMS_PER_MS, READ_MAX, TraceError, TraceEvent, TraceRead, TraceRecord, Tracer,
};

impl<H: Host> Engine<H> {
    /// Submitter, before the push: records the item if a token is left. Returns whether it did, and
    /// the worker is to do the same.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_queued(&self, tracer: &Tracer, item: &Work, pwq: u32, cpu: u32) -> bool {
        let Some(ring) = tracer.of_submitter(cpu) else { return false };
        if !tracer.take_token() {
            return false;
        }
        let event = TraceEvent::Queued { thread: self.thread_number() };
        let item = std::ptr::from_ref(item).addr();
        let at_ns = self.host().now();
        ring.record(TraceRecord { at_ns, event, item, cpu, slot: 0, pwq });
        true
    }

    /// Worker: records that a run of a marked item begins; its end is recorded when the returned
    /// value is dropped.
    pub(crate) fn trace_run(&self, slot: u32, item: &Work) -> Option<TracedRun<'_, H>> {
        let ring = self.host().tracer()?.of_worker(slot);
        let event = TraceEvent::Started { function: item.func().identity() };
        let (pwq, item) = (item.ticket().pwq(), std::ptr::from_ref(item).addr());
        let run = TracedRun { engine: self, ring, slot, item, pwq };
        run.record(event);
        Some(run)
    }

    /// Worker or helper that takes items, with the present time.
    #[inline(always)]
    pub(crate) fn trace_heartbeat(&self, now: u64) {
        if let Some(tracer) = self.host().tracer() {
            tracer.heartbeat(now);
        }
    }

    fn thread_number(&self) -> u64 {
        self.caller().thread.number(|| self.host().thread_id())
    }

    /// Records the items that are queued from now on, for so many nanoseconds. Returns the time of its
    /// end, which no other trace has: a trace starts after the end of the one before.
    ///
    /// # Errors
    /// The host has no tracer, or a trace is on.
    pub fn start_trace(&self, for_ns: u64) -> Result<u64, TraceError> {
        let tracer = self.host().tracer().ok_or(TraceError::Unsupported)?;
        let _reading = tracer.reading().ok_or(TraceError::IsRead)?;
        let (now, until) = (self.host().now(), tracer.until());
        if now < until {
            return Err(TraceError::IsOn { left_ns: until - now });
        }
        let cpus = self.config().topology.cpus().iter().map(|cpu| cpu.id);
        let until = now.saturating_add(for_ns);
        tracer.start(now, until, cpus);
        Ok(until)
    }

    /// Whether the trace is on that [`Engine::start_trace`] returned this time for.
    pub fn is_traced_until(&self, until: u64) -> bool {
        let tracer = self.host().tracer();
        tracer.is_some_and(|tracer| tracer.until() == until) && self.host().now() < until
    }

    /// Ends the trace that [`Engine::start_trace`] returned this time for. Another one goes on.
    ///
    /// # Errors
    /// The host has no tracer, or another thread reads the trace.
    pub fn end_trace(&self, until: u64) -> Result<(), TraceError> {
        let tracer = self.host().tracer().ok_or(TraceError::Unsupported)?;
        // No trace starts meanwhile.
        let _reading = tracer.reading().ok_or(TraceError::IsRead)?;
        if tracer.until() == until {
            tracer.stop();
        }
        Ok(())
    }

    /// Ends the trace, if one is on. The records can still be read.
    ///
    /// # Errors
    /// The host has no tracer.
    pub fn stop_trace(&self) -> Result<(), TraceError> {
        self.host().tracer().map(Tracer::stop).ok_or(TraceError::Unsupported)
    }

    /// The records since the last call, [`READ_MAX`] at most.
    ///
    /// # Errors
    /// The host has no tracer, or another thread reads the trace.
    pub fn read_trace(&self) -> Result<TraceRead, TraceError> {
        let tracer = self.host().tracer().ok_or(TraceError::Unsupported)?;
        let mut read = {
            let _reading = tracer.reading().ok_or(TraceError::IsRead)?;
            tracer.read()
        };
        let distinct = |mut numbers: Vec<usize>| {
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        let functions = read.records.iter().filter_map(|record| match record.event {
            TraceEvent::Started { function } => Some(function),
            _ => None,
        });
        let functions = distinct(functions.collect()).into_iter();
        // SAFETY: the identities are those of items that ran.
        read.functions = functions.map(|at| (at, unsafe { Function::at(at) })).collect();
        let pwqs = distinct(read.records.iter().map(|record| record.pwq as usize).collect());
        self.for_each_queue(|wq| {
            let owned = |&pwq: &usize| self.pwqs.get(pwq as u32).is_some_and(|pwq| wq.owns(pwq));
            let owned = pwqs.iter().copied().filter(owned);
            read.queues.extend(owned.map(|pwq| (pwq as u32, wq.name().to_owned())));
        });
        Ok(read)
    }
}

/// A run that is recorded. Dropping it records the end, also while a panic unwinds.
pub(crate) struct TracedRun<'a, H: Host> {
    engine: &'a Engine<H>,
    ring: &'a Ring,
    slot: u32,
    item: usize,
    pwq: u32,
}

impl<H: Host> TracedRun<'_, H> {
    fn record(&self, event: TraceEvent) {
        let host = self.engine.host();
        let (at_ns, cpu) = (host.now(), host.current_cpu());
        let (item, slot, pwq) = (self.item, self.slot, self.pwq);
        self.ring.record(TraceRecord { at_ns, event, item, cpu, slot, pwq });
    }
}

impl<H: Host> Drop for TracedRun<'_, H> {
    fn drop(&mut self) {
        self.record(TraceEvent::Ended { thread: self.engine.thread_number() });
    }
}

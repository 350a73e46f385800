//! Context-switch records of the process's own threads, from perf_event_open(2).
//!
//! No privilege is needed if `perf_event_paranoid` is 2 or less. The event counts nothing and
//! excludes the kernel; its side-band records show when its thread leaves a CPU and gets one again,
//! and whether it was preempted. Each thread has a ring of one page, the smallest size. A thread of
//! the watcher's polls the rings' files; each record may make it wake a worker.

use std::io::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_DUMMY, PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_MISC_SWITCH_OUT_PREEMPT,
    PERF_SAMPLE_TIME, PERF_TYPE_SOFTWARE, perf_event_attr,
};
use perf_event_open_sys::perf_event_open;
use uwork_engine::host::{Activity, ThreadSample};

use super::ring::{Record, Ring};
use super::{kept, proc};
use crate::descriptor::{Expected, OwnDescriptor, is_passing};

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 1 << 3;
/// How long new records stay unread if the system refuses a poll of all files.
const UNPOLLED_NS: u64 = 1_000_000;
/// A thread that does not exist: Linux never assigns the greatest number.
const NO_THREAD: i32 = i32::MAX;

/// The reason for which a thread is not observed.
pub(super) enum Refused {
    /// The system refuses it to this process, now and later.
    Forbidden(Error),
    /// The limit of open files, or of locked memory, is reached.
    Exhausted(Error),
    /// The thread has ended.
    Gone,
    /// It will be possible some milliseconds later.
    NotReady,
}

/// The records of one thread's context switches.
pub struct Records {
    file: OwnDescriptor,
    /// The program has closed the file. The ring is written to as before, but wakes no poll.
    is_lost: AtomicBool,
    ring: Ring,
    thread: u64,
    /// The thread's file in `/proc`, kept open: opening it takes longer than reading it.
    stat: Option<OwnDescriptor>,
    /// The activity by the last record.
    last: Option<Activity>,
    /// Added to the clock of the records to get the host's.
    offset_ns: u64,
}

fn attributes() -> perf_event_attr {
    let mut attr = perf_event_attr {
        size: size_of::<perf_event_attr>() as u32,
        type_: PERF_TYPE_SOFTWARE,
        config: u64::from(PERF_COUNT_SW_DUMMY),
        sample_type: u64::from(PERF_SAMPLE_TIME),
        ..perf_event_attr::default()
    };
    attr.set_context_switch(1);
    attr.set_sample_id_all(1);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    // Each record wakes the polling thread.
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = 1;
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr
}

fn open(attr: &mut perf_event_attr, thread: i32) -> Result<OwnDescriptor, Error> {
    // SAFETY: the attributes are live and their size is in them.
    let open = || unsafe { perf_event_open(attr, thread, -1, -1, CLOEXEC) };
    OwnDescriptor::open(Expected::PerfEvent, open)
}

/// Whether the system would let this process observe its threads. Opens nothing: the requested
/// thread does not exist, which the system checks after everything else.
pub(super) fn probe() -> Result<(), Error> {
    match open(&mut attributes(), NO_THREAD) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

/// Whether a thread is opening the event of [`kept::is_anchored`].
static BEGUN: AtomicBool = AtomicBool::new(false);

/// It was refused: each other one may take milliseconds.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// The attempts to open it.
static ATTEMPTS: Attempts = Attempts::new();

/// The time between two threads that find no descriptor.
const PAUSE_NS: u64 = 1_000_000_000;

/// When a thread is made to open the event: while the process or the system has no descriptor for it,
/// not for each attempt.
struct Attempts {
    /// When a thread may be made again, in nanoseconds of `CLOCK_MONOTONIC`.
    again_at: AtomicU64,
}

impl Attempts {
    const fn new() -> Attempts {
        Attempts { again_at: AtomicU64::new(0) }
    }

    /// Calls `start`, unless the thread could not open the event. `probe` finds a lack of the process's,
    /// and only the thread one of the system's. False if no thread was made.
    fn begin(
        &self,
        now: u64,
        probe: impl FnOnce() -> Result<(), Error>,
        start: impl FnOnce() -> Result<(), Error>,
    ) -> bool {
        if now < self.again_at.load(Ordering::Relaxed) || probe().inspect_err(note_refusal).is_err()
        {
            return false;
        }
        let is_started = start().is_ok();
        if !is_started {
            self.pause(now);
        }
        is_started
    }

    /// No thread is made for a while.
    fn pause(&self, now: u64) {
        self.again_at.store(now.saturating_add(PAUSE_NS), Ordering::Relaxed);
    }
}

/// Whether the event is refused for good. Without a free descriptor, or if the program has closed it at
/// once, a later call tries again.
fn is_final(error: &Error) -> bool {
    !error.raw_os_error().is_some_and(is_passing)
}

/// Whether events can be opened at once. The first event of its kind in the system takes milliseconds,
/// while the kernel patches its code for context switches; a second after the last such event it
/// patches it back. An event that records nothing keeps it patched. A thread of its own opens that
/// event, as the watcher has other work meanwhile. The first call starts the thread, and so does the
/// first one after the program, or a fork, has closed the event. False also where that is not known, as
/// another thread uses the files: the next sample asks again.
fn is_warm() -> bool {
    if REFUSED.load(Ordering::Relaxed) {
        return true;
    }
    match kept::is_anchored() {
        Some(true) => return true,
        Some(false) => {}
        None => return false,
    }
    // If no thread is made, a later call tries again, and nothing is observed until then.
    let begins = || ATTEMPTS.begin(crate::thread::monotonic_ns(), probe, warm_up);
    if !BEGUN.swap(true, Ordering::Relaxed) && !begins() {
        BEGUN.store(false, Ordering::Relaxed);
    }
    false
}

/// Starts the thread that opens the event.
fn warm_up() -> Result<(), Error> {
    let observed = crate::thread::id();
    crate::thread::start("uw/perf", move || {
        let mut attr = attributes();
        attr.set_context_switch(0);
        attr.set_disabled(1);
        match open(&mut attr, i32::try_from(observed).unwrap_or(NO_THREAD)) {
            Ok(file) => kept::keep_anchor(file),
            Err(error) => {
                ATTEMPTS.pause(crate::thread::monotonic_ns());
                note_refusal(&error);
            }
        }
        BEGUN.store(false, Ordering::Release);
    })
}

fn note_refusal(error: &Error) {
    if is_final(error) {
        REFUSED.store(true, Ordering::Relaxed);
    }
}

impl Records {
    /// Records a thread from now on. `offset_ns`: added to the system's `CLOCK_MONOTONIC`, wrapping, to
    /// get the host's clock.
    pub(super) fn new(thread: u64, offset_ns: u64) -> Result<Records, Refused> {
        if !is_warm() {
            return Err(Refused::NotReady);
        }
        let number = i32::try_from(thread).map_err(|_| Refused::Gone)?;
        let file = open(&mut attributes(), number).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => Refused::Gone,
            Some(libc::EBADF) => Refused::NotReady,
            Some(libc::ENOSPC) => Refused::Exhausted(error),
            Some(number) if is_passing(number) => Refused::Exhausted(error),
            _ => Refused::Forbidden(error),
        })?;
        if file.is_of_the_last() {
            return Err(Refused::Exhausted(Error::from_raw_os_error(libc::EMFILE)));
        }
        // EPERM here means that the limit of locked memory is reached.
        let number = file.get().ok_or(Refused::NotReady)?;
        let ring = Ring::map(number).map_err(Refused::Exhausted)?;
        // Otherwise another file was mapped, whose memory is not written to.
        file.get().ok_or(Refused::NotReady)?;
        let stat = proc::open(thread).ok().filter(|file| !file.is_of_the_last());
        let is_lost = AtomicBool::new(false);
        Ok(Records { file, is_lost, ring, thread, stat, last: None, offset_ns })
    }

    /// The thread's state from `/proc`, if its file is open.
    pub(crate) fn activity(&self) -> Option<Activity> {
        self.stat.as_ref().and_then(OwnDescriptor::get).and_then(proc::activity_by)
    }

    /// Whether a poll can wait for the next record.
    fn is_polled(&self) -> bool {
        !self.is_lost.load(Ordering::Relaxed)
    }

    /// After a poll that has returned `events` for the file's number: whether that is still the
    /// number of this file. New records show that it is, without a system call.
    fn check(&self, events: i16) {
        let is_written = events & libc::POLLIN != 0 && !self.ring.is_empty();
        if !is_written && self.file.get().is_none() {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Reads the records since the last call.
    pub(crate) fn sample(&mut self) -> ThreadSample {
        let (mut slept, mut lost) = (None, false);
        if !self.is_polled()
            && let Ok(new) = Records::new(self.thread, self.offset_ns)
        {
            *self = new;
            lost = true;
        }
        let (last, offset_ns) = (&mut self.last, self.offset_ns);
        self.ring.read(|record| match record {
            Record::Switch { misc, at_ns } => {
                slept = note_switch(last, misc, at_ns.wrapping_add(offset_ns)).or(slept);
            }
            Record::Lost => (*last, lost) = (None, true),
        });
        ThreadSample { activity: self.last, slept, lost }
    }
}

/// Applies a switch at this time of the host's clock to the last known activity. Returns the start
/// and length of a sleep that this switch ended.
fn note_switch(last: &mut Option<Activity>, misc: u32, at: u64) -> Option<(u64, u64)> {
    let sleeps =
        misc & PERF_RECORD_MISC_SWITCH_OUT != 0 && misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT == 0;
    let now = if sleeps { Activity::Sleeps { since: Some(at) } } else { Activity::Runs };
    match (last.replace(now), now) {
        (Some(Activity::Sleeps { since: Some(since) }), Activity::Runs) => {
            Some((since, at.saturating_sub(since)))
        }
        _ => None,
    }
}

/// Sleeps until a record arrives, for at most `timeout_ns`. True if one has.
pub(super) fn poll(records: &[&Records], timeout_ns: u64) -> bool {
    let polled = || records.iter().filter(|records| records.is_polled());
    let watched = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // A number that belongs to another file by now is polled once.
    let mut files: Vec<_> = polled().map(|records| watched(records.file.number())).collect();
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    let sigmask = std::ptr::null();
    // SAFETY: both are live and of the given length. Errors and signals end it early, which is
    // permitted.
    let ready = unsafe {
        libc::ppoll(files.as_mut_ptr(), files.len() as libc::nfds_t, &raw const timeout, sigmask)
    };
    if ready < 0 && crate::fatal::errno() == libc::EINVAL {
        // The process may have fewer files open than these, since the limit was lowered.
        std::thread::sleep(Duration::from_nanos(timeout_ns.min(UNPOLLED_NS)));
    }
    for (records, file) in polled().zip(&files) {
        // Checks each file that is ready, and all files after a timeout: a foreign one may never be.
        if file.revents != 0 || ready == 0 {
            records.check(file.revents);
        }
    }
    ready > 0
}

/// In a child after a fork: the thread that was opening the event does not exist here.
pub(crate) fn child() {
    BEGUN.store(false, Ordering::Relaxed);
    // By the clock of the parent, which the child's can be behind.
    ATTEMPTS.again_at.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write, pipe};
    use std::sync::mpsc::channel;

    use super::super::proc;
    use super::*;
    use crate::bounded;
    use crate::left_out::not_here;

    // Catches: threads that are not observed for the rest of a process that once had no free descriptor.
    #[test]
    fn a_lack_of_descriptors_is_no_refusal() {
        for passing in [libc::EMFILE, libc::ENFILE, libc::EBADF] {
            assert!(!is_final(&Error::from_raw_os_error(passing)));
        }
        for refused in [libc::EACCES, libc::EPERM, libc::ENOSYS] {
            assert!(is_final(&Error::from_raw_os_error(refused)));
        }
    }

    // Catches: a thread for each sample of a process that has no free descriptor.
    #[test]
    fn without_a_descriptor_no_attempt_makes_a_thread() {
        let (attempts, threads) = (Attempts::new(), Cell::new(0));
        let start = || {
            threads.set(threads.get() + 1);
            Ok(())
        };
        let lacks = || Err(Error::from_raw_os_error(libc::EMFILE));
        for now in 0..1_000 {
            assert!(!attempts.begin(now, lacks, start));
        }
        assert_eq!(threads.get(), 0);
        assert!(attempts.begin(1_000, || Ok(()), start), "as soon as one is free");
        // The thread finds that the system has none.
        attempts.pause(1_000);
        for now in 1_000..2_000 {
            assert!(!attempts.begin(now, || Ok(()), start));
        }
        assert_eq!(threads.get(), 1);
        assert!(attempts.begin(1_000 + PAUSE_NS, || Ok(()), start));
        let refused = || Err(Error::from_raw_os_error(libc::EAGAIN));
        assert!(!attempts.begin(2 * PAUSE_NS, || Ok(()), refused));
        assert!(!attempts.begin(2 * PAUSE_NS + 1, || Ok(()), start), "no threads either");
        assert_eq!(threads.get(), 2);
    }

    /// The records of this thread, as soon as that is possible; `None`, with a note about the test, if
    /// the system refuses it.
    fn records_of(thread: u64, test: &str) -> Option<Records> {
        bounded::until(|| match Records::new(thread, 0) {
            Ok(records) => Some(Some(records)),
            Err(Refused::NotReady) => None,
            Err(Refused::Gone) => panic!("thread {thread} exists"),
            Err(Refused::Forbidden(error) | Refused::Exhausted(error)) => {
                not_here(test, format!("perf_event_open: {error}"));
                Some(None)
            }
        })
    }

    #[test]
    fn a_preempted_thread_does_not_sleep() {
        const OUT: u32 = PERF_RECORD_MISC_SWITCH_OUT;
        const PREEMPTED: u32 = OUT | PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
        let mut last = None;
        for (misc, at, activity, slept) in [
            (0, 1, Activity::Runs, None),
            (PREEMPTED, 2, Activity::Runs, None),
            (0, 3, Activity::Runs, None),
            (OUT, 4, Activity::Sleeps { since: Some(4) }, None),
            (0, 9, Activity::Runs, Some((4, 5))),
            (OUT, 10, Activity::Sleeps { since: Some(10) }, None),
            (OUT, 20, Activity::Sleeps { since: Some(20) }, None),
            (0, 21, Activity::Runs, Some((20, 1))),
        ] {
            assert_eq!(note_switch(&mut last, misc, at), slept, "at {at}");
            assert_eq!(last, Some(activity), "at {at}");
        }
    }

    fn until(condition: impl Fn() -> bool) {
        bounded::until(|| condition().then_some(()));
    }

    /// A thread sleeps so often that its unread ring is full, and then stays asleep.
    #[test]
    fn a_sleeping_thread_does_not_count_as_running_after_its_ring_was_full() {
        let ((reader, mut writer), (tell, told)) = (pipe().unwrap(), channel());
        let thread = std::thread::spawn(move || {
            tell.send(crate::thread::id()).unwrap();
            std::io::BufReader::new(reader).bytes().count()
        });
        let id = told.recv().unwrap();
        let asleep = || matches!(proc::activity(id), Ok(Activity::Sleeps { .. }));
        until(asleep);
        let test = "a_sleeping_thread_does_not_count_as_running_after_its_ring_was_full";
        let Some(mut records) = records_of(id, test) else { return };
        for rounds in [1_000, 1_001, 127, 128] {
            for _ in 0..rounds {
                // Waits until the thread has read the last byte: it sleeps once for each.
                until(asleep);
                writer.write_all(b"x").unwrap();
            }
            until(asleep);
            // The kernel marks the thread as asleep a moment before it leaves its CPU, which is the
            // recorded event.
            let mut seen = || records.sample().activity;
            bounded::until(|| (!matches!(seen(), Some(Activity::Runs))).then_some(()));
            // The next switch is known again.
            writer.write_all(b"x").unwrap();
            let sleeps = |activity| matches!(activity, Some(Activity::Sleeps { since: Some(_) }));
            bounded::until(|| sleeps(seen()).then_some(()));
        }
        drop(writer);
        assert_eq!(thread.join().unwrap(), 1_000 + 1_001 + 127 + 128 + 4);
    }
}

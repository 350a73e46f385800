//! Context-switch records of the process's own threads, from perf_event_open(2).
//!
//! No privilege is needed where `perf_event_paranoid` is 2 or less: an event that counts nothing, without
//! the kernel, whose side-band records say when its thread leaves a CPU and gets one again, and whether
//! it was preempted. Each thread has a ring of one page, the smallest there is. A thread of the watch's
//! polls the rings' files; each record is an occasion to wake up.

use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_DUMMY, PERF_RECORD_LOST, PERF_RECORD_MISC_SWITCH_OUT,
    PERF_RECORD_MISC_SWITCH_OUT_PREEMPT, PERF_RECORD_SWITCH, PERF_SAMPLE_TIME, PERF_TYPE_SOFTWARE,
    perf_event_attr, perf_event_mmap_page,
};
use perf_event_open_sys::perf_event_open;
use uwork_engine::host::{Activity, Seen};

use super::proc;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 1 << 3;
/// A thread that does not exist: the greatest number, which Linux gives to none.
const NOBODY: i32 = i32::MAX;

/// Why something is not observed.
pub(super) enum Refused {
    /// The system will not let this process do it: not now, and not later.
    Forbidden(Error),
    /// There is no file, or no memory that may be locked, for one more.
    Exhausted(Error),
    /// The thread has ended.
    Gone,
    /// It will be possible in some milliseconds.
    NotYet,
}

/// The switches of one thread.
pub(crate) struct Sight {
    file: OwnedFd,
    ring: Ring,
    /// The thread's file in `/proc`, kept open: finding it takes longer than reading it.
    stat: Option<OwnedFd>,
    /// What the last record said.
    last: Option<Activity>,
    /// What is added to the clock of the records to get the host's.
    offset_ns: u64,
}

/// The mapped page of control and page of records.
struct Ring {
    at: NonNull<u8>,
    page: usize,
}

// SAFETY: a mapping of the whole process; only the holder of the sight uses it.
unsafe impl Send for Ring {}

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
    // Whoever polls is woken by each record.
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = 1;
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr
}

fn open(attr: &mut perf_event_attr, thread: i32) -> Result<OwnedFd, Error> {
    // SAFETY: the attributes are live and their size is in them.
    let file = unsafe { perf_event_open(attr, thread, -1, -1, CLOEXEC) };
    if file < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a file that was just opened, and that nobody else knows of.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Whether the system would let this process observe its threads. Opens nothing: the thread asked for
/// does not exist, which is looked at after everything else.
pub(super) fn probe() -> Result<(), Error> {
    match open(&mut attributes(), NOBODY) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

/// The first event of its kind in the system takes milliseconds, in which the system changes its switches,
/// and a second after the last one it changes them back. One event that records nothing keeps it from that.
/// It is opened by a thread of its own: the watch has other things to do meanwhile.
static ANCHOR: OnceLock<Option<OwnedFd>> = OnceLock::new();

/// Whether events can be opened without waiting. The first call sees to that.
fn is_warm() -> bool {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if ANCHOR.get().is_some() {
        return true;
    }
    if !BEGUN.swap(true, Ordering::Relaxed) {
        let observed = super::super::thread::id();
        let warm_up = move || {
            ANCHOR.get_or_init(|| {
                let mut attr = attributes();
                attr.set_context_switch(0);
                attr.set_disabled(1);
                let file = open(&mut attr, i32::try_from(observed).unwrap_or(NOBODY)).ok();
                file.iter().for_each(|file| remember(file.as_raw_fd()));
                file
            });
        };
        // Without a thread nothing is observed until there is one.
        let begun = std::thread::Builder::new().name("uw/perf".to_owned()).spawn(warm_up);
        BEGUN.store(begun.is_ok(), Ordering::Relaxed);
    }
    false
}

impl Sight {
    /// Observes a thread from here on. `offset_ns`: what is to be added to `CLOCK_MONOTONIC`, wrapping, to
    /// get the host's clock.
    pub(super) fn new(thread: u64, offset_ns: u64) -> Result<Sight, Refused> {
        if !is_warm() {
            return Err(Refused::NotYet);
        }
        let number = i32::try_from(thread).map_err(|_| Refused::Gone)?;
        let file = open(&mut attributes(), number).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => Refused::Gone,
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOSPC) => {
                Refused::Exhausted(error)
            }
            _ => Refused::Forbidden(error),
        })?;
        // EPERM here is the limit of locked memory.
        let ring = Ring::map(&file).map_err(Refused::Exhausted)?;
        let stat = proc::open(thread);
        [Some(&file), stat.as_ref()]
            .into_iter()
            .flatten()
            .for_each(|file| remember(file.as_raw_fd()));
        Ok(Sight { file, ring, stat, last: None, offset_ns })
    }

    /// What the thread is at, as the system sees it, if that can be known here.
    pub(crate) fn activity(&self) -> Option<Activity> {
        self.stat.as_ref().and_then(proc::activity_by)
    }

    pub(super) fn file(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Reads what has been recorded since the last look.
    pub(crate) fn look(&mut self) -> Seen {
        let (head, mut tail) = self.ring.bounds();
        let mut slept = None;
        while tail < head {
            let header = self.ring.word(tail);
            let (kind, misc, size) =
                (header as u32, (header >> 32) as u32 & 0xffff, (header >> 48) & 0xffff);
            if size < 8 {
                // Never written by the kernel; whatever it is, the rest cannot be read.
                self.last = None;
                tail = head;
                break;
            }
            match kind {
                PERF_RECORD_SWITCH => {
                    let at = self.ring.word(tail + 8).wrapping_add(self.offset_ns);
                    slept = self.note_switch(misc, at).or(slept);
                }
                PERF_RECORD_LOST => self.last = None,
                _ => {}
            }
            tail += size;
        }
        self.ring.release(tail);
        Seen { activity: self.last, slept }
    }

    /// A switch at this time by the host's clock. When a sleep that is over now began, and how long it was.
    fn note_switch(&mut self, misc: u32, at: u64) -> Option<(u64, u64)> {
        let before = self.last;
        if misc & PERF_RECORD_MISC_SWITCH_OUT == 0
            || misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0
        {
            self.last = Some(Activity::Runs);
        } else {
            self.last = Some(Activity::Sleeps { since: Some(at) });
        }
        match (before, self.last) {
            (Some(Activity::Sleeps { since: Some(since) }), Some(Activity::Runs)) => {
                Some((since, at.saturating_sub(since)))
            }
            _ => None,
        }
    }
}

impl Drop for Sight {
    fn drop(&mut self) {
        [Some(&self.file), self.stat.as_ref()]
            .into_iter()
            .flatten()
            .for_each(|file| forget(file.as_raw_fd()));
    }
}

impl Ring {
    fn map(file: &OwnedFd) -> Result<Ring, Error> {
        // SAFETY: no pointers.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })
            .map_err(|_| Error::from(ErrorKind::Unsupported))?;
        // SAFETY: a new mapping of a file that is open; the kernel chooses where.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(|| Error::from(ErrorKind::OutOfMemory))?;
        Ok(Ring { at, page })
    }

    fn control(&self) -> *const perf_event_mmap_page {
        self.at.as_ptr().cast_const().cast()
    }

    /// A position in the control page that the kernel and we both use.
    fn position(&self, field: *const u64) -> &AtomicU64 {
        // SAFETY: an aligned field of the mapped control page, which lives as long as the ring, and is
        // used by both sides with atomic accesses only.
        unsafe { AtomicU64::from_ptr(field.cast_mut()) }
    }

    /// How far the kernel has written, and how far we have read.
    fn bounds(&self) -> (u64, u64) {
        // SAFETY: within the mapped page; no reference is made.
        let (head, tail) = unsafe {
            (&raw const (*self.control()).data_head, &raw const (*self.control()).data_tail)
        };
        // Acquire: the records up to there are written (the kernel's side is in perf_output_put_handle).
        (self.position(head).load(Ordering::Acquire), self.position(tail).load(Ordering::Relaxed))
    }

    /// We have read up to there.
    fn release(&self, tail: u64) {
        // SAFETY: within the mapped page; no reference is made.
        let field = unsafe { &raw const (*self.control()).data_tail };
        // Release: our reads come before the kernel overwrites what was read.
        self.position(field).store(tail, Ordering::Release);
    }

    /// Eight bytes of a record. Records begin at multiples of eight, and so never break within these.
    fn word(&self, position: u64) -> u64 {
        let at = position as usize % self.page;
        // SAFETY: within the page of records, aligned, and not written by the kernel before it is
        // released.
        unsafe { self.at.add(self.page + at).cast::<u64>().read_volatile() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length, which nobody uses any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), 2 * self.page) };
    }
}

/// Sleeps until something is recorded, for so long at most.
pub(super) fn poll(sights: &[&Sight], timeout_ns: u64) {
    let mut files: Vec<libc::pollfd> = sights
        .iter()
        .map(|sight| libc::pollfd { fd: sight.file(), events: libc::POLLIN, revents: 0 })
        .collect();
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: both are live and as long as said. Errors, as a signal, end it early, which is allowed.
    unsafe {
        libc::ppoll(
            files.as_mut_ptr(),
            files.len() as libc::nfds_t,
            &raw const timeout,
            std::ptr::null(),
        );
    }
}

/// Files that are open, for a child after a fork, which has them and not the sights. By number, which is
/// small: two for each sight at most, and one.
static OPEN: [AtomicU32; FILES_MAX] = [const { AtomicU32::new(0) }; FILES_MAX];
const FILES_MAX: usize = 256;

fn remember(file: RawFd) {
    let number = file as u32 + 1;
    // With all places taken it stays open in a child, which is a waste and no more.
    let _ = OPEN.iter().find(|place| {
        place.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    });
}

fn forget(file: RawFd) {
    let number = file as u32 + 1;
    let _ = OPEN.iter().find(|place| {
        place.compare_exchange(number, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    });
}

/// In a child after a fork: closes the parent's files. (The mappings were not copied.)
pub(crate) fn close_after_fork() {
    for place in &OPEN {
        let number = place.swap(0, Ordering::Relaxed);
        if number != 0 {
            // SAFETY: a file of the parent's of which this child has a copy that nobody uses: the
            // thread that held the sight is not here.
            unsafe { libc::close(number as RawFd - 1) };
        }
    }
}

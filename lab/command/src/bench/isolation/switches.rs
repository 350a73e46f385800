//! Which threads took the CPU from a thread: the kernel's records of all context switches of that
//! CPU, read at the end.

use std::collections::BTreeMap;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_DUMMY, PERF_RECORD_LOST, PERF_RECORD_MISC_SWITCH_OUT,
    PERF_RECORD_MISC_SWITCH_OUT_PREEMPT, PERF_RECORD_SWITCH_CPU_WIDE, PERF_SAMPLE_TID,
    PERF_TYPE_SOFTWARE, perf_event_attr, perf_event_header, perf_event_mmap_page,
};
use perf_event_open_sys::{ioctls, perf_event_open};

/// The size of the record buffer: what the kernel permits every user to lock, without the header
/// page.
const BYTES: usize = 512 << 10;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 1 << 3;

/// A recording in progress.
pub(super) struct Recorder {
    page: *mut perf_event_mmap_page,
    size: usize,
    file: OwnedFd,
}

/// How a thread lost its CPU.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// Switches in which the thread gave the CPU up, or threads of its own process ran before it
    /// returned.
    pub(super) caused: u64,
    /// Switches to other processes only: their number by the id of the first thread.
    pub(super) others: BTreeMap<u32, u64>,
    /// The buffer was too small for all records.
    pub(super) is_incomplete: bool,
}

/// A record of a switch to or from a thread on a CPU, in the kernel's layout with the ids at the
/// end.
#[repr(C)]
#[derive(Clone, Copy)]
struct Switch {
    header: perf_event_header,
    /// The process that was switched to, or from.
    other_process: u32,
    other_thread: u32,
    process: u32,
    thread: u32,
}

// SAFETY: the shared pages are only read, and the file is only used to start and stop the
// recording.
unsafe impl Sync for Recorder {}

impl Recorder {
    /// Prepares to record the switches of `cpu`; `start` begins.
    pub(super) fn new(cpu: u32) -> Result<Self, Error> {
        let mut attr = perf_event_attr {
            size: size_of::<perf_event_attr>() as u32,
            type_: PERF_TYPE_SOFTWARE,
            config: u64::from(PERF_COUNT_SW_DUMMY),
            sample_type: u64::from(PERF_SAMPLE_TID),
            ..perf_event_attr::default()
        };
        attr.set_disabled(1);
        attr.set_context_switch(1);
        attr.set_sample_id_all(1);
        // SAFETY: the attributes are live and contain their size. The event covers every thread on
        // this CPU.
        let file = unsafe { perf_event_open(&raw mut attr, -1, cpu as i32, -1, CLOEXEC) };
        if file < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let size = rustix::param::page_size() + BYTES;
        let (access, share) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page =
            unsafe { libc::mmap(std::ptr::null_mut(), size, access, share, file.as_raw_fd(), 0) };
        if page == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Self { page: page.cast(), size, file })
    }

    /// Starts to record.
    pub(super) fn start(&self) {
        // SAFETY: the descriptor is a perf event; the request takes no argument.
        unsafe { ioctls::ENABLE(self.file.as_raw_fd(), 0) };
    }

    /// Stops to record.
    pub(super) fn stop(&self) {
        // SAFETY: the descriptor is a perf event; the request takes no argument.
        unsafe { ioctls::DISABLE(self.file.as_raw_fd(), 0) };
    }

    /// How a thread of this process lost its CPU during the recording.
    pub(super) fn losses_of(&self, thread: u32) -> Losses {
        // SAFETY: the page is mapped, and the kernel writes it.
        let head = unsafe { (&raw const (*self.page).data_head).read_volatile() };
        // The kernel writes the records before it advances `data_head`, so this fence must precede
        // reading them.
        fence(Ordering::Acquire);
        let written = usize::try_from(head).unwrap_or(BYTES).min(BYTES);
        // SAFETY: the records are behind the first page. The kernel does not overwrite them, since
        // `data_tail` never advances: it drops records that do not fit.
        let records = unsafe {
            std::slice::from_raw_parts(self.page.cast::<u8>().add(self.size - BYTES), written)
        };
        let mut losses = losses(records, std::process::id(), thread);
        // The kernel reports dropped records only when there is room again, so an almost full
        // buffer is treated as incomplete.
        losses.is_incomplete |= BYTES - written < 2 * size_of::<Switch>();
        losses
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // SAFETY: this value owns the whole mapping; no reference to it is left.
        unsafe { libc::munmap(self.page.cast(), self.size) };
    }
}

/// Evaluates the records for one thread.
fn losses(mut records: &[u8], process: u32, thread: u32) -> Losses {
    let mut reader = Reader { process, thread, away: None, losses: Losses::default() };
    while records.len() >= size_of::<perf_event_header>() {
        // SAFETY: enough bytes are available, and every bit pattern is valid.
        let header = unsafe { records.as_ptr().cast::<perf_event_header>().read_unaligned() };
        let size = usize::from(header.size);
        if size < size_of::<perf_event_header>() || size > records.len() {
            break;
        }
        if header.type_ == PERF_RECORD_LOST {
            reader.losses.is_incomplete = true;
        }
        if header.type_ == PERF_RECORD_SWITCH_CPU_WIDE && size >= size_of::<Switch>() {
            // SAFETY: as above.
            let switch = unsafe { records.as_ptr().cast::<Switch>().read_unaligned() };
            reader.see(&switch);
        }
        records = &records[size..];
    }
    reader.comes_back();
    reader.losses
}

/// Evaluates the records of a CPU in order.
struct Reader {
    process: u32,
    thread: u32,
    /// Set while the thread does not run on the CPU.
    away: Option<Away>,
    losses: Losses,
}

struct Away {
    first: u32,
    is_caused: bool,
}

impl Reader {
    fn see(&mut self, switch: &Switch) {
        let has = |mark: u32| u32::from(switch.header.misc) & mark != 0;
        let is_own = switch.other_process == self.process && switch.other_thread != self.thread;
        match (switch.thread == self.thread, has(PERF_RECORD_MISC_SWITCH_OUT)) {
            (true, true) => {
                let is_caused = is_own || !has(PERF_RECORD_MISC_SWITCH_OUT_PREEMPT);
                self.away = Some(Away { first: switch.other_thread, is_caused });
            }
            (true, false) => self.comes_back(),
            (false, true) => {
                if let Some(away) = &mut self.away {
                    away.is_caused |= is_own;
                }
            }
            (false, false) => {}
        }
    }

    fn comes_back(&mut self) {
        match self.away.take() {
            Some(away) if away.is_caused => self.losses.caused += 1,
            Some(away) => *self.losses.others.entry(away.first).or_default() += 1,
            None => {}
        }
    }
}

impl Losses {
    /// The other programs and the number of their switches; programs that still exist are named.
    pub(super) fn names_of_others(&self) -> String {
        let mut names: BTreeMap<String, u64> = BTreeMap::new();
        for (thread, count) in &self.others {
            let name = std::fs::read_to_string(format!("/proc/{thread}/comm"));
            let name = name.map_or_else(
                |_| "threads that have ended".to_owned(),
                |name| name.trim().to_owned(),
            );
            *names.entry(name).or_default() += count;
        }
        let each = names.iter().map(|(name, count)| format!("{name} {count}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: u16 = PERF_RECORD_MISC_SWITCH_OUT as u16;
    const PREEMPTED: u16 = OUT | PERF_RECORD_MISC_SWITCH_OUT_PREEMPT as u16;

    fn record(misc: u16, other: (u32, u32), thread: u32) -> Vec<u8> {
        let words = [other.0, other.1, 10, thread];
        let mut bytes = PERF_RECORD_SWITCH_CPU_WIDE.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend((size_of::<Switch>() as u16).to_ne_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn a_switch_is_caused_by_the_threads_that_ran_meanwhile() {
        let records = [
            // A thread of the same process takes the CPU.
            record(PREEMPTED, (10, 12), 11),
            record(0, (10, 12), 11),
            // The thread gives the CPU up.
            record(OUT, (0, 0), 11),
            record(0, (0, 0), 11),
            // Other processes take the CPU, twice.
            record(PREEMPTED, (70, 71), 11),
            record(0, (11, 10), 71),
            record(OUT, (10, 11), 71),
            record(0, (70, 71), 11),
            record(PREEMPTED, (70, 71), 11),
            record(0, (70, 71), 11),
            // Another process, then a thread of the same process.
            record(PREEMPTED, (80, 81), 11),
            record(OUT, (10, 12), 81),
            record(OUT, (10, 11), 12),
            record(0, (10, 12), 11),
            // The thread has not returned at the end.
            record(PREEMPTED, (80, 82), 11),
        ]
        .concat();
        let found = losses(&records, 10, 11);
        assert_eq!((found.caused, found.is_incomplete), (3, false));
        assert_eq!(found.others, BTreeMap::from([(71, 2), (82, 1)]));
        let cut = losses(&records[..records.len() - 1], 10, 11);
        assert_eq!(cut.others, BTreeMap::from([(71, 2)]));
    }
}

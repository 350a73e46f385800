//! Who took the CPU from a thread: the system's records of all switches of that CPU, read when it is over.

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

/// Bytes of records: what every user may lock, in pages, without the page before them.
const BYTES: usize = 512 << 10;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 1 << 3;

/// Records being written.
pub(super) struct Recorder {
    page: *mut perf_event_mmap_page,
    size: usize,
    file: OwnedFd,
}

/// How a thread lost its CPU.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// Of its own accord, or so that threads of its own process ran before it came back.
    pub(super) caused: u64,
    /// To others alone, by the numbers of the threads that came first.
    pub(super) others: BTreeMap<u32, u64>,
    /// There was no room for all of them.
    pub(super) is_incomplete: bool,
}

/// A switch to or from a thread on a CPU. As the system writes it, with the thread's numbers behind.
#[repr(C)]
#[derive(Clone, Copy)]
struct Switch {
    header: perf_event_header,
    /// To whom, or from whom.
    other_process: u32,
    other_thread: u32,
    process: u32,
    thread: u32,
}

// SAFETY: what is shared is read, and the file is told to start and to stop.
unsafe impl Sync for Recorder {}

impl Recorder {
    /// To record the switches of `cpu`, once it is started.
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
        // SAFETY: the attributes are live, and their size is in them; every thread, on this CPU.
        let file = unsafe { perf_event_open(&raw mut attr, -1, cpu as i32, -1, CLOEXEC) };
        if file < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: opened just now, by us.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let size = rustix::param::page_size() + BYTES;
        let (access, share) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, wherever the system likes.
        let page =
            unsafe { libc::mmap(std::ptr::null_mut(), size, access, share, file.as_raw_fd(), 0) };
        if page == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Self { page: page.cast(), size, file })
    }

    /// Starts to record.
    pub(super) fn start(&self) {
        // SAFETY: an event; no argument.
        unsafe { ioctls::ENABLE(self.file.as_raw_fd(), 0) };
    }

    /// Ends that.
    pub(super) fn stop(&self) {
        // SAFETY: an event; no argument.
        unsafe { ioctls::DISABLE(self.file.as_raw_fd(), 0) };
    }

    /// How a thread of this process has lost its CPU while that was recorded.
    pub(super) fn losses_of(&self, thread: u32) -> Losses {
        // SAFETY: mapped, and written by the system.
        let head = unsafe { (&raw const (*self.page).data_head).read_volatile() };
        // The records up to there were written before it.
        fence(Ordering::Acquire);
        let written = usize::try_from(head).unwrap_or(BYTES).min(BYTES);
        // SAFETY: the records are behind the first page, and nobody writes to these again: what has no room is
        // left out, as nothing was ever given back.
        let records = unsafe {
            std::slice::from_raw_parts(self.page.cast::<u8>().add(self.size - BYTES), written)
        };
        let mut losses = losses(records, std::process::id(), thread);
        // The system says that it has left something out when there is room again.
        losses.is_incomplete |= BYTES - written < 2 * size_of::<Switch>();
        losses
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // SAFETY: our mapping, in full; no reference to it is left.
        unsafe { libc::munmap(self.page.cast(), self.size) };
    }
}

/// What the records say of a thread.
fn losses(mut records: &[u8], process: u32, thread: u32) -> Losses {
    let mut reader = Reader { process, thread, away: None, losses: Losses::default() };
    while records.len() >= size_of::<perf_event_header>() {
        // SAFETY: as many bytes are there; every value is one of its.
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

/// Goes through the records of a CPU.
struct Reader {
    process: u32,
    thread: u32,
    /// While the thread does not run there.
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
    /// Who the others were, with how often: by name, as far as they are still there.
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
    fn who_came_says_whether_a_switch_was_caused() {
        let records = [
            // A thread of the process comes.
            record(PREEMPTED, (10, 12), 11),
            record(0, (10, 12), 11),
            // It goes of its own accord.
            record(OUT, (0, 0), 11),
            record(0, (0, 0), 11),
            // Others come, twice.
            record(PREEMPTED, (70, 71), 11),
            record(0, (11, 10), 71),
            record(OUT, (10, 11), 71),
            record(0, (70, 71), 11),
            record(PREEMPTED, (70, 71), 11),
            record(0, (70, 71), 11),
            // Behind another, one of the process.
            record(PREEMPTED, (80, 81), 11),
            record(OUT, (10, 12), 81),
            record(OUT, (10, 11), 12),
            record(0, (10, 12), 11),
            // It is still away at the end.
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

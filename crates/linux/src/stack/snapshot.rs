//! A thread's registers and the part of its stack that is in use, as copied by the thread itself.

use super::registers::{Registers, thread_pointer};

/// The maximum copied of a stack. A typical frame has some 100 bytes; of a thread with large arrays
/// on its stack, only the inner frames are shown.
pub(super) const STACK_MAX: usize = 64 * 1024;
const WORD: usize = size_of::<u64>();
/// The kernel copies a range that is described in pieces up to the first piece that it cannot read.
/// So pieces end at page boundaries; pieces of the smallest page size suit larger pages as well.
const PIECE: usize = 4096;
const PIECES: usize = STACK_MAX / PIECE + 1;

/// See the module.
pub(super) struct Snapshot {
    pub(super) registers: Registers,
    /// The address of the first copied word.
    start: usize,
    /// The number of copied words.
    len: usize,
    words: [u64; STACK_MAX / WORD],
}

impl Snapshot {
    pub(super) const fn new() -> Snapshot {
        Snapshot { registers: Registers::new(), start: 0, len: 0, words: [0; STACK_MAX / WORD] }
    }

    /// The word at this address, if it was copied.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address).ok()?.checked_sub(self.start)?;
        if offset % WORD != 0 {
            return None;
        }
        self.words[..self.len].get(offset / WORD).copied()
    }

    /// Copies the registers from a signal handler's context, and the calling thread's stack from
    /// their stack pointer on. Async-signal-safe, except that it changes `errno`.
    pub(super) fn fill(&mut self, context: &libc::ucontext_t) {
        self.registers = Registers::of(context);
        self.start = self.registers.stack_pointer() & !(WORD - 1);
        let mut end = self.start.saturating_add(STACK_MAX);
        // The C library puts a thread's control block at the end of its stack, except for the main
        // thread and for stacks that it did not make.
        let control_block = thread_pointer();
        if control_block > self.start {
            end = end.min(control_block);
        }
        self.len = self.copy_from(self.start..end) / WORD;
    }

    /// Copies the readable part of `range` from its start on. Returns the number of bytes.
    fn copy_from(&mut self, range: std::ops::Range<usize>) -> usize {
        const NONE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut pieces = [NONE; PIECES];
        let (mut at, mut count) = (range.start, 0);
        for piece in &mut pieces {
            if at >= range.end {
                break;
            }
            let end = range.end.min((at / PIECE + 1) * PIECE);
            piece.iov_base = std::ptr::with_exposed_provenance_mut(at);
            piece.iov_len = end - at;
            (at, count) = (end, count + 1);
        }
        let mut to = NONE;
        to.iov_base = self.words.as_mut_ptr().cast();
        to.iov_len = size_of_val(&self.words);
        // SAFETY: the kernel reads the pieces and writes to the words, which are live and of the
        // given length. It checks the addresses that it reads. The raw call, since a library's
        // wrapper may do more than the call.
        let copied = unsafe {
            libc::syscall(
                libc::SYS_process_vm_readv,
                // Not the process: without its main thread it has no memory in the system's view.
                libc::c_long::from(crate::thread::tid()),
                &raw const to,
                1_u64,
                pieces.as_ptr(),
                count as u64,
                0_u64,
            )
        };
        usize::try_from(copied).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::status_of;

    // Catches: stacks that are missing in a program whose main thread has left by pthread_exit.
    #[test]
    fn a_stack_is_copied_after_the_end_of_the_main_thread() {
        // SAFETY: the child's main thread ends, and then the child.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                // A child that hangs ends with its parent.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                std::thread::spawn(copy_without_main_thread);
                libc::syscall(libc::SYS_exit, 0);
            }
            child
        };
        assert_eq!(status_of(child), 0, "the words were not copied");
    }

    /// Ends the process, with 0 if words of this thread's stack are copied.
    fn copy_without_main_thread() {
        let process = std::process::id();
        let stat = format!("/proc/{process}/task/{process}/stat");
        let has_ended = |stat: String| stat.contains(") Z ");
        while !std::fs::read_to_string(&stat).is_ok_and(has_ended) {
            std::thread::yield_now();
        }
        let words = [7_u64; 64];
        let start = words.as_ptr().addr();
        let mut snapshot = Box::new(Snapshot::new());
        let copied = snapshot.copy_from(start..start + size_of_val(&words));
        let is_right = copied == size_of_val(&words) && snapshot.words[..64] == words;
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
}

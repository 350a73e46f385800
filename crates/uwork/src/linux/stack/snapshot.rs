//! A thread's registers and the part of its stack that is in use, as the thread itself has copied them.

use super::registers::{Registers, thread_pointer};

/// The most that is copied of a stack. A frame has some 100 bytes; who has large arrays on the stack is
/// seen in part.
pub(super) const STACK_MAX: usize = 64 * 1024;
const WORD: usize = size_of::<u64>();
/// The kernel copies a range that is described in pieces up to the first piece that it cannot read:
/// pieces end where pages may end. The least page size will do for the others.
const PIECE: usize = 4096;
const PIECES: usize = STACK_MAX / PIECE + 1;

/// See the module.
pub(super) struct Snapshot {
    pub(super) registers: Registers,
    /// Where the copied words were.
    start: usize,
    /// How many of them there are.
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

    /// Copies the registers from a signal handler's context, and the calling thread's stack from where they
    /// say that it begins. Async-signal-safe, but for `errno`.
    pub(super) fn fill(&mut self, context: &libc::ucontext_t) {
        self.registers = Registers::of(context);
        self.start = self.registers.stack_pointer() & !(WORD - 1);
        let mut end = self.start.saturating_add(STACK_MAX);
        // The C library puts a thread's control block at the end of its stack, but for the main thread
        // and for stacks that it did not make.
        let control_block = thread_pointer();
        if control_block > self.start {
            end = end.min(control_block);
        }
        self.len = self.copy_from(self.start..end) / WORD;
    }

    /// Copies what can be read of `range` from its start on. How many bytes that were.
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
        // SAFETY: the kernel reads the pieces and writes to the words, which are live and as long as said.
        // It checks what it reads. The raw call, since libraries may do more than call it.
        let copied = unsafe {
            libc::syscall(
                libc::SYS_process_vm_readv,
                libc::c_long::from(libc::getpid()),
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

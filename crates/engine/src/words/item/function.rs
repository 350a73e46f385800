//! An item's function in one word: a Rust function, which receives every [`Action`], or a function
//! of another language, which is only ever called to run the item.
//!
//! Foreign functions exist so that an item of a C program needs neither room for a second function
//! nor an intermediate call. The word of a Rust function has its highest bit set, which no address
//! in a process has. The word of a foreign function is its plain address, which the other language
//! may read.

use std::ptr::NonNull;

use crate::words::item::{Action, ItemName, Work, WorkFn};
use crate::words::sync::assert_nothing_held;

/// A function of another language. It receives the item.
///
/// # Safety (for callers)
/// As for [`WorkFn`], but it is called only to run the item. It must not unwind.
pub type ForeignFn = unsafe extern "C-unwind" fn(NonNull<Work>);

/// An item's function (see the module).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct ItemFn(*const ());

// SAFETY: a function's address, with a mark.
unsafe impl Send for ItemFn {}
// SAFETY: as above.
unsafe impl Sync for ItemFn {}

/// Calls a function of the program, which another language has compiled, and which must return. If
/// its thread is ended inside of it, or an exception of the other language leaves it, the process
/// ends with a message: the frames above cannot be unwound. A panic of Rust code passes.
#[inline(always)]
pub fn must_return<R>(function: impl FnOnce() -> R) -> R {
    let left = Left;
    let result = function();
    std::mem::forget(left);
    result
}

/// Dropped when a function did not return.
struct Left;

impl Drop for Left {
    #[cold]
    fn drop(&mut self) {
        // Otherwise the unwinding is none of Rust's. A panic meanwhile ends the process.
        assert!(
            std::thread::panicking(),
            "a function of the program did not return: it has ended its thread (pthread_exit, \
             pthread_cancel), or an exception has left it"
        );
    }
}

const RUST: usize = 1 << (usize::BITS - 1);

impl ItemFn {
    /// Sets the mark by an addition, which the compiler can evaluate for an item in a static: the
    /// linker fills the address in. No address in a process is so high that the sum would wrap.
    #[inline]
    pub(crate) const fn new(func: WorkFn) -> ItemFn {
        ItemFn((func as *const ()).wrapping_byte_add(RUST))
    }

    pub(crate) const fn foreign(func: ForeignFn) -> ItemFn {
        ItemFn(func as *const ())
    }

    /// The function as a number, for comparing and for [`ItemFn::from_identity`].
    #[inline]
    pub(crate) fn identity(self) -> usize {
        self.0.expose_provenance()
    }

    /// # Safety
    /// `identity` came from [`ItemFn::identity`] of an item's function.
    pub(crate) unsafe fn from_identity(identity: usize) -> ItemFn {
        ItemFn(std::ptr::with_exposed_provenance(identity))
    }

    /// Whether it is a function of another language: then the item has no destructor.
    pub(crate) fn is_foreign(self) -> bool {
        self.rust().is_none()
    }

    /// The address of its code.
    pub(crate) fn address(self) -> usize {
        self.0.addr() & !RUST
    }

    #[inline(always)]
    fn rust(self) -> Option<WorkFn> {
        if self.0.addr() & RUST == 0 {
            return None;
        }
        let func = self.0.map_addr(|address| address & !RUST);
        // SAFETY: a word with the mark was made by `new`, from such a function.
        Some(unsafe { std::mem::transmute::<*const (), WorkFn>(func) })
    }

    /// Runs the item.
    ///
    /// # Safety
    /// As of [`WorkFn`].
    #[inline(always)]
    pub(crate) unsafe fn run(self, work: NonNull<Work>) {
        match self.rust() {
            // SAFETY: by this function's contract.
            Some(func) => unsafe { func(work, Action::Run) },
            None => {
                // SAFETY: without the mark, it is a foreign function (`foreign`, or another
                // language's initialiser).
                let func = unsafe { std::mem::transmute::<*const (), ForeignFn>(self.0) };
                // SAFETY: by this function's contract.
                must_return(|| unsafe { func(work) });
            }
        }
    }

    /// Releases the item without running it. A foreign item has no count of holders, so nothing
    /// happens.
    ///
    /// # Safety
    /// As of [`WorkFn`].
    pub(crate) unsafe fn release(self, work: NonNull<Work>) {
        if let Some(func) = self.rust() {
            // SAFETY: by this function's contract.
            unsafe { func(work, Action::Release) };
        }
    }

    /// The name that the function gives itself; None for a foreign function.
    pub(crate) fn name(self) -> Option<ItemName> {
        assert_nothing_held("the name of an item's function");
        self.rust().and_then(ItemName::ask)
    }
}

//! The words of a pair of thread hooks: which threads are between the two calls, and whether the pair
//! is removed.
//!
//! A thread counts itself and then reads the mark; a remover sets the mark and then reads the count.
//! All four accesses are SeqCst, so the thread leaves without a call, or the remover waits for it:
//!
//! ```text
//! thread that begins                       remover
//! count += 1                               is_removed = true
//! is_removed ?                             count > 0 ?
//!   yes: count -= 1, no call                 yes: waits
//!   no: the start hook ... the stop hook     no: no thread calls a hook from now on
//! count -= 1: wakes a remover that waits
//! ```
//!
//! If the thread read the mark too early, and the remover the count too early, the remover would return,
//! and the program may unload the hooks' code while the thread calls it.

use crate::words::futex::Futex;
use crate::words::sync::{AtomicBool, AtomicU32, Ordering, const_unless_modelled};

/// Whose thread has called a start hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The library's: it stops when it is told to.
    Library,
    /// The program's: it stops at its end, or when it next runs items.
    Program,
}

/// See the module.
pub struct Hooked {
    is_removed: AtomicBool,
    /// The library's threads between the start hook and the end of the stop hook. A futex word.
    library: AtomicU32,
    /// The same of the program's threads.
    program: AtomicU32,
}

impl Hooked {
    const_unless_modelled! {
        /// Hooks that are not removed, and that no thread has called.
        pub fn new() -> Hooked {
            Hooked {
                is_removed: AtomicBool::new(false),
                library: AtomicU32::new(0),
                program: AtomicU32::new(0),
            }
        }
    }

    fn count(&self, of: Owner) -> &AtomicU32 {
        match of {
            Owner::Library => &self.library,
            Owner::Program => &self.program,
        }
    }

    /// Counts the calling thread, which is about to call the start hook. False if it must not, because
    /// the hooks are removed.
    #[must_use]
    pub fn enter(&self, of: Owner, futex: &impl Futex) -> bool {
        // SeqCst: see the module.
        self.count(of).fetch_add(1, Ordering::SeqCst);
        let may_call = !self.is_removed();
        if !may_call {
            self.leave(of, futex);
        }
        may_call
    }

    /// The calling thread calls neither hook any more.
    pub fn leave(&self, of: Owner, futex: &impl Futex) {
        let count = self.count(of);
        // SeqCst: before this read the count was changed, after it the remover's mark is seen.
        if count.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_removed() {
            futex.wake(count);
        }
    }

    /// Whether the hooks are removed.
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::SeqCst)
    }

    /// Removes the hooks. False if they were removed before.
    pub fn remove(&self) -> bool {
        // SeqCst: see the module.
        !self.is_removed.swap(true, Ordering::SeqCst)
    }

    /// How many such threads are between the two calls.
    pub fn inside(&self, of: Owner) -> u32 {
        self.count(of).load(Ordering::SeqCst)
    }

    /// Waits until no thread of the library's is between the two calls. The hooks are removed.
    pub fn wait(&self, futex: &impl Futex) {
        loop {
            match self.inside(Owner::Library) {
                0 => break,
                count => {
                    let _ = futex.wait(&self.library, count);
                }
            }
        }
        // Each wake is for a single thread: passed on to the next one.
        futex.wake(&raw const self.library);
    }

    /// In a forked child, in which only the calling thread is left: it counts itself again.
    pub fn forget_threads(&self) {
        // A load first, so that the child shares the page with its parent.
        for count in [&self.library, &self.program] {
            if count.load(Ordering::Relaxed) != 0 {
                count.store(0, Ordering::Relaxed);
            }
        }
    }

    /// In a forked child: the calling thread has called the start hook in the parent.
    pub fn count_again(&self, of: Owner) {
        self.count(of).fetch_add(1, Ordering::SeqCst);
    }
}

impl Default for Hooked {
    fn default() -> Hooked {
        Hooked::new()
    }
}

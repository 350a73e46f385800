//! The size of the stacks of the library's threads.
//!
//! By default it is the one that a plain thread gets from the C library: `ulimit -s` at the start of
//! the program. The size of a thread that runs items is the program's choice. Other threads of the
//! library have [`SERVICE`] bytes.
//!
//! The C library takes a thread's static data, the variables `__thread` of the program and its
//! libraries, from the stack. So each stack is larger by that data: what was chosen is for functions.

use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sizes that may be chosen: enough for the library's own frames, and what an address space has.
pub const STACK_SIZES: RangeInclusive<usize> = 128 << 10..=1 << 40;
/// The same as text.
pub const STACK_SIZES_TEXT: &str = "131072 (128K) to 1099511627776 (1024G) bytes";

/// The stack of a thread that runs no items: enough for a reporter of the program.
const SERVICE: usize = 2 << 20;

/// The chosen size; 0: none was chosen.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// Sets the size for threads that start from now on.
pub(crate) fn choose(size: usize) {
    CHOSEN.store(size, Ordering::Relaxed);
}

/// The size for a thread that runs items and starts now.
pub(crate) fn of_items() -> usize {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    let size = if chosen == 0 { default().max(rust_minimum()) } else { chosen };
    size.max(*STACK_SIZES.start()).saturating_add(static_data())
}

/// The size for any other thread.
pub fn of_service() -> usize {
    SERVICE + static_data()
}

/// Determines what later calls need, which take no lock of the dynamic linker's then.
pub(crate) fn look_up() {
    static_data();
}

/// At least the size of a thread's static data. 0 where the C library adds it itself: musl does.
///
/// The sum of what each object of the process has is for static programs, which have no `dlsym`. It lacks
/// what glibc holds ready for objects that are loaded later.
fn static_data() -> usize {
    type Minimum = unsafe extern "C" fn(*const libc::pthread_attr_t) -> libc::size_t;
    static SIZE: Known = Known::new();
    let measure = || {
        if !cfg!(target_env = "gnu") {
            return 0;
        }
        // SAFETY: the name is a string.
        let minimum =
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
        if minimum.is_null() {
            return of_objects();
        }
        // SAFETY: glibc's function of this name has this type.
        let minimum: Minimum = unsafe { std::mem::transmute(minimum) };
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        // SAFETY: the attributes are initialised, read and destroyed, in this order.
        unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            let size = minimum(attributes.as_ptr());
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            size
        }
    };
    // Once: a later `dlsym` would wait for a thread that loads an object, which may wait for an item.
    SIZE.get(measure)
}

/// A size that is determined by the first call. Not a `OnceLock`: a fork could find it half initialised,
/// and the child's first thread would wait for ever. Concurrent first calls determine it each.
struct Known(AtomicUsize);

impl Known {
    const fn new() -> Known {
        Known(AtomicUsize::new(usize::MAX))
    }

    fn get(&self, determine: impl FnOnce() -> usize) -> usize {
        let known = self.0.load(Ordering::Relaxed);
        if known != usize::MAX {
            return known;
        }
        let size = determine();
        self.0.store(size, Ordering::Relaxed);
        size
    }
}

/// The sum of the static data of all objects of the process, each with its alignment.
fn of_objects() -> usize {
    unsafe extern "C" fn add(
        object: *mut libc::dl_phdr_info,
        _: libc::size_t,
        sum: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the loader gives a live description with its headers; the sum is the caller's.
        let (headers, sum) = unsafe {
            let object = &*object;
            let count = usize::from(object.dlpi_phnum);
            (std::slice::from_raw_parts(object.dlpi_phdr, count), &mut *sum.cast::<usize>())
        };
        for header in headers.iter().filter(|header| header.p_type == libc::PT_TLS) {
            *sum += header.p_memsz as usize + header.p_align as usize;
        }
        0
    }
    let mut sum = 0_usize;
    // SAFETY: the function has the required type and gets a pointer to the sum.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut sum).cast()) };
    sum
}

/// The size of a thread that the C library creates without a choice. Glibc takes `ulimit -s` of the
/// program's start, and 2 MiB if that is unlimited.
fn default() -> usize {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut size = 0;
    // SAFETY: initialised, read and destroyed, in this order; the result is live.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) == 0 {
            libc::pthread_attr_getstacksize(attributes.as_ptr(), &raw mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
    }
    size
}

/// The least stack of the threads of a Rust program, `RUST_MIN_STACK`. 0 if it is not set. Read once, as
/// the standard library does: a program in C may change its environment later.
fn rust_minimum() -> usize {
    static MINIMUM: Known = Known::new();
    let read = || crate::environment::variable("RUST_MIN_STACK")?.to_str()?.parse().ok();
    MINIMUM.get(|| read().unwrap_or(0))
}

/// A permitted size: a number of bytes, or of the unit `K`, `M` or `G` that follows it.
pub(crate) fn parse(text: &str) -> Option<usize> {
    let units = [('K', 10), ('M', 20), ('G', 30)];
    let unit = units.iter().find_map(|&(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let size = number.parse::<usize>().ok().filter(|_| is_number)?.checked_mul(1 << shift)?;
    STACK_SIZES.contains(&size).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_data_is_that_of_all_objects_at_least() {
        let sum = of_objects();
        assert!(sum > 0, "this program has variables of threads");
        // The alignments in the sum are at most a page for each object.
        assert!(static_data() + (1 << 20) > sum && static_data() < sum + (1 << 20));
    }

    #[test]
    fn a_choice_is_for_threads_that_run_items() {
        choose(64 << 20);
        assert_eq!(of_items(), (64 << 20) + static_data());
        assert_eq!(of_service(), SERVICE + static_data());
        choose(0);
    }

    // Catches: a lock that the child of a fork finds taken.
    #[test]
    fn a_size_that_another_thread_determines_makes_no_thread_wait() {
        let known = Known::new();
        let outer = known.get(|| known.get(|| 5) + 1);
        assert_eq!((outer, known.get(|| 7)), (6, 6));
    }

    #[test]
    fn sizes_have_units() {
        let read = ["131072", "128K", "64M", "1024G", "1099511627776"].map(parse);
        assert_eq!(read, [128 << 10, 128 << 10, 64 << 20, 1 << 40, 1 << 40].map(Some));
        let refused = [
            "",
            "0",
            "131071",
            "127K",
            "1025G",
            "8 M",
            "8m",
            "8MB",
            "+8M",
            "K",
            "99999999999999999999",
        ];
        assert_eq!(refused.map(parse), [None; 11]);
    }
}

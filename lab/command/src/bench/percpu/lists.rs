//! A free list in each CPU's part, without a lock and under the lock. An operation pops or pushes
//! one object.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::time::{Duration, Instant};

use uwork::percpu::PerCpu;
use uwork_capi::{
    uw_percpu_cpus, uw_percpu_create, uw_percpu_lock, uw_percpu_lock_local, uw_percpu_unlock,
};
use uwork_rivals::alloc::{BareLists, SpinLock};

use super::allocators::Timed;

/// Objects in a list.
const OBJECTS: usize = 256;
/// Objects that are popped in a row before they are pushed back, because a thread usually keeps
/// several.
const RUN: usize = 200;
const ROUNDS: usize = 20_000;

/// A link to the next free object, stored in the object itself.
struct List(*mut Object);

#[repr(align(64))]
struct Object(*mut Object);

// SAFETY: the list owns its objects.
unsafe impl Send for List {}

impl List {
    fn new() -> Self {
        let objects = Vec::leak((0..OBJECTS).map(|_| Object(ptr::null_mut())).collect());
        let mut list = Self(ptr::null_mut());
        objects.iter_mut().for_each(|object| list.push(object));
        list
    }

    #[inline(always)]
    fn pop(&mut self) -> *mut Object {
        let object = self.0;
        // SAFETY: the list holds more objects than are ever taken.
        self.0 = unsafe { (*object).0 };
        object
    }

    #[inline(always)]
    fn push(&mut self, object: *mut Object) {
        // SAFETY: a live object that is in no list.
        unsafe { (*object).0 = self.0 };
        self.0 = object;
    }
}

/// Without a lock, valid for one thread only.
pub(super) fn bare() -> Timed {
    let lists = BareLists::new(|_| List::new());
    // SAFETY: one thread, and one reference at a time.
    measure(|| unsafe { lists.here() }.pop(), |object| unsafe { lists.here() }.push(object))
}

/// Under the cheapest possible lock, used by one thread.
pub(super) fn bare_locked() -> Timed {
    let lists = BareLists::new(|_| (SpinLock::default(), List::new()));
    measure(
        || {
            // SAFETY: one thread, and one reference at a time, here and below.
            let (lock, list) = unsafe { lists.here() };
            lock.with(|| list.pop())
        },
        |object| {
            // SAFETY: as above.
            let (lock, list) = unsafe { lists.here() };
            lock.with(|| list.push(object));
        },
    )
}

/// Under `lock_local`.
pub(super) fn locked() -> Timed {
    let lists = PerCpu::new(|_| List::new());
    measure(
        || lists.lock_local().expect("no holder panics").pop(),
        |object| lists.lock_local().expect("no holder panics").push(object),
    )
}

/// The same through the C interface: two calls for each object, as in a shared library.
pub(super) fn locked_through_c() -> Timed {
    let lists = uw_percpu_create(size_of::<List>());
    // SAFETY: `lists` is a valid handle, here and below.
    for cpu in 0..unsafe { uw_percpu_cpus(lists) } {
        // SAFETY: a block is large enough for a list.
        unsafe {
            let list = uw_percpu_lock(lists, cpu);
            list.cast::<List>().write(List::new());
            uw_percpu_unlock(lists, list);
        }
    }
    // Hides the functions from the compiler, so that they are not inlined.
    let lock = black_box(uw_percpu_lock_local as unsafe extern "C" fn(_) -> *mut c_void);
    let unlock = black_box(uw_percpu_unlock as unsafe extern "C" fn(_, _) -> _);
    let with = |object: Option<*mut Object>| {
        // SAFETY: the lock is held, and the block contains a list.
        unsafe {
            let block = lock(lists);
            let list = &mut *block.cast::<List>();
            let popped = match object {
                Some(object) => {
                    list.push(object);
                    object
                }
                None => list.pop(),
            };
            unlock(lists, block);
            popped
        }
    };
    measure(
        || with(None),
        |object| {
            with(Some(object));
        },
    )
}

/// The fastest round counts, because it was not interrupted.
fn measure(pop: impl Fn() -> *mut Object, push: impl Fn(*mut Object)) -> Timed {
    let mut taken = [ptr::null_mut(); RUN];
    let mut round = || {
        let start = Instant::now();
        for place in &mut taken {
            *place = pop();
        }
        black_box(&mut taken);
        for &object in &taken {
            push(object);
        }
        start.elapsed()
    };
    // Reading the clock takes longer than an operation, so ten rounds are timed together.
    let mut ten = || (0..10).map(|_| round()).sum::<Duration>();
    let fastest = (0..ROUNDS / 10).map(|_| ten()).min().expect("some rounds");
    (fastest, 10 * 2 * RUN as u64)
}

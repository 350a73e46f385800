//! Native pools through `shim.cpp`: oneTBB, Asio, GLib and libuv.
//!
//! Each library provides three functions of the same types, so one adapter serves all.

use std::ffi::{c_int, c_void};

use crate::catalogue::Rival;
use crate::load::{Load, Pool, Producer, Sample, measure};
use crate::progress::Progress;

type Function = extern "C" fn(*mut c_void);

/// A pool's three functions.
#[derive(Clone, Copy)]
struct Shim {
    create: unsafe extern "C" fn(workers: c_int, function: Function) -> *mut c_void,
    submit: unsafe extern "C" fn(pool: *mut c_void, argument: *mut c_void),
    destroy: unsafe extern "C" fn(pool: *mut c_void),
}

unsafe extern "C" {
    fn uwork_tbb_create(workers: c_int, function: Function) -> *mut c_void;
    fn uwork_tbb_submit(pool: *mut c_void, argument: *mut c_void);
    fn uwork_tbb_destroy(pool: *mut c_void);
    fn uwork_asio_create(workers: c_int, function: Function) -> *mut c_void;
    fn uwork_asio_submit(pool: *mut c_void, argument: *mut c_void);
    fn uwork_asio_destroy(pool: *mut c_void);
    fn uwork_glib_create(workers: c_int, function: Function) -> *mut c_void;
    fn uwork_glib_submit(pool: *mut c_void, argument: *mut c_void);
    fn uwork_glib_destroy(pool: *mut c_void);
    fn uwork_uv_create(workers: c_int, function: Function) -> *mut c_void;
    fn uwork_uv_submit(pool: *mut c_void, argument: *mut c_void);
    fn uwork_uv_destroy(pool: *mut c_void);
}

const TBB: Shim =
    Shim { create: uwork_tbb_create, submit: uwork_tbb_submit, destroy: uwork_tbb_destroy };
const ASIO: Shim =
    Shim { create: uwork_asio_create, submit: uwork_asio_submit, destroy: uwork_asio_destroy };
const GLIB: Shim =
    Shim { create: uwork_glib_create, submit: uwork_glib_submit, destroy: uwork_glib_destroy };
const UV: Shim =
    Shim { create: uwork_uv_create, submit: uwork_uv_submit, destroy: uwork_uv_destroy };

pub(crate) fn catalogue() -> Vec<Rival> {
    vec![
        Rival::pool("tbb", |workers, load| run(TBB, workers, load)),
        Rival::pool("asio", |workers, load| run(ASIO, workers, load)),
        Rival::pool("glib", |workers, load| run(GLIB, workers, load)),
        // libuv has one pool per process, whose size is fixed at its first use.
        Rival::pool("libuv", |workers, load| run(UV, workers, load)).never_ordered(),
    ]
}

fn run(shim: Shim, workers: usize, load: &Load) -> Sample {
    measure(|| Native::new(shim, workers), load)
}

struct Native {
    shim: Shim,
    pool: *mut c_void,
}

// SAFETY: the shim's `submit` may be called from any thread (shim.cpp documents that for each
// pool), and `destroy` is called only on drop.
unsafe impl Sync for Native {}

impl Native {
    fn new(shim: Shim, workers: usize) -> Self {
        let workers = c_int::try_from(workers).expect("a number of CPUs");
        // SAFETY: `create` only requires a positive number of workers.
        let pool = unsafe { (shim.create)(workers, complete) };
        assert!(!pool.is_null(), "the native pool starts");
        Self { shim, pool }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: the pool came from `create` of the same shim and is destroyed only here.
        unsafe { (self.shim.destroy)(self.pool) };
    }
}

extern "C" fn complete(argument: *mut c_void) {
    // SAFETY: the argument is the `&'static Progress` that `submit` passed.
    let progress: &'static Progress = unsafe { &*argument.cast::<Progress>() };
    progress.complete();
}

struct Submitter<'a> {
    native: &'a Native,
    progress: &'static Progress,
}

impl Pool for Native {
    type Producer<'a> = Submitter<'a>;

    fn producer<'a>(&'a self, progress: &'static Progress, _outstanding: usize) -> Submitter<'a> {
        Submitter { native: self, progress }
    }
}

impl Producer for Submitter<'_> {
    #[inline]
    unsafe fn submit(&mut self, _index: usize) {
        let argument = std::ptr::from_ref(self.progress).cast_mut().cast();
        // SAFETY: the pool is alive as long as `native` is borrowed, and may be used from any
        // thread.
        unsafe { (self.native.shim.submit)(self.native.pool, argument) };
    }
}

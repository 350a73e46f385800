//! Functions that run on one CPU or on every CPU, and the sets of CPUs.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use uwork::foreign::must_return;
use uwork::topology::Machine;

use crate::attrs::{cpu_of, write_cpus};
use crate::error::{Written, done, fail, failed, guard, misuse};

/// A function of the program, with its argument.
struct Call<F> {
    func: F,
    arg: *mut c_void,
}

// SAFETY: by uwork.h the function runs on another thread, with that argument.
unsafe impl<F> Send for Call<F> {}
// SAFETY: by uwork.h several calls run at the same time.
unsafe impl<F> Sync for Call<F> {}

/// A function that runs on one CPU.
pub type UwCpuFn = Option<unsafe extern "C-unwind" fn(*mut c_void) -> c_long>;
/// A function that runs on each CPU.
pub type UwEachCpuFn = Option<unsafe extern "C-unwind" fn(c_int, *mut c_void)>;

/// Runs a function on a CPU and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_on_cpu(
    cpu: c_int,
    func: UwCpuFn,
    arg: *mut c_void,
    result: *mut c_long,
) -> c_int {
    let (cpu, func) = match cpu_of(cpu).and_then(|cpu| Ok((cpu, given(func)?))) {
        Ok(both) => both,
        Err(code) => return code,
    };
    let call = Call { func, arg };
    guard(|| {
        let call = &call;
        // SAFETY: by uwork.h.
        match uwork::work_on_cpu(cpu, move || must_return(|| unsafe { (call.func)(call.arg) })) {
            Ok(value) => {
                // SAFETY: null, or a valid place for the result (uwork.h).
                if let Some(result) = unsafe { result.as_mut() } {
                    *result = value;
                }
                0
            }
            Err(error) => failed(&error),
        }
    })
}

/// Runs a function on each CPU and waits until all calls have returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_on_each_cpu(func: UwEachCpuFn, arg: *mut c_void) -> c_int {
    let func = match given(func) {
        Ok(func) => func,
        Err(code) => return code,
    };
    let call = Call { func, arg };
    guard(|| {
        let call = &call;
        // SAFETY: by uwork.h.
        let calls = move |cpu| must_return(|| unsafe { (call.func)(cpu as c_int, call.arg) });
        done(uwork::on_each_cpu(calls))
    })
}

pub(crate) fn given<F>(func: Option<F>) -> Result<F, c_int> {
    func.ok_or_else(|| misuse(libc::EINVAL, "the function is NULL"))
}

const ALLOWED: c_uint = 0;
const POSSIBLE: c_uint = 1;
const ISOLATED: c_uint = 2;

/// A set of the machine's CPUs, as a mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_cpus(which: c_uint, mask: *mut c_ulong, bytes: usize) -> c_int {
    guard(|| {
        let machine = match Machine::read() {
            Ok(machine) => machine,
            Err(error) => return fail(libc::EIO, error.to_string()),
        };
        let cpus = match which {
            ALLOWED => &machine.allowed,
            POSSIBLE => machine.topology.possible(),
            ISOLATED => machine.topology.isolated(),
            _ => {
                let text = format!("{} is not a set of CPUs; see uwork.h", Written(which));
                return fail(libc::EINVAL, text);
            }
        };
        // SAFETY: by uwork.h.
        unsafe { write_cpus(cpus, mask, bytes) }
    })
}

/// The NUMA node of a CPU.
#[unsafe(no_mangle)]
pub extern "C" fn uw_cpu_node(cpu: c_int) -> c_int {
    guard(|| {
        let (machine, cpu) = match (Machine::read(), cpu_of(cpu)) {
            (Ok(machine), Ok(cpu)) => (machine, cpu),
            (Err(error), _) => return fail(libc::EIO, error.to_string()),
            (_, Err(code)) => return code,
        };
        match machine.topology.cpu(cpu) {
            Some(found) => found.node as c_int,
            None => fail(libc::EINVAL, format!("CPU {cpu} does not exist")),
        }
    })
}

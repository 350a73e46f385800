//! Filters of system calls: calls that the kernel, or a sandbox, may refuse.

use std::io::Error;
use std::mem::offset_of;

const ALL_THREADS: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_TSYNC;

/// Makes the system refuse a call with this error, to all threads of this process, from now on.
pub(crate) fn refuse(call: libc::c_long, errno: i32) {
    install(&[jump_unless_call(call, 1), refusal(errno), allowance()], ALL_THREADS);
}

/// As [`refuse`], to the calling thread only.
pub(crate) fn refuse_here(call: libc::c_long, errno: i32) {
    install(&[jump_unless_call(call, 1), refusal(errno), allowance()], 0);
}

/// As [`refuse`], where the low half of an argument has this value.
pub(crate) fn refuse_where(call: libc::c_long, argument: usize, value: u32, errno: i32) {
    let low = usize::from(cfg!(target_endian = "big")) * size_of::<u32>();
    let at = offset_of!(libc::seccomp_data, args) + argument * size_of::<u64>() + low;
    let filter = [
        jump_unless_call(call, 3),
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32),
        jump_unless(value, 1),
        refusal(errno),
        allowance(),
    ];
    install(&filter, ALL_THREADS);
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn jump_unless(value: u32, over: u8) -> libc::sock_filter {
    let equal = statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value);
    libc::sock_filter { jf: over, ..equal }
}

/// A comparison with the number of the call, which is loaded.
fn jump_unless_call(call: libc::c_long, over: u8) -> libc::sock_filter {
    jump_unless(call as u32, over)
}

fn refusal(errno: i32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32)
}

fn allowance() -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW)
}

/// Installs a filter that begins by loading the number of the call.
fn install(rest: &[libc::sock_filter], flags: libc::c_ulong) {
    let number = offset_of!(libc::seccomp_data, nr) as u32;
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number)];
    filter.extend_from_slice(rest);
    let program =
        libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_mut_ptr() };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program is live and has the given length.
    let outcome = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    assert_eq!(outcome, 0, "{}", Error::last_os_error());
}

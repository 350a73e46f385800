//! A sandbox that refuses the copy of the stack.

use std::sync::mpsc::channel;

use super::{PATIENT, start, until_it_sleeps, within};
use crate::stack::of_thread_within;

/// Makes the system refuse `process_vm_readv` to the calling thread from now on.
fn refuse_the_copy() {
    const NUMBER: u32 = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let wanted = libc::SYS_process_vm_readv as u32;
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER),
        libc::sock_filter {
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, wanted)
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program =
        libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_mut_ptr() };
    // SAFETY: the program is live and of the given length; both calls are for the calling thread
    // only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn without_the_copy_the_innermost_frame_is_known() {
    let ((tell, told), (ready, is_ready)) = (channel::<()>(), channel());
    let (number, thread) = start(move || {
        refuse_the_copy();
        ready.send(()).unwrap();
        told.recv().unwrap_err();
    });
    is_ready.recv().unwrap();
    until_it_sleeps(number);
    let frames = of_thread_within(number, &within(PATIENT)).expect("an answer");
    let mut places: Vec<_> = frames.iter().map(|frame| frame.address).collect();
    places.dedup();
    // On processors with a link register, the caller's frame is known too, as long as the innermost
    // function has called nothing else.
    let most = if cfg!(target_arch = "aarch64") { 2 } else { 1 };
    assert!(places[0] != 0 && places.len() <= most, "{frames:#?}");
    drop(tell);
    thread.join().unwrap();
}

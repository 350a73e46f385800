//! What stays when the command has ended.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::observed::until;
use crate::strangers::{COMMAND, scene};

/// Gives the calling process an empty /proc.
fn hide_proc() -> io::Result<()> {
    let (kind, place) = (c"tmpfs".as_ptr(), c"/proc".as_ptr());
    // SAFETY: the strings are static.
    let is_hidden = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(kind, place, kind, libc::MS_RDONLY, std::ptr::null()) == 0
    };
    if is_hidden { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// Catches: the child that reads for the command, and holds the other end of its own requests for ever.
#[test]
fn without_proc_the_child_of_the_command_ends_with_it() {
    scene("left_behind::without_proc_the_child_of_the_command_ends_with_it", || {
        // A process whose parent has ended becomes a child of this one.
        // SAFETY: numbers only.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }, 0);
        let mut command = Command::new(COMMAND);
        // SAFETY: the function makes two system calls.
        unsafe { command.arg("doctor").pre_exec(hide_proc) };
        let output = command.output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(said.contains("this machine\n"), "{said}");
        let next_end = || {
            // SAFETY: no structure is given.
            match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
                0 => Err("it has not ended"),
                number => Ok(number),
            }
        };
        let ends = [(); 2].map(|()| until(next_end, |_| true));
        assert!(ends[0] > 0 && ends[1] == -1, "the child, and no other process: {ends:?}");
    });
}

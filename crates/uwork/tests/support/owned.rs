//! Processes and folders that end with the test, also if the test fails or its process is killed.
//!
//! Only the standard library and libc are used: several crates include this file by its path.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes the kernel kill the command's process when the calling *thread* ends: call it in the
/// thread that also waits for the process.
pub(crate) fn dies_with_this_thread(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    // SAFETY: only these system calls are made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // The parent may have ended before the call.
            if libc::getppid().cast_unsigned() != parent {
                libc::_exit(1);
            }
            Ok(())
        })
    }
}

/// A process that is killed when this is dropped, and when the thread that has started it ends.
#[derive(Debug)]
pub(crate) struct Owned(Option<Child>);

impl Owned {
    #[track_caller]
    pub(crate) fn spawn(command: &mut Command) -> Owned {
        Owned(Some(dies_with_this_thread(command).spawn().expect("the program is installed")))
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        // Fails only if it has ended.
        let _ = self.deref_mut().kill();
        let _ = self.deref_mut().wait();
    }

    /// The status of a process that has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.deref_mut().try_wait().expect("it is a child of this process")
    }

    /// Waits for the end, and returns what the process has written to its pipes.
    pub(crate) fn output(mut self) -> Output {
        self.0.take().expect("a process").wait_with_output().expect("the pipes are open")
    }
}

impl Deref for Owned {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("a process")
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("a process")
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.kill();
        }
    }
}

/// Runs a command to its end, as [`Command::output`], but it dies with the calling thread.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = Owned::spawn(command).output();
    // The reason of such an end is on no pipe.
    assert_ne!(output.status.signal(), Some(libc::SIGKILL), "{command:?} was killed");
    output
}

/// The folder of this process in the system's folder for temporary files. A process of its own
/// removes it when this process has ended.
fn folder_of_process() -> &'static Path {
    /// Reads until this process has ended, which closes the pipe. The children of this process may
    /// be writing for a moment longer.
    const REMOVE: &str = "trap '' HUP INT TERM
        cat
        for turn in 1 2 3 4 5; do rm -rf \"$1\" && exit; sleep 1; done";
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("uwork-test-{}", std::process::id()));
        // Left by a killed process of this number whose remover was killed too.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("the folder for temporary files is writable");
        let mut remover = Command::new("sh");
        remover.args(["-c", REMOVE, "sh"]).arg(&folder).process_group(0);
        remover.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // It gets no other descriptor, and must not die with the thread that starts it.
        let remover = remover.spawn().expect("a shell");
        // The pipe stays open until the process ends.
        std::mem::forget(remover);
        folder
    })
}

/// An empty folder. It is removed when this is dropped, and when the process has ended.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let folder = folder_of_process().join(name);
        std::fs::create_dir(&folder).expect("the folder of this process is writable");
        Folder(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in this folder, as text.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A child that is killed a moment later may be writing: then it is removed at the end.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An end of a named pipe, both for reading and for writing: it never blocks in `open`, and the
/// other side sees the end of the file when this process has ended.
pub(crate) fn pipe_at(path: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::ffi::OsStrExt;
    let mut name = path.as_os_str().as_bytes().to_vec();
    name.push(0);
    // SAFETY: the name ends with a zero byte.
    if unsafe { libc::mkfifo(name.as_ptr().cast(), 0o600) } != 0 {
        return Err(io::Error::last_os_error());
    }
    std::fs::File::options().read(true).write(true).open(path)
}

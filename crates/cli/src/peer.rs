//! The process at the other end of a socket, as the kernel knows it. What that process says of itself
//! is believed only if it is the same.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::OnceLock;

use rustix::process::geteuid;

use crate::exchange::Fault;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) process: u32,
    /// When it started, in ticks since the machine started: another process may get the same number
    /// later.
    started: u64,
}

/// The process that has opened the listener. Its number, if the socket's name has one, and its user
/// must be those of a living process: the credentials are from the call of `listen`, and another
/// process may have got the number since. A user believes own processes and those of root; root
/// believes those of all users.
pub(crate) fn of(stream: &UnixStream, named: Option<u32>) -> Result<Peer, Fault> {
    let credentials = credentials(stream)?;
    let user = geteuid();
    let (process, owner) = (credentials.pid, credentials.uid);
    if !user.is_root() && owner != user.as_raw() && owner != 0 {
        return Err(Fault::Stranger(format!("process {process} of user {owner} listens here")));
    }
    // The numbers of another namespace mean other processes here.
    let process = u32::try_from(process).ok().filter(|&process| process != 0).ok_or_else(|| {
        Fault::Stranger("a process of another PID namespace listens here".to_owned())
    })?;
    if let Some(named) = named.filter(|&named| named != process) {
        return Err(Fault::Stranger(format!("process {process} listens here, not {named}")));
    }
    if !is_proc_ours() {
        return Err(Fault::Stranger(format!("{NO_PROC}, to see which process listens")));
    }
    // A child may have the listener of a process that has ended.
    let status = status(process).filter(|_| is_alive(process)).ok_or(Fault::Ended)?;
    // A process that gives up root's rights later is believed as before.
    if owner != 0 && owner != status.user {
        return Err(Fault::Stranger(format!(
            "process {process} is of user {}, and user {owner} listens here",
            status.user
        )));
    }
    Ok(Peer { process, started: started(process).unwrap_or(0) })
}

/// Says what is missing without [`is_proc_ours`].
pub(crate) const NO_PROC: &str = "/proc of this PID namespace is needed";

/// Whether /proc shows the processes of this PID namespace. Else each number in it is that of another
/// process, and nothing is read there.
pub(crate) fn is_proc_ours() -> bool {
    static IS_OURS: OnceLock<bool> = OnceLock::new();
    *IS_OURS.get_or_init(|| {
        let own = fs::read_link("/proc/self");
        own.is_ok_and(|own| own == Path::new(&std::process::id().to_string()))
    })
}

/// Why a process that is not alive cannot be looked into.
pub(crate) fn ended(process: u32) -> String {
    match status(process) {
        // It waits for its parent.
        Some(_) => format!("process {process} has ended"),
        None => format!("there is no process {process}"),
    }
}

/// The effective user of a process. None: it has ended, or /proc does not show it.
pub(crate) fn user_of(process: u32) -> Option<u32> {
    Some(status(process).filter(|_| is_proc_ours())?.user)
}

/// The number of a process in its own PID namespace, by which it calls itself.
pub(crate) fn own_number(process: u32) -> Option<u32> {
    Some(status(process)?.own_number)
}

pub(crate) fn credentials(stream: &UnixStream) -> Result<libc::ucred, Fault> {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (file, option) = (stream.as_raw_fd(), libc::SO_PEERCRED);
    // SAFETY: the structure is live and of the given length.
    let outcome = unsafe {
        let place = (&raw mut peer).cast();
        libc::getsockopt(file, libc::SOL_SOCKET, option, place, &raw mut length)
    };
    if outcome == 0 { Ok(peer) } else { Err(std::io::Error::last_os_error().into()) }
}

/// The text of a file in /proc. The names of processes and files in it may be any bytes: those that are
/// no UTF-8 become U+FFFD.
pub(crate) fn read_text(path: &str) -> std::io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Facts of /proc/PID/status.
struct Status {
    /// The effective user.
    user: u32,
    own_number: u32,
}

/// None: the process has ended.
fn status(process: u32) -> Option<Status> {
    status_in(&read_text(&format!("/proc/{process}/status")).ok()?)
}

fn status_in(text: &str) -> Option<Status> {
    // The name of the process comes first, and has its newlines escaped.
    let words = |title: &str| {
        Some(text.lines().find_map(|line| line.strip_prefix(title))?.split_whitespace())
    };
    // The numbers of a process, from those of this namespace to those of its own. Kernels without
    // namespaces have no such line.
    let own_number = words("NSpid:").or_else(|| words("Pid:"))?.next_back()?.parse().ok()?;
    Some(Status { user: words("Uid:")?.nth(1)?.parse().ok()?, own_number })
}

/// The fields of /proc/PID/stat behind the name, which may have spaces and parentheses. None: the
/// process has ended.
fn fields(process: u32) -> Option<Vec<String>> {
    fields_of(&format!("/proc/{process}"))
}

fn fields_of(folder: &str) -> Option<Vec<String>> {
    let text = read_text(&format!("{folder}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split_whitespace().map(str::to_owned).collect())
}

fn started(process: u32) -> Option<u64> {
    fields(process)?.get(19)?.parse().ok()
}

/// Whether the process exists, and is no zombie. If only its first thread has ended, it lives. True
/// without [`is_proc_ours`]: nothing is known then.
pub(crate) fn is_alive(process: u32) -> bool {
    !is_proc_ours()
        || fields(process).is_some_and(|fields| {
            let has_threads =
                || fields.get(17).and_then(|it| it.parse().ok()).is_some_and(|it: u32| it > 1);
            fields.first().is_some_and(|it| !"ZX".contains(&**it)) || has_threads()
        })
}

/// Whether all threads of the process have ended, or end: only then does the end of the process close
/// its connections. False without [`is_proc_ours`].
pub(crate) fn is_ending(process: u32) -> bool {
    // PF_EXITING, in the flags that every user may read.
    const EXITING: u64 = 4;
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let fields = |thread: fs::DirEntry| fields_of(thread.path().to_str()?);
    let ends = |fields: Vec<String>| {
        let flags = fields.get(6).and_then(|flags| flags.parse::<u64>().ok());
        flags.is_some_and(|flags| flags & EXITING != 0)
    };
    is_proc_ours() && threads.filter_map(fields).all(ends)
}

/// Whether a signal or a debugger has stopped the process.
pub(crate) fn is_stopped(process: u32) -> bool {
    let folder = format!("/proc/{process}");
    is_proc_ours() && (is_in(&folder, "Tt") || is_stopped_behind_its_first_thread(process))
}

/// The first thread of a process may have ended before the others.
fn is_stopped_behind_its_first_thread(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut threads = threads.filter_map(|thread| thread.path().to_str().map(str::to_owned));
    is_in(&format!("/proc/{process}"), "Z") && threads.any(|thread| is_in(&thread, "Tt"))
}

/// Whether the state in the file `stat` of a process or thread is one of these letters.
fn is_in(folder: &str, states: &str) -> bool {
    let state = fields_of(folder).and_then(|fields| fields.into_iter().next());
    state.is_some_and(|state| states.contains(&*state))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn this_process_is_known_by_its_number_and_user() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let own = std::process::id();
        let peer = of(&ours, Some(own)).unwrap();
        assert_eq!((peer.process, of(&ours, None).unwrap()), (own, peer));
        assert!(peer.started > 0 && own_number(own) == Some(own));
        let other = of(&ours, Some(own + 1)).unwrap_err();
        assert!(matches!(other, Fault::Stranger(why) if why.contains("listens here, not")));
        assert!(is_alive(own) && !is_stopped(own));
        assert!(!is_alive(99_999_998) && !is_stopped(99_999_998));
    }

    /// A child of this process whose first thread has ended. It ends with the pipe that keeps it.
    fn child_without_its_first_thread() -> (u32, std::io::PipeWriter) {
        let (kept, keeps) = std::io::pipe().unwrap();
        let (told, tells) = std::io::pipe().unwrap();
        // SAFETY: the child has this thread alone, and uses none of the program's locks but that of the
        // allocator, which its library takes over.
        match unsafe { libc::fork() } {
            0 => {
                drop((keeps, told));
                std::thread::spawn(move || {
                    let _ = (&tells).write(b"1");
                    let _ = (&kept).read(&mut [0]);
                    // SAFETY: no pointers.
                    unsafe { libc::_exit(0) }
                });
                // SAFETY: ends this thread alone.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
                unreachable!("the thread has ended");
            }
            child => {
                drop(tells);
                (&told).read_exact(&mut [0]).unwrap();
                (u32::try_from(child).expect("fork"), keeps)
            }
        }
    }

    #[test]
    fn a_process_lives_as_long_as_one_of_its_threads() {
        let (child, keeps) = child_without_its_first_thread();
        let number = child as libc::pid_t;
        while !is_in(&format!("/proc/{child}"), "Z") {
            std::thread::yield_now();
        }
        assert!(is_alive(child) && !is_stopped(child) && !is_ending(child));
        let mut status = 0;
        // SAFETY: the child is ours and was not waited for.
        unsafe {
            assert_eq!(libc::kill(number, libc::SIGSTOP), 0);
            assert_eq!(libc::waitpid(number, &raw mut status, libc::WUNTRACED), number);
        }
        assert!(is_stopped(child));
        // SAFETY: as before.
        unsafe {
            assert_eq!(libc::kill(number, libc::SIGCONT), 0);
            drop(keeps);
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let ended = libc::WEXITED | libc::WNOWAIT;
            assert_eq!(libc::waitid(libc::P_PID, child, &raw mut info, ended), 0);
        }
        assert!(!is_alive(child) && is_ending(child), "a zombie");
        // SAFETY: as before.
        assert_eq!(unsafe { libc::waitpid(number, &raw mut status, 0) }, number);
    }

    #[test]
    fn the_user_is_the_effective_one_and_the_number_that_of_the_innermost_namespace() {
        let text = "Name:\tNSpid:\t9\nPid:\t70\nNSpid:\t70\t12\t1\nUid:\t7\t8\t9\t8\n";
        let status = status_in(text).unwrap();
        assert_eq!((status.user, status.own_number), (8, 1));
        assert_eq!(status_in("Pid:\t70\nUid:\t7\t8\t9\t8\n").unwrap().own_number, 70);
        assert!(status_in("Name:\tx\n").is_none());
    }
}

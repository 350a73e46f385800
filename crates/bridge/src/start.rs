//! Starts processes with an empty signal mask. A start by the standard library keeps the mask of its
//! thread, here a worker that blocks nearly all signals: a shell would wait for ever for the end of a
//! child. Its hook between fork and exec would make each start slower: it copies the tables of the
//! memory, which posix_spawn does not.

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, ErrorKind, PipeReader};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, WaitOptions, waitpid};

/// The standard streams: input, output, errors.
const STANDARD: [libc::c_int; 3] = [0, 1, 2];

/// A process that leads a group of its own, and the ends of the pipes that it writes to.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: Pid,
    pub(crate) out: PipeReader,
    pub(crate) err: PipeReader,
}

/// Starts the program of the first word, which is searched in PATH, with this standard input and these
/// variables beside those of the process. It has no signal blocked, SIGPIPE ends it, and it leads a
/// process group.
pub(crate) fn start<'a>(
    words: impl Iterator<Item = &'a OsStr>,
    variables: &[(&str, &[u8])],
    input: OwnedFd,
) -> io::Result<Started> {
    let words =
        words.map(|word| c_string(word.as_bytes().to_vec())).collect::<io::Result<Vec<_>>>()?;
    let Some(program) = words.first() else { return Err(ErrorKind::InvalidInput.into()) };
    let variables = environment(variables)?;
    let (out, to_out) = io::pipe()?;
    let (err, to_err) = io::pipe()?;
    let ends = [input, to_out.into(), to_err.into()].map(above_standard);
    let [input, to_out, to_err] = ends;
    let ends = [input?, to_out?, to_err?];
    let (mut actions, attributes) = (Actions::new()?, Attributes::new()?);
    for (end, number) in ends.iter().zip(STANDARD) {
        actions.duplicate(end, number)?;
    }
    let (words, variables) = (pointers(&words), pointers(&variables));
    let mut pid = 0;
    // SAFETY: the strings are live and end with 0, both lists with a null pointer. The system reads
    // them only, and the actions and attributes, which are initialized.
    check(unsafe {
        libc::posix_spawnp(
            &raw mut pid,
            program.as_ptr(),
            actions.0.as_ptr(),
            attributes.0.as_ptr(),
            words.as_ptr(),
            variables.as_ptr(),
        )
    })?;
    let pid = Pid::from_raw(pid).ok_or(ErrorKind::Other)?;
    Ok(Started { pid, out, err })
}

/// Waits for the end of a child, and reaps it.
pub(crate) fn reap(pid: Pid) -> io::Result<ExitStatus> {
    loop {
        match waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(ExitStatus::from_raw(status.as_raw())),
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn check(number: libc::c_int) -> io::Result<()> {
    if number == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(number)) }
}

fn c_string(bytes: Vec<u8>) -> io::Result<CString> {
    let text = "nul byte found in provided data";
    CString::new(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidInput, text))
}

fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    strings.iter().map(|string| string.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
}

/// The variables of the process, with these in the place of those of the same names.
fn environment(own: &[(&str, &[u8])]) -> io::Result<Vec<CString>> {
    let joined = |name: &[u8], value: &[u8]| c_string([name, b"=", value].concat());
    let is_own = |name: &OsString| own.iter().any(|(other, _)| name == other);
    let inherited = std::env::vars_os().filter(|(name, _)| !is_own(name));
    let inherited = inherited.map(|(name, value)| joined(&name.into_vec(), &value.into_vec()));
    inherited.chain(own.iter().map(|(name, value)| joined(name.as_bytes(), value))).collect()
}

/// A process that was started without a standard stream gets the next file under its number, and the
/// first of the duplicates would replace it.
fn above_standard(end: OwnedFd) -> io::Result<OwnedFd> {
    if STANDARD.contains(&end.as_raw_fd()) { Ok(fcntl_dupfd_cloexec(&end, 3)?) } else { Ok(end) }
}

/// What the child does before it executes the program. It stays at its address.
struct Actions(Box<MaybeUninit<libc::posix_spawn_file_actions_t>>);

impl Actions {
    fn new() -> io::Result<Actions> {
        let mut actions = Box::new(MaybeUninit::uninit());
        // SAFETY: initializes the structure.
        check(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
        Ok(Actions(actions))
    }

    fn duplicate(&mut self, from: &OwnedFd, to: libc::c_int) -> io::Result<()> {
        let (actions, from) = (self.0.as_mut_ptr(), from.as_raw_fd());
        // SAFETY: the structure is initialized.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(actions, from, to) })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: it is initialized, and used no more.
        unsafe { libc::posix_spawn_file_actions_destroy(self.0.as_mut_ptr()) };
    }
}

/// A new process group, no signal blocked, and SIGPIPE with its default action: programs in Rust
/// ignore it.
struct Attributes(Box<MaybeUninit<libc::posix_spawnattr_t>>);

impl Attributes {
    fn new() -> io::Result<Attributes> {
        let mut attributes = Box::new(MaybeUninit::uninit());
        // SAFETY: initializes the structure.
        check(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
        let mut made = Attributes(attributes);
        let at = made.0.as_mut_ptr();
        let flags = libc::POSIX_SPAWN_SETPGROUP
            | libc::POSIX_SPAWN_SETSIGMASK
            | libc::POSIX_SPAWN_SETSIGDEF;
        let mut set = MaybeUninit::uninit();
        // SAFETY: the structure is initialized and has not moved; the set is live, and is emptied before
        // it is read.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            check(libc::posix_spawnattr_setsigmask(at, set.as_ptr()))?;
            libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
            check(libc::posix_spawnattr_setsigdefault(at, set.as_ptr()))?;
            check(libc::posix_spawnattr_setpgroup(at, 0))?;
            // Three bits.
            check(libc::posix_spawnattr_setflags(at, flags as libc::c_short))?;
        }
        Ok(made)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: it is initialized, and used no more.
        unsafe { libc::posix_spawnattr_destroy(self.0.as_mut_ptr()) };
    }
}

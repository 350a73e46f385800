//! Programs that close every descriptor, and then open files of their own.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::io::Error;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::time::Duration;

use uwork::Queue;

use super::tiers::BLOCKED;
use super::until;

/// The first descriptor that is not standard input or output.
const FIRST: RawFd = 3;

/// How a program closes all descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CloseAll {
    /// By one call, `close_range`.
    AtOnce,
    /// By one call for each.
    OneByOne,
}

/// The open descriptors from 3 on. Opens one meanwhile, which is not among them.
pub(crate) fn open_descriptors() -> Vec<RawFd> {
    loop {
        match listed() {
            Ok(listed) => {
                return listed
                    .into_iter()
                    .filter(|&number| number >= FIRST && is_open(number))
                    .collect();
            }
            // A thread that opens and closes a file may be preempted between the two. If all are closed
            // meanwhile, it closes the folder, which has got the number of its file.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
            Err(error) => panic!("the files of this process: {error}"),
        }
    }
}

/// The numbers in /proc/self/fd. The standard library would panic if the folder is closed meanwhile.
fn listed() -> std::io::Result<Vec<RawFd>> {
    // SAFETY: the path is a string of C, and the folder is used by this function alone.
    unsafe {
        let folder = libc::opendir(c"/proc/self/fd".as_ptr());
        if folder.is_null() {
            return Err(Error::last_os_error());
        }
        let mut numbers = Vec::new();
        let outcome = loop {
            *libc::__errno_location() = 0;
            let Some(entry) = libc::readdir(folder).as_ref() else {
                let error = Error::last_os_error();
                break if error.raw_os_error() == Some(0) { Ok(()) } else { Err(error) };
            };
            let name = CStr::from_ptr(entry.d_name.as_ptr()).to_str().expect("a number");
            numbers.extend(name.parse::<RawFd>());
        };
        libc::closedir(folder);
        outcome.map(|()| numbers)
    }
}

/// Whether a number is that of an open file. Opens none.
pub(crate) fn is_open(number: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

impl CloseAll {
    /// Closes every descriptor from 3 on. Returns those that were open.
    pub(crate) fn run(self) -> Vec<RawFd> {
        let open = open_descriptors();
        // SAFETY: no owner of a descriptor in the test uses it later.
        let close = |number| _ = unsafe { libc::close(number) };
        match self {
            // SAFETY: as above.
            CloseAll::AtOnce => assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0),
            CloseAll::OneByOne => open.iter().copied().for_each(close),
        }
        open
    }
}

/// Files of the program: each kind that the library has, and more.
pub(crate) struct Files(Vec<File>);

struct File {
    number: RawFd,
    kind: Kind,
    /// `None` if it was closed at once.
    inode: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Socket,
    Pipe,
    Eventfd,
    Epoll,
    Memory,
}

const KINDS: [Kind; 5] = [Kind::Socket, Kind::Eventfd, Kind::Pipe, Kind::Epoll, Kind::Memory];
const TEXT: &[u8] = b"precious";

fn inode_of(number: RawFd) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure is live, and filled if the call succeeds.
    unsafe { (libc::fstat(number, stat.as_mut_ptr()) == 0).then(|| stat.assume_init().st_ino) }
}

/// A failure is found as damage later.
fn write_text(number: RawFd) {
    // SAFETY: the text is live.
    unsafe { libc::write(number, TEXT.as_ptr().cast(), TEXT.len()) };
}

/// Makes the main thread the owner of a file's signals, as programs do that observe themselves.
fn own_signals(number: RawFd) {
    const F_SETOWN_EX: libc::c_int = 15;
    // SAFETY: no arguments; cannot fail.
    let owner: [libc::pid_t; 2] = [0, unsafe { libc::getpid() }];
    // SAFETY: the owner is live. A failure is found as damage later.
    unsafe { libc::fcntl(number, F_SETOWN_EX, owner.as_ptr()) };
}

impl Kind {
    /// New descriptors of this kind: the file, and others that it needs.
    fn open(self) -> [RawFd; 2] {
        let mut pair = [-1; 2];
        let stream = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
        // SAFETY: the pair and the name are live.
        unsafe {
            match self {
                Kind::Socket => {
                    assert_eq!(libc::socketpair(libc::AF_UNIX, stream, 0, pair.as_mut_ptr()), 0);
                    write_text(pair[1]);
                }
                Kind::Pipe => {
                    assert_eq!(libc::pipe2(pair.as_mut_ptr(), libc::O_NONBLOCK), 0);
                    write_text(pair[1]);
                }
                Kind::Eventfd => {
                    pair[0] = libc::eventfd(7, libc::EFD_NONBLOCK);
                    own_signals(pair[0]);
                }
                Kind::Epoll => pair[0] = libc::epoll_create1(0),
                Kind::Memory => {
                    pair[0] = libc::memfd_create(c"own".as_ptr(), 0);
                    write_text(pair[0]);
                }
            }
        }
        assert!(pair[0] >= 0);
        pair
    }
}

impl File {
    fn new(number: RawFd, kind: Kind) -> File {
        File { number, kind, inode: inode_of(number) }
    }

    /// What has become of it, if it is not as it was.
    fn damage(&self) -> Option<String> {
        let File { number, kind, inode } = *self;
        if inode.is_none() || inode_of(number) != inode {
            return Some(format!("{kind:?} {number} was closed or replaced"));
        }
        let mut text = [0_u8; 16];
        // SAFETY: the buffer is live and of the given length.
        let read = unsafe {
            match kind {
                Kind::Memory => libc::pread(number, text.as_mut_ptr().cast(), text.len(), 0),
                _ => libc::read(number, text.as_mut_ptr().cast(), text.len()),
            }
        };
        let content = &text[..usize::try_from(read).unwrap_or(0)];
        let wanted = match kind {
            Kind::Socket | Kind::Pipe | Kind::Memory => TEXT,
            Kind::Eventfd => &7_u64.to_ne_bytes(),
            Kind::Epoll => &[],
        };
        (content != wanted).then(|| format!("{kind:?} {number} contains {content:?}"))
    }
}

impl Files {
    /// Opens some files, which get the lowest numbers, and then one under each of `numbers`. `rotation`
    /// changes the kind that each gets.
    pub(crate) fn open(numbers: &[RawFd], rotation: usize) -> Files {
        let mut files = Vec::new();
        for kind in KINDS.into_iter().cycle().take(3 * KINDS.len()) {
            let [number, other] = kind.open();
            files.push(File::new(number, kind));
            if other >= 0 && kind == Kind::Socket {
                // An end of its own. Nothing is in it.
                files.push(File::new(other, Kind::Epoll));
            }
        }
        let taken: Vec<RawFd> = files.iter().map(|file| file.number).collect();
        let is_free = |number: &RawFd| !taken.contains(number) && !is_open(*number);
        let free: BTreeSet<RawFd> = numbers.iter().copied().filter(is_free).collect();
        for (place, number) in free.into_iter().enumerate() {
            let kind = KINDS[(place + rotation) % KINDS.len()];
            let [new, _] = kind.open();
            if new != number {
                // SAFETY: both numbers are the test's, or the second is another thread's for an
                // instant, which is what is tested.
                unsafe {
                    // Busy while another thread opens a file that gets the number.
                    while libc::dup2(new, number) != number
                        && Error::last_os_error().raw_os_error() == Some(libc::EBUSY)
                    {
                    }
                    libc::close(new);
                }
            }
            files.push(File::new(number, kind));
        }
        Files(files)
    }

    /// Asserts that each is open under its number, and that nothing was read from it or written to
    /// it; closes them.
    #[track_caller]
    pub(crate) fn are_intact(self) {
        assert_eq!(self.close(), [] as [String; 0]);
    }

    /// Closes them. Returns what has become of those that are not as they were.
    pub(crate) fn close(self) -> Vec<String> {
        let damage: Vec<String> = self.0.iter().filter_map(File::damage).collect();
        // SAFETY: the test's own.
        self.0.iter().for_each(|file| _ = unsafe { libc::close(file.number) });
        damage
    }
}

/// Waits until every other thread of the process sleeps. No system call closes a descriptor on a
/// condition: a thread that is preempted between the check of a number and its close would close a
/// file that gets the number just then. A thread that sleeps is not between the two.
pub(crate) fn until_at_rest() {
    // SAFETY: no arguments; cannot fail.
    let own = unsafe { libc::gettid() }.to_string();
    let sleeps = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("a thread");
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        entry.file_name() == *own || stat.contains(") S ")
    };
    until("every other thread sleeps", || {
        fs::read_dir("/proc/self/task").expect("the threads").all(sleeps)
    });
}

/// Items that sleep undeclared, so that their workers are observed. Opens no file: a guarded wait
/// reads some, whose numbers another thread of the test may close.
pub(crate) fn sleep_undeclared(queue: &Queue) {
    for _ in 0..BLOCKED {
        // tidy: allow(test-sleep): a worker that blocks without saying so is what is observed
        queue.execute(|| std::thread::sleep(Duration::from_millis(2))).unwrap();
    }
    queue.flush().unwrap();
}

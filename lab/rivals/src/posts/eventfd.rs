//! The usual solution in event loops: a locked list for each thread, and an eventfd in its epoll
//! set, written when the list becomes non-empty.

use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Course, Token, Way};

struct Mailbox {
    tokens: Mutex<Vec<Token>>,
    eventfd: OwnedFd,
    epoll: OwnedFd,
}

/// See the module.
pub struct Eventfd(Vec<Mailbox>);

fn owned(fd: i32) -> OwnedFd {
    assert!(fd >= 0, "no descriptor: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new, and owned here.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

impl Mailbox {
    fn new() -> Mailbox {
        // SAFETY: the calls take no pointers.
        let (eventfd, epoll) = unsafe {
            (
                owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)),
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)),
            )
        };
        // Edge-triggered, so the eventfd need not be read.
        let mut event =
            libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: both descriptors and the event are live.
        let added = unsafe {
            libc::epoll_ctl(
                epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                eventfd.as_raw_fd(),
                &raw mut event,
            )
        };
        assert_eq!(added, 0, "an eventfd can be polled");
        Mailbox { tokens: Mutex::default(), eventfd, epoll }
    }

    fn ring(&self) {
        let one = 1_u64;
        // SAFETY: the buffer is live. The write cannot fail, because the counter never reaches its
        // maximum.
        unsafe { libc::write(self.eventfd.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

impl Eventfd {
    /// Mailboxes for `threads` threads.
    pub fn new(threads: usize) -> Eventfd {
        Eventfd((0..threads).map(|_| Mailbox::new()).collect())
    }
}

impl Way for Eventfd {
    type Parcel = Token;

    fn parcel(self: &Arc<Self>, token: Token, _: &Arc<Course>) -> Token {
        token
    }

    fn enter(&self, _: usize) {}

    fn post(&self, to: usize, token: Token) {
        let mailbox = &self.0[to];
        let mut tokens = mailbox.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let first = tokens.is_empty();
        tokens.push(token);
        drop(tokens);
        if first {
            mailbox.ring();
        }
    }

    fn turn(&self, at: usize, course: &Course) {
        let own = &self.0[at];
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: the buffer has room for one event. An early return is allowed.
        unsafe { libc::epoll_wait(own.epoll.as_raw_fd(), &raw mut event, 1, -1) };
        let tokens = mem::take(&mut *own.tokens.lock().unwrap_or_else(PoisonError::into_inner));
        for mut token in tokens {
            if let Some(next) = course.arrive(&mut token) {
                self.post(next, token);
            }
        }
    }

    fn call(&self, to: usize) {
        self.0[to].ring();
    }
}

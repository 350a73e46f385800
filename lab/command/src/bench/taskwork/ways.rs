//! The ways of uwork to post: a delivery, and a call that the threads wait in.

use std::cell::RefCell;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use uwork::ring::Reactor;
use uwork::task::{self, Delivery, Notify, TaskHandle, TaskItem, TaskWork};
use uwork_rivals::posts::{Course, Token, Way};

/// The call that the threads wait in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Computing,
    Futex,
    Epoll,
    Ring,
    Read,
}

/// See the module.
pub(super) struct TaskWay {
    wait: Wait,
    delivery: Delivery,
    threads: Vec<OnceLock<TaskHandle>>,
}

/// The resources of a thread's wait.
enum Means {
    None,
    Epoll(OwnedFd),
    Ring(Box<Reactor>),
    /// The write end is kept open, so that the read does not end by itself.
    Read(PipeReader, #[allow(dead_code, reason = "keeps the pipe open")] PipeWriter),
}

thread_local! {
    static MEANS: RefCell<Means> = const { RefCell::new(Means::None) };
}

/// A token in its work item.
pub(super) struct Hop {
    work: TaskWork<Hop>,
    token: Token,
    way: Arc<TaskWay>,
    course: Arc<Course>,
}

uwork::has_task_work!(impl HasTaskWork for Hop { work });

impl TaskItem for Hop {
    type Pointer = Pin<Box<Hop>>;

    fn run(mut this: Pin<Box<Hop>>) {
        // SAFETY: the item is not moved.
        let hop = unsafe { this.as_mut().get_unchecked_mut() };
        if let Some(next) = hop.course.arrive(&mut hop.token) {
            let way = hop.way.clone();
            way.post(next, this);
        }
    }
}

impl TaskWay {
    pub(super) fn new(threads: usize, wait: Wait, delivery: Delivery) -> TaskWay {
        TaskWay { wait, delivery, threads: (0..threads).map(|_| OnceLock::new()).collect() }
    }

    fn handle(&self, at: usize) -> &TaskHandle {
        self.threads[at].get().expect("all threads have entered")
    }

    fn means(&self) -> Means {
        match self.wait {
            Wait::Computing | Wait::Futex => Means::None,
            Wait::Epoll => Means::Epoll(self.epoll()),
            Wait::Ring => {
                Means::Ring(Box::new(Reactor::builder().build().expect("io_uring is allowed")))
            }
            Wait::Read => {
                let (reader, writer) = std::io::pipe().expect("two descriptors");
                Means::Read(reader, writer)
            }
        }
    }

    fn epoll(&self) -> OwnedFd {
        // SAFETY: the calls take no pointers, and the new descriptors are owned here.
        let epoll = unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            assert!(epoll >= 0, "no descriptor");
            OwnedFd::from_raw_fd(epoll)
        };
        if self.delivery == Delivery::Light {
            let notifier = task::notifier().expect("an eventfd");
            let mut event =
                libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
            let fd = notifier.as_fd().as_raw_fd();
            // SAFETY: both descriptors and the event are live.
            let added = unsafe {
                libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event)
            };
            assert_eq!(added, 0, "an eventfd can be polled");
        }
        epoll
    }

    fn wait_in_epoll(&self, epoll: &OwnedFd) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }];
        if self.delivery == Delivery::Light {
            let notifier = task::notifier().expect("an eventfd");
            notifier.wait_for_edge(|| {
                // SAFETY: the buffer has room for one event. An early return is allowed.
                unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), 1, -1) }
            });
        } else {
            let event = events.as_mut_ptr().expose_provenance();
            let arguments = [epoll.as_raw_fd() as usize, event, 1, usize::MAX, 0, 8];
            // SAFETY: as above.
            let _ = unsafe { task::syscall(libc::SYS_epoll_pwait, arguments) };
        }
    }
}

/// Computes for a microsecond, then yields. There are more threads than CPUs, and a post to a
/// thread that waits for a CPU would measure the scheduler.
fn compute() {
    for _ in 0..25 {
        std::hint::spin_loop();
    }
    std::thread::yield_now();
}

impl Way for TaskWay {
    type Parcel = Pin<Box<Hop>>;

    fn parcel(self: &Arc<Self>, token: Token, course: &Arc<Course>) -> Pin<Box<Hop>> {
        let (way, course) = (self.clone(), course.clone());
        Box::pin(Hop { work: TaskWork::new(), token, way, course })
    }

    fn enter(&self, at: usize) {
        task::set_delivery(self.delivery).expect("a signal is free");
        MEANS.set(self.means());
        self.threads[at].set(TaskHandle::current()).expect("each thread enters once");
    }

    fn post(&self, to: usize, hop: Pin<Box<Hop>>) {
        // Refused only after the course.
        let _ = self.handle(to).add(hop, Notify::Signal);
    }

    fn turn(&self, _: usize, _: &Course) {
        MEANS.with_borrow_mut(|means| match means {
            Means::None if self.wait == Wait::Computing => compute(),
            Means::None => _ = task::park(),
            Means::Epoll(epoll) => self.wait_in_epoll(epoll),
            Means::Ring(reactor) => {
                reactor.wait(None).expect("a wait on the thread's own ring");
                while reactor.next().is_some() {}
            }
            Means::Read(reader, _) => {
                let mut byte = [0_u8; 1];
                let arguments = [
                    reader.as_raw_fd() as usize,
                    byte.as_mut_ptr().expose_provenance(),
                    1,
                    0,
                    0,
                    0,
                ];
                // SAFETY: the byte is live. The read only ever ends by an interruption.
                let _ = unsafe { task::syscall(libc::SYS_read, arguments) };
            }
        });
        task::safe_point();
    }

    fn call(&self, to: usize) {
        let _ = self.handle(to).add_fn(Notify::Signal, || ());
    }

    fn leave(&self, _: usize) {
        MEANS.set(Means::None);
    }
}

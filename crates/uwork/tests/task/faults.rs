//! Task work where the system refuses its means: signals, io_uring, messages between rings. Each
//! scene is a process of its own.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};

use crate::support::child::{alone, limit};
use crate::support::filter::refuse_here;
use crate::support::{received, until, watchdog, within};
use uwork::task::{self, Delivery, Notify, TaskHandle};

/// A thread that waits for task work, in any way, until the process ends.
fn target(
    delivery: Delivery,
    make: impl FnOnce() -> Box<dyn FnMut()> + Send + 'static,
) -> TaskHandle {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        task::set_delivery(delivery).unwrap();
        let mut wait = make();
        send.send(TaskHandle::current()).unwrap();
        loop {
            wait();
        }
    });
    receive.recv().unwrap()
}

/// Adds an item, which sends a message when it has run.
fn add(handle: &TaskHandle) -> Receiver<()> {
    let (send, receive) = channel();
    handle.add_fn(Notify::Signal, move || send.send(()).unwrap()).unwrap();
    receive
}

/// A thread in a read that only task work ends. It is asleep in the read once `is_asleep` returns
/// true.
struct Reader {
    handle: TaskHandle,
    thread: libc::pid_t,
}

impl Reader {
    fn new() -> Reader {
        let (send, receive) = channel();
        let handle = target(Delivery::Auto, move || {
            // SAFETY: no arguments; cannot fail.
            send.send(unsafe { libc::gettid() }).unwrap();
            read_of_nothing()
        });
        let reader = Reader { handle, thread: receive.recv().unwrap() };
        assert_eq!(received(&add(&reader.handle)), Ok(()));
        until("it is asleep in the read", || reader.is_asleep());
        reader
    }

    fn is_asleep(&self) -> bool {
        let call = std::fs::read_to_string(format!("/proc/self/task/{}/syscall", self.thread));
        let number = libc::SYS_read.to_string();
        call.is_ok_and(|call| call.split(' ').next() == Some(&number))
    }
}

/// A wait in a read that only task work ends.
fn read_of_nothing() -> Box<dyn FnMut()> {
    let (reader, writer) = std::io::pipe().unwrap();
    Box::new(move || {
        let _open = &writer;
        let mut byte = [0_u8; 1];
        let buffer = byte.as_mut_ptr().expose_provenance();
        let arguments = [reader.as_raw_fd() as usize, buffer, 1, 0, 0, 0];
        // SAFETY: the buffer is live and has the given length.
        let _ = unsafe { task::syscall(libc::SYS_read, arguments) };
        task::safe_point();
    })
}

// Catches: an item that is dropped, an adder that hangs or panics, a target that is never notified
// again.
#[test]
fn a_full_queue_of_signals_delays_items_and_loses_none() {
    alone("a_full_queue_of_signals_delays_items_and_loses_none", || {
        let _watchdog = watchdog();
        let reader = Reader::new();
        limit(libc::RLIMIT_SIGPENDING, 0);
        // The target cannot be notified: the adders return all the same, and the items stay in the
        // list.
        let ran = Arc::new(AtomicU32::new(0));
        for _ in 0..3 {
            let ran = ran.clone();
            let count = move || _ = ran.fetch_add(1, Ordering::Relaxed);
            reader.handle.add_fn(Notify::Signal, count).unwrap();
        }
        assert_eq!(ran.load(Ordering::Relaxed), 0, "the read cannot end");
        // The queue has room again: the next adder notifies the target, which runs all items.
        limit(libc::RLIMIT_SIGPENDING, u64::MAX);
        assert_eq!(received(&add(&reader.handle)), Ok(()));
        assert_eq!(ran.load(Ordering::Relaxed), 3, "first in, first out");
    });
}

// Catches: an adder that gives up at once.
#[test]
fn a_queue_of_signals_that_is_full_for_a_moment_is_waited_for() {
    alone("a_queue_of_signals_that_is_full_for_a_moment_is_waited_for", || {
        let _watchdog = watchdog();
        let Reader { handle, .. } = Reader::new();
        limit(libc::RLIMIT_SIGPENDING, 0);
        let adds = Arc::new(AtomicBool::new(false));
        let begun = adds.clone();
        let adder = std::thread::spawn(move || {
            begun.store(true, Ordering::Release);
            received(&add(&handle))
        });
        until("the adder adds", || adds.load(Ordering::Acquire));
        limit(libc::RLIMIT_SIGPENDING, u64::MAX);
        assert_eq!(within("the item runs", move || adder.join().unwrap()), Ok(()));
    });
}

// Catches: a failed signal that is taken for sent, so that no later adder sends another.
#[test]
fn a_signal_refused_to_one_adder_is_sent_by_the_next() {
    alone("a_signal_refused_to_one_adder_is_sent_by_the_next", || {
        let _watchdog = watchdog();
        let Reader { handle, .. } = Reader::new();
        let to = handle.clone();
        let first = within("the refused adder", move || {
            refuse_here(libc::SYS_rt_tgsigqueueinfo, libc::EPERM);
            add(&to)
        });
        assert_eq!(received(&add(&handle)), Ok(()));
        assert_eq!(first.try_recv(), Ok(()), "first in, first out");
    });
}

// Catches: a panic, and a thread that cannot use task work afterwards.
#[test]
fn without_descriptors_the_error_names_them_and_other_waits_work() {
    // No watchdog and no guarded wait: without files they cannot read how long threads wait for a
    // CPU. The process that started this one ends it if it hangs.
    alone("without_descriptors_the_error_names_them_and_other_waits_work", || {
        limit(libc::RLIMIT_NOFILE, 3);
        let error = task::notifier().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
        {
            let error = uwork::ring::Reactor::builder().build().unwrap_err();
            assert!(error.to_string().contains("Too many open files"), "{error}");
        }
        let handle = target(Delivery::Light, || Box::new(|| _ = task::park()));
        assert_eq!(add(&handle).recv(), Ok(()));
        limit(libc::RLIMIT_NOFILE, 64);
        assert!(task::notifier().is_ok());
    });
}

mod ring {
    use std::io::{Error, ErrorKind};
    use std::net::{TcpListener, TcpStream};

    use crate::support::child::alone_each;
    use crate::support::filter::{refuse, refuse_where};
    use crate::support::left_out::not_here;
    use uwork::ring::Reactor;

    use super::*;

    /// `IORING_REGISTER_SEND_MSG_RING`.
    const SEND_MSG_RING: u32 = 31;

    fn in_ring() -> Box<dyn FnMut()> {
        let mut reactor = Reactor::builder().build().unwrap();
        Box::new(move || {
            reactor.wait(None).unwrap();
            assert!(reactor.next().is_none(), "nothing was queued");
        })
    }

    fn comes_round(rounds: u32) {
        let handle = target(Delivery::Light, in_ring);
        for round in 0..rounds {
            assert_eq!(received(&add(&handle)), Ok(()), "round {round}");
        }
    }

    // Catches: a refusal that panics, that is reported as another error, or that breaks the
    // thread's other waits.
    #[test]
    fn without_io_uring_the_error_names_it_and_other_waits_work() {
        let test = "ring::without_io_uring_the_error_names_it_and_other_waits_work";
        alone_each(test, "UWORK_TEST_ERRNO", &["EPERM", "ENOSYS"], "UWORK_TEST_NONE", |errno| {
            let _watchdog = watchdog();
            let (number, kind) = match errno {
                "EPERM" => (libc::EPERM, ErrorKind::PermissionDenied),
                _ => (libc::ENOSYS, ErrorKind::Unsupported),
            };
            refuse(libc::SYS_io_uring_setup, number);
            let error = Reactor::builder().build().unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("io_uring"), "{error}");
            // The error is not "the thread has one already".
            assert_eq!(Reactor::builder().build().unwrap_err().kind(), kind);
            let handle = target(Delivery::Light, || Box::new(|| _ = task::park()));
            assert_eq!(received(&add(&handle)), Ok(()));
        });
    }

    // Catches: a process that ends for lack of memory.
    #[test]
    fn without_memory_for_the_buffers_the_error_names_them() {
        alone("ring::without_memory_for_the_buffers_the_error_names_them", || {
            let _watchdog = watchdog();
            // The maximum number of buffers at the maximum size: 512 GiB.
            limit(libc::RLIMIT_AS, 1 << 38);
            let error = Reactor::builder().buffers(32_768, 1 << 24).build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
            assert!(Reactor::builder().buffers(8, 16).build().is_ok());
        });
    }

    // Catches: an accept that keeps running without a report, a connection that is lost.
    #[test]
    fn an_accept_without_descriptors_ends_and_can_be_submitted_again() {
        // No watchdog: without files it cannot read how long threads wait for a CPU. The process that
        // started this one ends it if it hangs.
        alone("ring::an_accept_without_descriptors_ends_and_can_be_submitted_again", || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut reactor = Reactor::builder().build().unwrap();
            let mut accept = || {
                reactor.accept_multi(&listener, 1).unwrap();
                loop {
                    reactor.wait(None).unwrap();
                    if let Some(completion) = reactor.next() {
                        break completion;
                    }
                }
            };
            limit(libc::RLIMIT_NOFILE, 3);
            let refused = accept();
            assert_eq!(refused.result().unwrap_err().raw_os_error(), Some(libc::EMFILE));
            assert!(!refused.more(), "it has ended");
            assert_eq!(refused.into_fd().unwrap_err().raw_os_error(), Some(libc::EMFILE));
            limit(libc::RLIMIT_NOFILE, 64);
            assert!(accept().into_fd().is_ok());
        });
    }

    // Catches: a reactor that only messages can wake. The errors are those of a kernel before 6.13,
    // of a filter, and of a lack of memory.
    #[test]
    fn without_messages_between_rings_the_eventfd_ends_the_wait() {
        let test = "ring::without_messages_between_rings_the_eventfd_ends_the_wait";
        let errors = ["EINVAL", "EPERM", "ENOMEM"];
        alone_each(test, "UWORK_TEST_ERRNO", &errors, "UWORK_TEST_NONE", |errno| {
            let _watchdog = watchdog();
            let number = match errno {
                "EINVAL" => libc::EINVAL,
                "EPERM" => libc::EPERM,
                _ => libc::ENOMEM,
            };
            refuse_where(libc::SYS_io_uring_register, 1, SEND_MSG_RING, number);
            comes_round(1_000);
        });
    }

    // Catches: a message that fails later, after the ring was found to accept them.
    #[test]
    fn messages_that_are_refused_later_are_replaced_by_the_eventfd() {
        let test = "ring::messages_that_are_refused_later_are_replaced_by_the_eventfd";
        alone(test, || {
            let _watchdog = watchdog();
            let handle = target(Delivery::Light, in_ring);
            assert_eq!(received(&add(&handle)), Ok(()));
            refuse_where(libc::SYS_io_uring_register, 1, SEND_MSG_RING, libc::ENOMEM);
            for round in 0..1_000 {
                assert_eq!(received(&add(&handle)), Ok(()), "round {round}");
            }
        });
    }

    // Catches: messages that count as sent and are not, while the eventfd replaces them.
    #[test]
    fn where_messages_exist_the_eventfd_is_not_needed() {
        let test = "ring::where_messages_exist_the_eventfd_is_not_needed";
        alone(test, || {
            let _watchdog = watchdog();
            // SAFETY: without a message it fails: with `EINVAL` where messages do not exist.
            let outcome = unsafe {
                let none = std::ptr::null::<u8>();
                libc::syscall(libc::SYS_io_uring_register, -1, SEND_MSG_RING, none, 1)
            };
            assert_eq!(outcome, -1);
            if Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
                return not_here(test, "Linux 6.13 is needed");
            }
            // The length of a write to an eventfd.
            refuse_where(libc::SYS_write, 2, 8, libc::EPERM);
            comes_round(1_000);
        });
    }
}

//! Task work in programs that close all descriptors: items run, and no file of the program's is
//! written to, read or closed.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::support::child::alone;
use crate::support::descriptors::{CloseAll, Files, is_open};
use crate::support::left_out::not_here;
use crate::support::{received, watchdog};
use uwork::task::{self, Notify, TaskHandle};

/// A thread that adds an item for the target on each request.
struct Adder {
    ask: Sender<()>,
    added: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Adder {
    fn new(handle: TaskHandle) -> Adder {
        let ((ask, asked), (tell, added)) = (channel::<()>(), channel());
        let adds = move || {
            for () in asked {
                handle.add_fn(Notify::Signal, || ()).unwrap();
                tell.send(()).unwrap();
            }
        };
        Adder { ask, added, thread: std::thread::spawn(adds) }
    }

    /// Requests an item.
    fn ask(&self) {
        self.ask.send(()).unwrap();
    }

    /// Adds an item.
    fn add(&self) {
        self.ask();
        received(&self.added).unwrap();
    }

    fn end(self) {
        drop(self.ask);
        self.thread.join().unwrap();
    }
}

fn poll(number: libc::c_int) -> libc::c_int {
    let mut file = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
    // SAFETY: the structure is live.
    unsafe { libc::poll(&raw mut file, 1, -1) }
}

// Catches: an eventfd of the program's that is written to or read; a wait for the new one without an
// end.
#[test]
fn a_notifier_whose_descriptor_was_closed_is_replaced() {
    alone("a_notifier_whose_descriptor_was_closed_is_replaced", || {
        let _watchdog = watchdog();
        let adder = Adder::new(TaskHandle::current());
        for round in 0..5 {
            let lost = task::notifier().unwrap();
            let files = Files::open(&CloseAll::AtOnce.run(), round);
            // A wait for something else.
            assert!(lost.wait(|| adder.add()).is_some());
            assert_eq!(task::run_once(), 1);
            // A new one, which the old value refers to as well.
            let new = task::notifier().unwrap();
            let mut ran = 0;
            adder.ask();
            while ran == 0 {
                let _ = new.wait(|| poll(new.as_fd().as_raw_fd()));
                ran = task::run_once();
            }
            received(&adder.added).unwrap();
            assert_eq!(lost.as_fd().as_raw_fd(), new.as_fd().as_raw_fd());
            files.are_intact();
        }
        adder.end();
    });
}

/// The places of a thread for rings that need no descriptor (`IO_RINGFD_REG_MAX`). A ring that stays
/// when its reactor is dropped keeps its place, so that one of the next reactors has none.
const PLACES: u64 = 16;

/// Waits for an operation in the reactor's ring.
fn complete_one(reactor: &mut uwork::ring::Reactor, token: u64) {
    use uwork::ring::io_uring::opcode;

    // SAFETY: it uses no memory.
    unsafe { reactor.push(opcode::Nop::new().build().user_data(token)).unwrap() };
    let mut completed = None;
    while completed.is_none() {
        reactor.wait(None).unwrap();
        completed = reactor.next().map(|completion| completion.token());
    }
    assert_eq!(completed, Some(token));
}

#[track_caller]
fn no_ring() {
    not_here(&std::panic::Location::caller().to_string(), "there is no io_uring");
}

// Catches: a message to a ring of the program's, or a close of it; a reactor that has lost its ring, or
// that leaves it open.
#[test]
fn a_reactor_goes_on_without_its_descriptor() {
    use uwork::ring::Reactor;

    alone("a_reactor_goes_on_without_its_descriptor", || {
        let _watchdog = watchdog();
        let adder = Adder::new(TaskHandle::current());
        for round in 0..=PLACES {
            let Ok(mut reactor) = Reactor::builder().build() else {
                return no_ring();
            };
            let numbers = CloseAll::AtOnce.run();
            let files = Files::open(&numbers, round as usize);
            for token in 0..20 {
                complete_one(&mut reactor, token);
                adder.ask();
                let mut ran = 0;
                while ran == 0 {
                    ran = reactor.wait(None).unwrap();
                }
            }
            drop(reactor);
            files.are_intact();
        }
        adder.end();
    });
}

// Catches: a duplicate of a notifier's descriptor that is taken for a lost ring, and closed, or asked to
// end the ring's operations, so that the ring stays.
#[test]
fn a_duplicate_of_a_notifiers_descriptor_may_have_the_number_of_a_lost_ring() {
    use uwork::ring::Reactor;

    alone("a_duplicate_of_a_notifiers_descriptor_may_have_the_number_of_a_lost_ring", || {
        let _watchdog = watchdog();
        for round in 0..=PLACES {
            let Ok(mut reactor) = Reactor::builder().build() else {
                return no_ring();
            };
            let numbers = CloseAll::AtOnce.run();
            let notifier = task::notifier().unwrap();
            let own = notifier.as_fd().as_raw_fd();
            let places: Vec<_> = numbers.into_iter().filter(|&number| number != own).collect();
            assert!(!places.is_empty());
            for &number in &places {
                // SAFETY: both numbers are the test's.
                assert_eq!(unsafe { libc::dup2(own, number) }, number);
            }
            complete_one(&mut reactor, round);
            drop(reactor);
            assert_eq!(task::notifier().unwrap().as_fd().as_raw_fd(), own);
            for number in places {
                assert!(is_open(number), "{number} was closed");
                // SAFETY: the test's own.
                assert_eq!(unsafe { libc::close(number) }, 0);
            }
        }
    });
}

// Catches: a socket of the program's that is closed, as it has the number of a connection that the
// program never took and has closed.
#[test]
fn an_accepted_socket_that_was_not_taken_is_closed_only_as_long_as_it_is_that() {
    use std::net::{TcpListener, TcpStream};
    use uwork::ring::Reactor;

    const CLIENTS: usize = 6;

    alone("an_accepted_socket_that_was_not_taken_is_closed_only_as_long_as_it_is_that", || {
        let _watchdog = watchdog();
        for round in 0..6 {
            let Ok(mut reactor) = Reactor::builder().build() else {
                return no_ring();
            };
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            reactor.accept_multi(&listener, 1).unwrap();
            let clients: Vec<_> =
                (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
            let mut seen = Vec::new();
            while seen.len() < CLIENTS / 2 {
                reactor.wait(None).unwrap();
                seen.extend(reactor.next());
            }
            if round == 0 {
                // Nothing is lost: all are closed.
                drop((seen, reactor, listener));
                for mut client in clients {
                    let end = std::io::Read::read(&mut client, &mut [0]);
                    assert!(end.map_or(true, |length| length == 0));
                }
                continue;
            }
            // Of the process itself, so they are closed below.
            clients.into_iter().for_each(std::mem::forget);
            std::mem::forget(listener);
            let files = Files::open(&CloseAll::AtOnce.run(), round);
            drop(seen);
            drop(reactor);
            files.are_intact();
        }
    });
}

/// A ring of the program's own, under the number of the reactor's.
#[test]
fn a_ring_of_the_programs_gets_no_message_of_the_reactors() {
    use uwork::ring::{Reactor, io_uring::IoUring};

    alone("a_ring_of_the_programs_gets_no_message_of_the_reactors", || {
        let _watchdog = watchdog();
        let Ok(mut reactor) = Reactor::builder().build() else {
            return no_ring();
        };
        let numbers = CloseAll::AtOnce.run();
        let mut own = IoUring::new(8).unwrap();
        let places: Vec<_> = numbers.into_iter().filter(|&one| one != own.as_raw_fd()).collect();
        for &number in &places {
            // SAFETY: both numbers are the test's.
            assert_eq!(unsafe { libc::dup2(own.as_raw_fd(), number) }, number);
        }
        let (send, receive) = channel();
        let handle = TaskHandle::current();
        let adder = std::thread::spawn(move || {
            for _ in 0..50 {
                let send = send.clone();
                handle.add_fn(Notify::Signal, move || send.send(()).unwrap()).unwrap();
            }
        });
        let mut ran = 0;
        while ran < 50 {
            ran += reactor.wait(None).unwrap();
        }
        (0..50).for_each(|_| assert_eq!(received(&receive), Ok(())));
        adder.join().unwrap();
        drop(reactor);
        assert_eq!(own.completion().count(), 0, "messages of another ring");
        assert!(own.submit().is_ok(), "it is open");
    });
}

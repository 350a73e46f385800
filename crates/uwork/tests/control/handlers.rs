//! The signal that tells of a client, in a program that has handlers, or removes them.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;

use crate::support::signals::set_all_to_default;
use crate::support::{queue, until, watchdog};
use crate::{Client, scene, socket, threads_named};

// Catches: a signal whose default action ends the process; a handler that is not installed again.
#[test]
fn a_program_that_sets_all_signals_to_their_defaults_is_not_ended_by_a_client() {
    let _watchdog = watchdog();
    let test = "a_program_that_sets_all_signals_to_their_defaults_is_not_ended_by_a_client";
    scene(test, || {
        let path = socket();
        set_all_to_default();
        let mut client = UnixStream::connect(&path).unwrap();
        client.set_nonblocking(true).unwrap();
        // The watcher looks while items run.
        let queue = queue("running").build().unwrap();
        until("the client is served", || {
            queue.spawn(|| ()).join().unwrap();
            let read = client.read(&mut [0; 64]);
            read.map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |bytes| bytes > 0)
        });
        drop(client);
        until("the thread has ended", || threads_named("uw/control") == 0);
        // Without an item: the handler is there again.
        drop(Client::connect(&path));
    });
}

extern "C" fn handler(_: libc::c_int) {}

// Catches: a program's handler that is replaced; no socket for want of the signal.
#[test]
fn a_program_keeps_its_handler_for_urgent_data() {
    let _watchdog = watchdog();
    scene("a_program_keeps_its_handler_for_urgent_data", || {
        let own = handler as *const () as libc::sighandler_t;
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGURG, own) };
        drop(Client::connect(&socket()));
        // SAFETY: as above.
        assert_eq!(unsafe { libc::signal(libc::SIGURG, libc::SIG_DFL) }, own);
    });
}

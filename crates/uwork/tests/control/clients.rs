//! Clients that the process must not notice: of other users, malformed, slow, killed, many.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::support::child::become_nobody;
use crate::support::descriptors::{open_descriptors, until_at_rest};
use crate::support::flag::SetOnDrop;
use crate::support::forked::in_child;
use crate::support::left_out::left_out;
use crate::support::{queue, until, watchdog, within};
use crate::{Client, scene, socket, threads_named};

#[test]
fn only_its_user_may_use_the_socket() {
    let _watchdog = watchdog();
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return left_out("only_its_user_may_use_the_socket", "this user is not root");
    }
    scene("only_its_user_may_use_the_socket", || {
        let path = socket();
        let found = fs::symlink_metadata(&path).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        let connect = || UnixStream::connect(&path);
        let refused = |outcome: std::io::Result<UnixStream>| {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::PermissionDenied);
        };
        in_child(|| {
            become_nobody();
            refused(connect());
        });
        // Even if the file's rights are given away.
        let folder = path.parent().unwrap();
        for (path, mode) in [(folder.parent().unwrap(), 0o755), (folder, 0o755), (&path, 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        in_child(|| {
            become_nobody();
            let mut text = String::new();
            let _ = connect().expect("the rights permit it").read_to_string(&mut text);
            assert_eq!(text, "err closed only this process's user and root may connect\n");
        });
        assert!(Client::connect(&path).ask("help").is_ok());
    });
}

#[test]
fn malformed_input_ends_its_own_connection_only() {
    let _watchdog = watchdog();
    scene("malformed_input_ends_its_own_connection_only", || {
        let path = socket();
        let mut watching = Client::connect(&path);
        let mut half = Client::connect(&path);
        half.send(b"get cpu");
        let mut garbage = Client::connect(&path);
        garbage.send(b"\xff\xfe\x00\n");
        assert_eq!(garbage.line(), "err closed a line is UTF-8\n");
        assert!(garbage.is_closed());
        let mut long = Client::connect(&path);
        // The server closes the connection long before all of it is sent.
        let line = vec![b'x'; 1 << 20];
        let sent = (0..1024).take_while(|_| long.stream().write_all(&line).is_ok()).count();
        assert!(sent < 1024, "a line of a gigabyte was taken");
        let mut exact = Client::connect(&path);
        exact.send(&[b'x'; 4096]);
        assert_eq!(exact.line(), "err closed a line has at most 4096 bytes\n");
        assert!(exact.is_closed());
        let mut several = Client::connect(&path);
        several.send(b"get cpumask\r\nnonsense\nhelp\n");
        assert_eq!(several.answer(), watching.ask("get cpumask"));
        assert!(several.answer().unwrap_err().starts_with("err bad-request "));
        assert_eq!(several.answer(), watching.ask("help"));
        half.send(b"mask\n");
        assert_eq!(half.answer(), watching.ask("get cpumask"));
        // What came before the client's end is answered.
        several.send(b"help\nget");
        several.stream().shutdown(Shutdown::Write).unwrap();
        assert_eq!(several.answer(), watching.ask("help"));
        assert!(several.is_closed());
    });
}

// Catches: idle clients that shut all others out.
#[test]
fn the_oldest_idle_client_makes_room() {
    let _watchdog = watchdog();
    scene("the_oldest_idle_client_makes_room", || {
        let path = socket();
        // Of the other 31 all but the last are idle, one of them in the middle of a line.
        let mut clients: Vec<Client> = (0..31).map(|_| Client::connect(&path)).collect();
        clients[1].send(b"get cpu");
        let mut working = Client::connect(&path);
        assert!(working.ask("help").is_ok());
        let refusal =
            "err closed the connection was idle, and its place was needed for another client\n";
        // The new clients are asked, and so younger than the old ones.
        let mut new = Vec::new();
        for old in &mut clients {
            let mut client = Client::connect(&path);
            assert!(client.ask("help").is_ok());
            assert!(working.ask("help").is_ok(), "it is not the oldest");
            assert_eq!(old.line(), refusal);
            assert!(old.is_closed());
            new.push(client);
        }
        assert!(new.iter_mut().all(|client| client.ask("help").is_ok()));
    });
}

// Catches: a trace that goes on for an hour, as its client was killed or has given up.
#[test]
fn a_trace_ends_with_the_connection_that_began_it() {
    let _watchdog = watchdog();
    scene("a_trace_ends_with_the_connection_that_began_it", || {
        let path = socket();
        let mut other = Client::connect(&path);
        let mut first = Client::connect(&path);
        assert_eq!(first.ask("trace on 3600"), Ok(String::new()));
        let refused = other.ask("trace on 1").unwrap_err();
        assert!(refused.starts_with("err refused a trace is on for 3"), "{refused}");
        // The one that is refused has begun none.
        drop(other);
        let mut other = Client::connect(&path);
        assert!(other.ask("trace on 1").is_err());
        drop(first);
        until("the trace has ended", || other.ask("trace on 3600").is_ok());
        // One that was ended by another client, and a later one.
        let mut last = Client::connect(&path);
        assert_eq!(last.ask("trace off"), Ok(String::new()));
        assert_eq!(last.ask("trace on 3600"), Ok(String::new()));
        drop(other);
        // The server finds the end in the turn of one of these requests.
        assert!((0..2).all(|_| last.ask("help").is_ok()));
        assert!(last.ask("trace on 1").is_err(), "the last one goes on");
    });
}

#[test]
fn ten_thousand_connections_leave_the_socket_usable() {
    let _watchdog = watchdog();
    scene("ten_thousand_connections_leave_the_socket_usable", || {
        let path = socket();
        let mut working = Client::connect(&path);
        let mut kept = Vec::new();
        for round in 0..10_000 {
            // As `connect` of the others, but the server may close it before the client has read.
            let mut stream = UnixStream::connect(&path).expect("accepted in the end");
            let mut byte = [0];
            let _ = stream.read(&mut byte);
            assert_eq!(byte, [b'u'], "a greeting");
            kept.push(stream);
            kept.drain(..kept.len().saturating_sub(100));
            if round % 16 == 0 {
                assert!(working.ask("help").is_ok());
            }
        }
        drop(working);
        kept.clear();
        until("the thread has ended", || threads_named("uw/control") == 0);
        assert!(Client::connect(&path).ask("help").is_ok());
    });
}

#[test]
fn a_client_that_reads_nothing_delays_no_other() {
    let _watchdog = watchdog();
    scene("a_client_that_reads_nothing_delays_no_other", || {
        let path = socket();
        let mut slow = Client::connect(&path);
        slow.stream().set_nonblocking(true).unwrap();
        // Its requests stay in the system's buffers as soon as an answer does not fit.
        let full = (0..1_000_000).any(|_| match slow.stream().write(b"dump\n") {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        assert!(full, "the server keeps reading requests whose answers are not read");
        let mut other = Client::connect(&path);
        assert!((0..100).all(|_| other.ask("help").is_ok()));
    });
}

#[test]
fn a_client_that_is_killed_is_forgotten() {
    let _watchdog = watchdog();
    scene("a_client_that_is_killed_is_forgotten", || {
        let path = socket();
        let mut other = Client::connect(&path);
        for _ in 0..5 {
            in_child(|| {
                let mut client = UnixStream::connect(&path).expect("a listener");
                client.write_all(b"dump\ndump\nget cpu").expect("the server reads");
                // Ends like a kill: nothing is closed in order.
            });
            assert!(other.ask("help").is_ok());
        }
        drop(other);
        until("the thread has ended", || threads_named("uw/control") == 0);
    });
}

/// Several threads connect and send what no client should, while the queue is flooded.
#[test]
fn all_items_run_beside_hostile_clients() {
    let _watchdog = watchdog();
    scene("all_items_run_beside_hostile_clients", || {
        let path = socket();
        let queue = queue("flooded").build().unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let is_over = &is_over;
        let attack = |number: usize| {
            let path = &path;
            move || {
                let mut random = number as u64 + 1;
                let mut kept = Vec::new();
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let Ok(mut stream) = UnixStream::connect(path) else { continue };
                    stream.set_nonblocking(true).unwrap();
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let _ = match number {
                        // Nothing is read of the answers, and the connection stays.
                        0 => stream.write(b"dump\nqueues\nmetrics\n"),
                        1 => stream.write(&random.to_ne_bytes().repeat(64)),
                        2 => stream.write(&[b'x'; 8192]),
                        // Closed at once.
                        _ => stream.write(b"pools\nget cpu"),
                    };
                    if number == 0 {
                        kept.push(stream);
                        kept.drain(..kept.len().saturating_sub(8));
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            let _over = SetOnDrop(is_over);
            (0..4).for_each(|number| drop(scope.spawn(attack(number))));
            for _ in 0..50 {
                let items: Vec<_> = (0..500).map(|n| queue.spawn(move || n)).collect();
                for (n, item) in items.into_iter().enumerate() {
                    assert_eq!(item.join().unwrap(), n);
                }
            }
        });
        assert_eq!(uwork::rescues(), 0);
        until("a place is free", || {
            let mut first = String::new();
            let stream = UnixStream::connect(&path).expect("a listener");
            BufReader::new(stream).read_line(&mut first).is_ok_and(|_| first.starts_with("uwork-c"))
        });
    });
}

/// The descriptors of sockets that listen.
fn listeners() -> Vec<RawFd> {
    let listens = |number: &RawFd| {
        let (mut listens, mut length): (libc::c_int, _) = (0, size_of::<libc::c_int>() as u32);
        let (option, at) = (libc::SO_ACCEPTCONN, (&raw mut listens).cast());
        // SAFETY: the structures are live and of the given length. It fails for other files.
        unsafe { libc::getsockopt(*number, libc::SOL_SOCKET, option, at, &raw mut length) };
        listens == 1
    };
    open_descriptors().into_iter().filter(listens).collect()
}

// Catches: clients that lose their connections, as the program has closed the listening socket alone.
#[test]
fn clients_stay_when_the_program_closes_the_listening_socket_alone() {
    let _watchdog = watchdog();
    scene("clients_stay_when_the_program_closes_the_listening_socket_alone", || {
        let path = socket();
        let inode = |path: &Path| fs::metadata(path).map(|found| found.ino()).ok();
        let mut first = Client::connect(&path);
        for _ in 0..4 {
            let before = inode(&path);
            assert!(first.ask("help").is_ok());
            until_at_rest();
            let listeners = listeners();
            assert_eq!(listeners.len(), 1);
            // SAFETY: the library expects that a program closes its descriptors.
            assert_eq!(unsafe { libc::close(listeners[0]) }, 0);
            // By the thread that has lost the socket.
            assert!(first.ask("help").is_ok());
            let queue = queue("goes on").build().unwrap();
            until("the socket is open again", || {
                assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
                inode(&path).is_some_and(|now| Some(now) != before)
            });
            assert!(first.ask("help").is_ok());
            let path = path.clone();
            within("another client is served", move || {
                assert!(Client::connect(&path).ask("help").is_ok());
            });
            assert!(first.ask("help").is_ok());
        }
    });
}

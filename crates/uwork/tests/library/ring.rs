//! Reactors: completions and task work in one wait.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::support::{WAIT_CAP, received, until, watchdog, within};
use uwork::ring::io_uring::{self, opcode, squeue::Flags, types::Fd};
use uwork::ring::{Completion, Reactor, TOKEN_MAX};
use uwork::task::{self, Delivery, Notify, TaskHandle};

/// Waits for the next completion, and runs the task work that is added meanwhile.
fn completion(reactor: &mut Reactor) -> Completion {
    loop {
        if let Some(completion) = reactor.next() {
            return completion;
        }
        reactor.wait(None).unwrap();
    }
}

fn connected() -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (listener, client, server)
}

#[test]
fn task_work_ends_the_wait_whatever_the_delivery() {
    let _watchdog = watchdog();
    for delivery in [Delivery::Auto, Delivery::Light, Delivery::Signal] {
        let (send, receive) = channel();
        let thread = std::thread::spawn(move || {
            task::set_delivery(delivery).unwrap();
            let mut reactor = Reactor::builder().build().unwrap();
            send.send(TaskHandle::current()).unwrap();
            let mut ran = 0;
            while ran < 2_001 {
                ran += reactor.wait(None).unwrap();
                assert!(reactor.next().is_none(), "nothing was queued");
            }
        });
        let handle = receive.recv().unwrap();
        for round in 0..2_000 {
            let (send, receive) = channel();
            assert!(handle.add_fn(Notify::Signal, move || send.send(()).unwrap()).is_ok());
            assert_eq!(received(&receive), Ok(()), "{delivery:?}, round {round}");
        }
        assert!(handle.add_fn(Notify::Signal, || ()).is_ok());
        within("the reactor ends", move || thread.join().unwrap());
    }
}

#[test]
fn a_connection_is_accepted_and_echoed() {
    let _watchdog = watchdog();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut reactor = Reactor::builder().entries(8).buffers(4, 16).build().unwrap();
    reactor.accept_multi(&listener, TOKEN_MAX).unwrap();
    let client = std::thread::spawn(move || {
        let mut client = TcpStream::connect(address).unwrap();
        // More than all buffers together.
        let sent: Vec<u8> = (0..1_000_u32).map(|n| n as u8).collect();
        client.write_all(&sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert_eq!(received, sent);
    });
    let accepted = completion(&mut reactor);
    assert_eq!((accepted.token(), accepted.more()), (TOKEN_MAX, true));
    let connection: OwnedFd = accepted.into_fd().unwrap();
    let mut received = Vec::new();
    reactor.recv_multi(&connection, 7).unwrap();
    loop {
        let completion = completion(&mut reactor);
        assert_eq!(completion.token(), 7);
        let (more, result) = (completion.more(), completion.result());
        match result {
            Ok(0) => break,
            Ok(bytes) => {
                let buffer = completion.into_buffer().unwrap();
                assert_eq!(buffer.len(), bytes as usize);
                received.extend_from_slice(&buffer);
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS)),
        }
        if !more {
            reactor.recv_multi(&connection, 7).unwrap();
        }
    }
    // SAFETY: the bytes stay until the completion below.
    unsafe { reactor.send(&connection, &raw const received[..], 8).unwrap() };
    let sent = completion(&mut reactor);
    assert_eq!((sent.token(), sent.result().unwrap()), (8, 1_000));
    drop(connection);
    within("the client is content", move || client.join().unwrap());
}

#[test]
fn one_wait_sends_and_waits_for_the_answer() {
    let _watchdog = watchdog();
    let (_listener, mut client, server) = connected();
    let answerer = std::thread::spawn(move || {
        let mut request = [0; 4];
        while client.read_exact(&mut request).is_ok() {
            client.write_all(&request).unwrap();
        }
    });
    let mut reactor = Reactor::builder().buffers(4, 16).build().unwrap();
    reactor.recv_multi(&server, 1).unwrap();
    // The reactor's own message to itself ends the first wait.
    let mut waits_for_nothing = 0;
    for round in 0..1_000_u32 {
        let bytes = round.to_le_bytes();
        // SAFETY: the bytes stay until all operations are submitted.
        unsafe { reactor.try_send(&server, &raw const bytes[..], 2).unwrap() };
        reactor.wait(None).unwrap();
        assert!(reactor.all_submitted());
        let answer = reactor.next().unwrap_or_else(|| {
            waits_for_nothing += 1;
            completion(&mut reactor)
        });
        assert_eq!((answer.token(), answer.buffer().unwrap()), (1, &bytes[..]));
    }
    assert!(waits_for_nothing < 100, "{waits_for_nothing} of 1,000 waits were over with the send");
    server.shutdown(Shutdown::Both).unwrap();
    within("the answerer ends", move || answerer.join().unwrap());
}

#[test]
fn try_send_sends_what_fits_and_send_waits_for_room() {
    let _watchdog = watchdog();
    // Only a read makes room in it; a TCP connection may have more room a moment later.
    let (mut client, server) = UnixStream::pair().unwrap();
    let mut reactor = Reactor::builder().build().unwrap();
    let bytes = vec![7; 1 << 20];
    let (mut sent, mut parts) = (0, 0);
    let error = loop {
        // SAFETY: the bytes stay until all operations are submitted.
        unsafe { reactor.try_send(&server, &raw const bytes[..], 1).unwrap() };
        reactor.submit().unwrap();
        assert!(reactor.all_submitted());
        match reactor.next().map(|completion| completion.result()) {
            None => sent += bytes.len(),
            Some(Ok(part)) => {
                assert!((part as usize) < bytes.len());
                (sent, parts) = (sent + part as usize, parts + 1);
            }
            Some(Err(error)) => break error,
        }
    };
    assert!(parts > 0, "the last bit of room was used");
    assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    // SAFETY: the bytes stay until the completion below.
    unsafe { reactor.send(&server, &raw const bytes[..], 2).unwrap() };
    reactor.submit().unwrap();
    assert!(reactor.next().is_none(), "there is no room");
    let all = sent + bytes.len();
    let reader = std::thread::spawn(move || {
        let mut buffer = vec![0; all];
        client.read_exact(&mut buffer).unwrap();
        assert!(buffer.iter().all(|&byte| byte == 7));
    });
    let completion = completion(&mut reactor);
    assert_eq!((completion.token(), completion.result().unwrap() as usize), (2, bytes.len()));
    within("all has arrived", move || reader.join().unwrap());
}

#[test]
fn buffers_that_are_kept_are_not_filled_again() {
    let _watchdog = watchdog();
    let (_listener, mut client, server) = connected();
    let mut reactor = Reactor::builder().buffers(2, 4).build().unwrap();
    reactor.recv_multi(&server, 1).unwrap();
    client.write_all(b"aaaabbbbcccc").unwrap();
    let mut kept = Vec::new();
    let error = loop {
        let completion = completion(&mut reactor);
        match completion.result() {
            Ok(_) => kept.push(completion.into_buffer().unwrap()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS));
    assert_eq!((&*kept[0], &*kept[1]), (&b"aaaa"[..], &b"bbbb"[..]));
    kept.remove(0);
    reactor.recv_multi(&server, 1).unwrap();
    let last = completion(&mut reactor).into_buffer().unwrap();
    assert_eq!((&*last, &*kept[0]), (&b"cccc"[..], &b"bbbb"[..]));
    // Buffers may outlive the reactor.
    drop(reactor);
    assert_eq!((&*last, &*kept[0]), (&b"cccc"[..], &b"bbbb"[..]));
}

#[test]
fn a_buffer_is_cut_to_its_capacity_whatever_the_operation_returns() {
    let (from, to) = UnixDatagram::pair().unwrap();
    let mut reactor = Reactor::builder().buffers(1, 64).build().unwrap();
    from.send(&[7; 5000]).unwrap();
    // With MSG_TRUNC it returns the message's full length, though the buffer has only the start of
    // it.
    let receive = opcode::Recv::new(Fd(to.as_raw_fd()), std::ptr::null_mut(), 64)
        .flags(libc::MSG_TRUNC)
        .buf_group(0)
        .build()
        .flags(Flags::BUFFER_SELECT)
        .user_data(1);
    // SAFETY: the memory belongs to the reactor.
    unsafe { reactor.push(receive).unwrap() };
    let received = completion(&mut reactor);
    assert_eq!(received.result().unwrap(), 5000);
    assert_eq!(received.buffer().unwrap(), [7; 64]);
}

#[test]
fn an_operation_can_be_cancelled_by_its_token() {
    let _watchdog = watchdog();
    let (_listener, _client, server) = connected();
    let mut reactor = Reactor::builder().buffers(2, 4).build().unwrap();
    reactor.recv_multi(&server, 1).unwrap();
    reactor.submit().unwrap();
    reactor.cancel(1).unwrap();
    let cancelled = completion(&mut reactor);
    assert_eq!((cancelled.token(), cancelled.more()), (1, false));
    assert_eq!(cancelled.result().unwrap_err().raw_os_error(), Some(libc::ECANCELED));
}

#[test]
fn a_cancel_by_kind_leaves_the_other_kind_with_that_token() {
    let _watchdog = watchdog();
    let (_listener, mut client, server) = connected();
    let mut reactor = Reactor::builder().buffers(2, 4).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    reactor.recv_multi(&server, 1).unwrap();
    reactor.accept_multi(&listener, 1).unwrap();
    reactor.cancel_accept(1).unwrap();
    let ended = completion(&mut reactor);
    assert_eq!(ended.result().unwrap_err().raw_os_error(), Some(libc::ECANCELED));
    // The other operation is still in progress.
    client.write_all(b"x").unwrap();
    assert_eq!(completion(&mut reactor).buffer().unwrap(), *b"x");
    reactor.accept_multi(&listener, 1).unwrap();
    reactor.cancel_recv(1).unwrap();
    let ended = completion(&mut reactor);
    assert_eq!(ended.result().unwrap_err().raw_os_error(), Some(libc::ECANCELED));
    let _other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(completion(&mut reactor).into_fd().is_ok());
}

/// The reactor reads from the socket that was passed, although its descriptor number refers to
/// another socket before the next wait.
#[test]
fn a_reused_descriptor_number_is_not_read() {
    let _watchdog = watchdog();
    let (_listener, mut client, server) = connected();
    let (_other_listener, mut other_client, other) = connected();
    let mut reactor = Reactor::builder().buffers(2, 8).build().unwrap();
    reactor.recv_multi(&server, 1).unwrap();
    // SAFETY: both are open; the number stays that of a socket that `server` owns.
    assert!(unsafe { libc::dup2(other.as_raw_fd(), server.as_raw_fd()) } >= 0);
    other_client.write_all(b"other").unwrap();
    client.write_all(b"meant").unwrap();
    assert_eq!(completion(&mut reactor).buffer().unwrap(), *b"meant");
}

#[test]
fn a_length_beyond_one_operation_is_refused() {
    let _watchdog = watchdog();
    let (_listener, _client, server) = connected();
    let mut reactor = Reactor::builder().build().unwrap();
    let bytes = std::ptr::slice_from_raw_parts(std::ptr::dangling::<u8>(), 1 << 31);
    // SAFETY: nothing is queued.
    let errors = unsafe { [reactor.send(&server, bytes, 1), reactor.try_send(&server, bytes, 1)] };
    for error in errors {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert!(reactor.all_submitted());
}

#[test]
fn the_wait_ends_at_its_timeout() {
    let _watchdog = watchdog();
    let mut reactor = Reactor::builder().build().unwrap();
    assert_eq!(reactor.wait(Some(Duration::from_millis(1))).unwrap(), 0);
    assert!(reactor.next().is_none());
}

// Catches: a timeout that the system takes for one that has passed.
#[test]
fn the_wait_accepts_the_longest_timeout() {
    let _watchdog = watchdog();
    for timeout in [Duration::MAX, Duration::from_secs(i64::MAX as u64)] {
        let (send, receive) = channel();
        let thread = std::thread::spawn(move || {
            let mut reactor = Reactor::builder().build().unwrap();
            // SAFETY: no arguments; cannot fail.
            send.send((TaskHandle::current(), unsafe { libc::gettid() })).unwrap();
            // The first wait may end because of the reactor's own message to itself.
            let waits = (0..3).map(|_| {
                assert!(reactor.next().is_none(), "nothing was queued");
                reactor.wait(Some(timeout)).unwrap()
            });
            waits.sum::<usize>()
        });
        let (handle, number) = receive.recv().unwrap();
        let syscall = format!("/proc/self/task/{number}/syscall");
        let enter = format!("{} ", libc::SYS_io_uring_enter);
        let sleeps = || std::fs::read_to_string(&syscall).is_ok_and(|now| now.starts_with(&enter));
        for _ in 0..3 {
            until("it sleeps, or is over", || sleeps() || thread.is_finished());
            let _ = handle.add_fn(Notify::Signal, || ());
        }
        assert_ne!(within("the waits end", move || thread.join().unwrap()), 0, "{timeout:?}");
    }
}

#[test]
fn an_item_that_panics_ends_the_wait_as_others_do() {
    let _watchdog = watchdog();
    let (_listener, mut client, server) = connected();
    let mut reactor = Reactor::builder().buffers(4, 16).build().unwrap();
    reactor.recv_multi(&server, 1).unwrap();
    let handle = TaskHandle::current();
    let before = uwork::panics();
    for round in 1..=3 {
        let to = handle.clone();
        let adder = std::thread::spawn(move || {
            to.add_fn(Notify::Signal, || panic!("on purpose")).unwrap();
            to.add_fn(Notify::Signal, || ()).unwrap();
        });
        let mut ran = 0;
        while ran < 2 {
            ran += reactor.wait(None).unwrap();
            assert!(reactor.next().is_none(), "nothing was received");
        }
        adder.join().unwrap();
        assert!(uwork::panics() >= before + round);
        // The ring is unchanged.
        client.write_all(b"after it").unwrap();
        assert_eq!(completion(&mut reactor).buffer(), Some(&b"after it"[..]));
    }
}

#[test]
fn more_operations_than_entries_are_submitted_early() {
    let _watchdog = watchdog();
    let mut reactor = Reactor::builder().entries(4).build().unwrap();
    for token in 0..1_000 {
        let nop = io_uring::opcode::Nop::new().build().user_data(token);
        // SAFETY: no memory is involved.
        unsafe { reactor.push(nop).unwrap() };
    }
    let mut tokens: Vec<u64> = (0..1_000).map(|_| completion(&mut reactor).token()).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..1_000).collect::<Vec<_>>());
}

#[test]
fn invalid_arguments_are_refused_with_a_reason() {
    let _watchdog = watchdog();
    let refused = |builder: uwork::ring::Builder| builder.build().unwrap_err();
    for builder in [
        Reactor::builder().entries(0),
        Reactor::builder().entries(32_769),
        Reactor::builder().buffers(0, 16),
        Reactor::builder().buffers(3, 16),
        Reactor::builder().buffers(4, 0),
        Reactor::builder().buffers(4, u32::MAX),
    ] {
        assert_eq!(refused(builder).kind(), ErrorKind::InvalidInput);
    }
    let mut reactor = Reactor::builder().build().unwrap();
    assert_eq!(refused(Reactor::builder()).kind(), ErrorKind::InvalidInput, "one for a thread");
    let (_listener, _client, server) = connected();
    let error = reactor.recv_multi(&server, TOKEN_MAX + 1).unwrap_err();
    assert!(error.to_string().contains("is allowed"), "{error}");
    drop(reactor);
    assert!(Reactor::builder().build().is_ok());
}

/// Reactors are created and dropped while other threads send messages to them: no message reaches
/// the wrong ring.
#[test]
fn reactors_that_end_while_they_are_notified() {
    let _watchdog = watchdog();
    let ran = Arc::new(AtomicU32::new(0));
    let mut added = 0;
    for _ in 0..20 {
        let (send, receive) = channel();
        let thread = std::thread::spawn(move || -> io::Result<()> {
            task::set_delivery(Delivery::Light).map_err(io::Error::other)?;
            send.send(TaskHandle::current()).map_err(io::Error::other)?;
            for _ in 0..10 {
                let mut reactor = Reactor::builder().build()?;
                reactor.wait(Some(Duration::from_micros(100)))?;
                assert!(reactor.next().is_none());
            }
            Ok(())
        });
        let handle = receive.recv().unwrap();
        loop {
            let ran = ran.clone();
            let run = move || _ = ran.fetch_add(1, Ordering::Relaxed);
            match handle.add_fn(Notify::Signal, run) {
                Ok(()) => added += 1,
                Err(_) => break,
            }
        }
        within("the thread ends", move || thread.join().unwrap().unwrap());
    }
    assert_eq!(ran.load(Ordering::Relaxed), added);
}

#[test]
fn unclaimed_descriptors_are_closed() {
    let _watchdog = watchdog();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // More connections than the completion queue has room for.
    let mut reactor = Reactor::builder().entries(1).build().unwrap();
    for token in 0..8 {
        reactor.accept_multi(&listener, token).unwrap();
        reactor.submit().unwrap();
    }
    let mut clients: Vec<_> = (0..32).map(|_| TcpStream::connect(address).unwrap()).collect();
    let taken = completion(&mut reactor);
    assert!(taken.result().unwrap() > 2);
    // Dropping the completion closes the first one, the end of the reactor the others.
    drop(taken);
    drop(reactor);
    drop(listener);
    for client in &mut clients {
        client.set_read_timeout(Some(WAIT_CAP)).unwrap();
        let end = client.read(&mut [0; 1]);
        let closed = end.as_ref().is_ok_and(|&bytes| bytes == 0)
            || end.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
        assert!(closed, "{end:?} on {}", client.as_raw_fd());
    }
}

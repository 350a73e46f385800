//! Slow readers, slow writers, half-closed sockets, and many connections.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uwork_serve::{Config, Io, Receiver};

use crate::client::{Client, config, info, request, start, wait_for_info, with_each};
use crate::refused::in_child;

#[test]
fn a_half_closed_client_gets_all_replies() {
    with_each(|server| {
        let mut client = Client::new(server);
        client.send("SET a 1\r\nDIGEST a\r\n");
        client.send("INCR a\r\n".repeat(1000));
        client.sends_no_more();
        let replies = String::from_utf8(client.rest()).unwrap();
        assert!(replies.starts_with("+OK\r\n$64\r\n"));
        assert!(replies.ends_with(":1000\r\n:1001\r\n"));
    });
}

#[test]
fn a_slow_reader_gets_all_replies_and_holds_little_memory() {
    // Far less than the requested output. A buffer below a few segments of the loopback interface
    // would make every exchange wait for a delayed ACK.
    let small = Some(128 * 1024);
    for threads in [1, 3] {
        let config = Config { send_buffer: small, receive_buffer: small, ..config(threads) };
        let server = start(config);
        let (mut slow, mut other) = (Client::new(&server), Client::new(&server));
        let value = vec![b'v'; 100_000];
        slow.ask(request(&[&b"SET"[..], b"a", &value]), "+OK\r\n");
        let requests = request(&["GET", "a"]).repeat(400);
        let mut writer = Client(slow.0.try_clone().unwrap());
        let sender = std::thread::spawn(move || writer.send(requests));
        // Forty megabytes of replies are requested; the server holds far less of them.
        wait_for_info(&mut other, "total_commands_processed", |count| count >= 5);
        for _ in 0..200 {
            let used = info(&mut other, "used_memory");
            assert!(used < 12 << 20, "{used}");
        }
        for _ in 0..400 {
            assert_eq!(slow.bulk(), value);
        }
        sender.join().unwrap();
    }
}

#[test]
fn the_server_stops_receiving_from_a_client_that_does_not_read() {
    const MOST: usize = 64 << 20;
    let small = Some(16 * 1024);
    for (receiver, io) in [
        (Receiver::Shared, Io::Auto),
        (Receiver::Shared, Io::Epoll),
        (Receiver::Dedicated, Io::Auto),
        (Receiver::Dedicated, Io::Epoll),
    ] {
        let config =
            Config { receiver, io, send_buffer: small, receive_buffer: small, ..config(2) };
        let server = start(config);
        let (mut slow, mut other) = (Client::new(&server), Client::new(&server));
        let value = vec![b'v'; 100_000];
        slow.ask(request(&[&b"SET"[..], b"a", &value]), "+OK\r\n");
        // Writes until the socket buffers are full; after that the server reads nothing.
        slow.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let requests = request(&["GET", "a"]).repeat(100);
        let mut sent = 0;
        while sent < MOST {
            match slow.0.write(&requests[sent % requests.len()..]) {
                Ok(len) => sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(sent < MOST, "the server reads without a limit");
        let used = info(&mut other, "used_memory");
        assert!(used < 12 << 20, "{used}");
        for _ in 0..5 {
            assert_eq!(slow.bulk(), value);
        }
    }
}

#[test]
fn a_client_that_disconnects_in_a_request_leaks_nothing() {
    with_each(|server| {
        let mut other = Client::new(server);
        for number in 0..50 {
            let mut client = Client::new(server);
            client.send("*2\r\n$3\r\nGET\r\n$10\r\nabc");
            let mut client = Client::new(server);
            client.send(format!("SET {number} abc\r\nDIGEST {number}\r\n").repeat(20));
        }
        wait_for_info(&mut other, "connected_clients", |clients| clients <= 1);
        other.ask("PING\r\n", "+PONG\r\n");
    });
}

#[test]
fn ten_thousand_connections_open_and_close() {
    // The descriptors of the process are few.
    if in_child("peers::ten_thousand_connections_open_and_close").is_some() {
        return;
    }
    let server = start(config(2));
    let mut other = Client::new(&server);
    let mut kept = Vec::new();
    for number in 0..10_000 {
        let stream = TcpStream::connect(server.address()).unwrap();
        // Some send requests, some stay for a while, most disconnect at once.
        if number % 100 == 0 {
            let mut client = Client(stream);
            client.ask("PING\r\n", "+PONG\r\n");
            kept.push(client);
            // Descriptors of connections that the server has not closed yet are in use.
            let kept = kept.len() as u64;
            wait_for_info(&mut other, "connected_clients", |clients| clients <= kept + 100);
        }
    }
    for client in &mut kept {
        client.ask("PING\r\n", "+PONG\r\n");
    }
    drop(kept);
    wait_for_info(&mut other, "total_connections_received", |connections| connections >= 10_001);
    wait_for_info(&mut other, "connected_clients", |clients| clients <= 1);
    assert_eq!(info(&mut other, "total_connections_received"), 10_001);
}

/// Ten thousand, or as many as the system allows. Each connection needs a descriptor on both sides.
fn many() -> usize {
    const WANTED: u64 = 21_000;
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(WANTED);
    let raise =
        |most| setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) });
    // Only a privileged process may raise the hard limit.
    let most = if raise(WANTED.max(allowed)).is_ok() { WANTED.max(allowed) } else { allowed };
    raise(most).unwrap();
    (most.saturating_sub(1_000) as usize / 2).min(10_000)
}

#[test]
fn ten_thousand_connections_at_once_are_served_and_dropped() {
    if in_child("peers::ten_thousand_connections_at_once_are_served_and_dropped").is_some() {
        return;
    }
    let many = many();
    for io in [Io::Auto, Io::Epoll] {
        let clients_max = many + 1;
        let server = start(Config { clients_max, io, ..config(2) });
        assert_eq!(server.notes(), [] as [&str; 0]);
        let mut other = Client::new(&server);
        let before = info(&mut other, "used_memory");
        let mut clients: Vec<Client> = (0..many).map(|_| Client::new(&server)).collect();
        wait_for_info(&mut other, "connected_clients", |clients| clients > many as u64);
        for (number, client) in clients.iter_mut().enumerate().step_by(7) {
            client.ask(format!("ECHO {number:06}\r\n"), format!("$6\r\n{number:06}\r\n"));
        }
        // Incomplete requests, and replies that no client reads.
        clients.iter_mut().skip(1).step_by(7).for_each(|client| client.send("*2\r\n$3\r\nGET"));
        clients.iter_mut().skip(2).step_by(7).for_each(|client| client.send("PING\r\n"));
        drop(clients);
        wait_for_info(&mut other, "connected_clients", |clients| clients <= 1);
        wait_for_info(&mut other, "used_memory", |bytes| bytes < before + (16 << 20));
        server.stop().unwrap();
    }
}

//! Slow readers and writers, half-closed sockets, and many connections.

use std::net::TcpStream;

use uwork_serve::Config;

use crate::client::{Client, config, info, request, start, with_each};

#[test]
fn who_sends_no_more_gets_all_replies() {
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
fn a_slow_reader_is_waited_for_and_takes_no_more_than_a_bit() {
    let small = Some(16 * 1024);
    for threads in [1, 3] {
        let config = Config { send_buffer: small, receive_buffer: small, ..config(threads) };
        let server = start(config);
        let (mut slow, mut other) = (Client::new(&server), Client::new(&server));
        let value = vec![b'v'; 100_000];
        slow.ask(request(&[&b"SET"[..], b"a", &value]), "+OK\r\n");
        let requests = request(&["GET", "a"]).repeat(400);
        let mut writer = Client(slow.0.try_clone().unwrap());
        let sender = std::thread::spawn(move || writer.send(requests));
        // Forty megabytes of replies are wanted; far less is held for them.
        while info(&mut other, "total_commands_processed") < 5 {}
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
fn who_goes_in_the_middle_leaves_nothing_behind() {
    with_each(|server| {
        let mut other = Client::new(server);
        for number in 0..50 {
            let mut client = Client::new(server);
            client.send("*2\r\n$3\r\nGET\r\n$10\r\nabc");
            let mut client = Client::new(server);
            client.send(format!("SET {number} abc\r\nDIGEST {number}\r\n").repeat(20));
        }
        while info(&mut other, "connected_clients") > 1 {}
        other.ask("PING\r\n", "+PONG\r\n");
    });
}

#[test]
fn ten_thousand_connections_come_and_go() {
    let server = start(config(2));
    let mut other = Client::new(&server);
    let mut kept = Vec::new();
    for number in 0..10_000 {
        let stream = TcpStream::connect(server.address()).unwrap();
        // Some say something, some stay for a while, most just go.
        if number % 100 == 0 {
            let mut client = Client(stream);
            client.ask("PING\r\n", "+PONG\r\n");
            kept.push(client);
        }
    }
    for client in &mut kept {
        client.ask("PING\r\n", "+PONG\r\n");
    }
    drop(kept);
    while info(&mut other, "connected_clients") > 1 {}
    assert_eq!(info(&mut other, "total_connections_received"), 10_001);
}

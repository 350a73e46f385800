//! The limits on clients, memory, idle time and socket buffers.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use uwork_serve::{Config, ForeignKeys, Io, Receiver};

use crate::client::{Client, config, info, request, start, wait_for_info};
use crate::patience::until;

#[test]
fn a_client_beyond_the_limit_is_refused_until_another_disconnects() {
    let server = start(Config { clients_max: 3, ..config(2) });
    let mut clients: Vec<Client> = (0..3).map(|_| Client::new(&server)).collect();
    clients.iter_mut().for_each(|client| client.ask("PING\r\n", "+PONG\r\n"));
    let mut refused = Client::new(&server);
    assert_eq!(refused.rest(), b"-ERR max number of clients reached\r\n");
    assert_eq!(info(&mut clients[0], "rejected_connections"), 1);
    drop(clients.pop());
    wait_for_info(&mut clients[0], "connected_clients", |clients| clients <= 2);
    Client::new(&server).ask("PING\r\n", "+PONG\r\n");
}

#[test]
fn memory_stays_within_its_limit() {
    const LIMIT: usize = 8 << 20;
    let server = start(Config { memory_max: LIMIT, ..config(3) });
    let mut client = Client::new(&server);
    let value = vec![b'v'; 100_000];
    let (mut stored, mut last) = (0, "+OK".to_owned());
    while last == "+OK" {
        let set = request(&[&b"SET"[..], format!("key{stored}").as_bytes(), &value]);
        // Fails if the server refuses the request before it has all of it.
        let _ = client.0.write_all(&set);
        last = client.line();
        stored += 1;
    }
    assert_eq!(last, "-OOM command not allowed when used memory > 'maxmemory'.");
    assert!(stored > 50, "{stored}");
    // A request that arrives in pieces and cannot be stored ends its connection.
    let mut client = Client::new(&server);
    assert!(info(&mut client, "used_memory") <= LIMIT as u64);
    // Stored values can be read and removed, which frees memory for new values.
    client.ask("DEL key0 key1 key2\r\n", ":3\r\n");
    client.ask(request(&[&b"SET"[..], b"key0", &value]), "+OK\r\n");
    client.ask("MSET small 1\r\n", "+OK\r\n");
}

#[test]
fn commands_that_free_memory_work_with_no_memory_left() {
    for (receiver, foreign_keys) in [
        (Receiver::Shared, ForeignKeys::InPlace),
        (Receiver::Shared, ForeignKeys::HandedOver),
        (Receiver::Dedicated, ForeignKeys::HandedOver),
    ] {
        let config = Config { memory_max: 2 << 20, receiver, foreign_keys, ..config(3) };
        let server = start(config);
        let mut client = Client::new(&server);
        let mut number = 0;
        for size in [3_000, 300, 30, 1] {
            let mut last = "+OK".to_owned();
            // Several attempts, because each thread has its own keys, and one thread's table may
            // run out of room first.
            let mut refused = 0;
            while refused < 50 {
                let key = format!("{number:08}");
                let set = request(&[&b"SET"[..], key.as_bytes(), &vec![b'v'; size]]);
                // Fails if the server has closed the connection.
                let _ = client.0.write_all(&set);
                // A request that arrives before the connection is ready for it, and that cannot be
                // stored, ends the connection.
                last = client.line_or_end().unwrap_or_else(|| {
                    client = Client::new(&server);
                    "-OOM and the end".to_owned()
                });
                number += 1;
                refused += usize::from(last != "+OK");
            }
            assert!(last.starts_with("-OOM "), "{last}");
        }
        // New connections, without any buffers.
        client = Client::new(&server);
        Client::new(&server).ask("DEL 00000000 00000001 00000002\r\n", ":3\r\n");
        Client::new(&server).ask("FLUSHALL\r\n", "+OK\r\n");
        // FLUSHALL frees the memory of many keys on a worker.
        wait_for_info(&mut client, "used_memory", |bytes| bytes <= 1 << 20);
        client.ask("SET a 1\r\n", "+OK\r\n");
    }
}

#[test]
fn a_reply_that_does_not_fit_into_memory_fails_only_its_own_request() {
    let server = start(Config { memory_max: 4 << 20, ..config(2) });
    let mut client = Client::new(&server);
    let value = vec![b'v'; 1 << 20];
    client.ask(request(&[&b"SET"[..], b"a", &value]), "+OK\r\n");
    let keys = ["MGET", "a", "a", "a", "a", "a", "a", "a", "a"];
    client.send(request(&keys));
    // Either every value that fits is returned, or none, and the connection ends.
    let rest = "-OOM command not allowed when used memory > 'maxmemory'.";
    match client.line().as_str() {
        "*8" => {
            client.sends_no_more();
            let replies = String::from_utf8(client.rest()).unwrap();
            assert!(replies.contains(rest));
        }
        other => assert_eq!(other, rest),
    }
    let mut client = Client::new(&server);
    client.send("GET a\r\n");
    assert_eq!(client.bulk().len(), 1 << 20);
}

#[test]
fn incomplete_requests_stay_within_the_memory_limit() {
    let server = start(Config { memory_max: 2 << 20, ..config(2) });
    let mut clients: Vec<Client> = (0..24).map(|_| Client::new(&server)).collect();
    for client in &mut clients {
        client.send("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1000000\r\n");
        client.send(vec![b'v'; 100_000]);
    }
    let mut other = Client::new(&server);
    // The memory does not suffice for all of them.
    until("a request is refused", || {
        // Beyond the limit, each connection may have what a command needs that frees memory.
        let used = info(&mut other, "used_memory");
        assert!(used <= (2 << 20) + 25 * 4096, "{used}");
        clients.iter().any(Client::has_input)
    });
    for client in &mut clients {
        client.sends_no_more();
        let reply = client.rest();
        assert!(reply.is_empty() || reply.starts_with(b"-OOM "), "{}", reply.escape_ascii());
    }
}

#[test]
fn idle_connections_are_closed_and_busy_ones_are_not() {
    const IDLE_MAX: Duration = Duration::from_secs(1);
    for (receiver, io) in [
        (Receiver::Shared, Io::Auto),
        (Receiver::Shared, Io::Epoll),
        (Receiver::Dedicated, Io::Auto),
        (Receiver::Dedicated, Io::Epoll),
    ] {
        let server = start(Config { idle_max: Some(IDLE_MAX), receiver, io, ..config(2) });
        let (mut idle, mut busy) = (Client::new(&server), Client::new(&server));
        // With a dedicated receiver, another thread sends the reply.
        idle.ask("SET a 1\r\n", "+OK\r\n");
        let watcher = std::thread::spawn(move || idle.rest());
        let mut sent = Instant::now();
        while !watcher.is_finished() {
            let last = std::mem::replace(&mut sent, Instant::now());
            if busy.0.write_all(b"GET a\r\n").is_err()
                || busy.bytes().read(&mut [0; 7]).ok() != Some(7)
            {
                // This thread did not run for so long that the connection was idle.
                assert!(last.elapsed() >= IDLE_MAX, "closed {:?} after a request", last.elapsed());
                (busy, sent) = (Client::new(&server), Instant::now());
            }
        }
        assert_eq!(watcher.join().unwrap(), b"");
    }
}

#[test]
fn settings_out_of_range_are_refused_with_the_range() {
    let refused = |config| uwork_serve::Server::start(config).unwrap_err().to_string();
    assert_eq!(refused(config(0)), "threads 0: 1 to 256 are allowed");
    let too_large = Config { request_max: 2 << 30, ..config(1) };
    assert_eq!(refused(too_large), "bytes of a request 2147483648: 1024 to 1073741824 are allowed");
    let server = start(config(1));
    let taken = refused(Config { address: server.address(), ..config(1) });
    assert!(taken.starts_with("cannot listen on 127.0.0.1:"), "{taken}");
}

#[test]
fn an_out_of_memory_error_follows_the_pending_replies() {
    const BIG: usize = 8 << 20;
    for receiver in [Receiver::Shared, Receiver::Dedicated] {
        let server = start(Config { memory_max: 48 << 20, receiver, ..config(2) });
        let mut client = Client::new(&server);
        client.ask(request(&[&b"SET"[..], b"big", &vec![b'x'; BIG]]), "+OK\r\n");
        client.ask(request(&[&b"SET"[..], b"hole", &vec![b'x'; BIG + 30_000]]), "+OK\r\n");
        // Fills the rest of the memory, so that only the gap left on purpose is free.
        let mut number = 0;
        for size in [100_000, 10_000, 1_000, 100] {
            let value = vec![b'z'; size];
            loop {
                client.send(request(&[&b"SET"[..], format!("f{number}").as_bytes(), &value]));
                number += 1;
                match client.bytes().read(&mut [0; 100]) {
                    Ok(5) => {}
                    // An error, or the end of the connection.
                    _ => break,
                }
            }
            client = Client::new(&server);
        }
        client.ask("DEL hole\r\n", ":1\r\n");
        let mut other = Client::new(&server);
        for _ in 0..10 {
            let mut client = Client::new(&server);
            client.send("DIGEST big\r\n");
            // By then the value is usually on its way to the worker.
            other.ask("PING\r\n", "+PONG\r\n");
            let input = request(&[&b"SET"[..], b"k", &vec![b'y'; 200_000]]);
            // The server may close the connection before it has read everything.
            let _ = client.0.write_all(&input);
            client.sends_no_more();
            let replies = client.rest();
            let error = replies.iter().position(|&byte| byte == b'-').unwrap_or(replies.len());
            // The digest must not follow the error.
            assert!(!replies[error..].contains(&b'$'), "{}", replies.escape_ascii());
        }
    }
}

#[test]
fn empty_arguments_are_charged_too() {
    let server = start(Config { memory_max: 2 << 20, ..config(2) });
    let mut client = Client::new(&server);
    let arguments = "$0\r\n\r\n".repeat(140_000);
    // The text takes at most a megabyte, the argument positions more. The last argument never
    // arrives.
    let _ = client.0.write_all(format!("*150000\r\n{arguments}").as_bytes());
    client.sends_no_more();
    let replies = client.rest();
    assert!(replies.starts_with(b"-OOM "), "{}", replies.escape_ascii());
}

#[test]
fn the_quotation_of_an_unknown_option_is_as_short_as_of_a_name() {
    let server = start(config(2));
    let long = "x".repeat(100_000);
    for (input, start) in [
        (request(&["HELLO", "3", &long]), "-ERR Syntax error in HELLO option '"),
        (request(&["CLIENT", "SETINFO", &long, "x"]), "-ERR Unrecognized option '"),
    ] {
        Client::new(&server).ask(input, format!("{start}{}'\r\n", "x".repeat(128)));
    }
}

// Catches: replies as large as their requests, or larger, that are charged only after allocation.
#[test]
fn no_reply_exceeds_the_memory_limit() {
    const LIMIT: usize = 16 << 20;
    let info = request(&[&["COMMAND", "INFO"][..], &["get"; 300_000]].concat());
    let docs = request(&[&["COMMAND", "DOCS"][..], &["get"; 300_000]].concat());
    let echo = request(&[&b"ECHO"[..], &vec![b'x'; 10 << 20]]);
    for receiver in [Receiver::Shared, Receiver::Dedicated] {
        let server = start(Config { memory_max: LIMIT, receiver, ..config(2) });
        let mut client = Client::new(&server);
        for request in [&info, &docs, &echo] {
            client.send(request);
            assert!(client.line().starts_with("-OOM "));
            client.ask("PING\r\n", "+PONG\r\n");
        }
        // With enough memory, the same requests succeed.
        client.ask(
            request(&["ECHO", &"x".repeat(1 << 20)]),
            format!("$1048576\r\n{}\r\n", "x".repeat(1 << 20)),
        );
        client.ask("COMMAND INFO nothing get\r\n", "*2\r\n$-1\r\n*10\r\n$3\r\nget\r\n");
    }
}

// Catches: spare memory of threads that stays charged forever in a server without keys and clients.
#[test]
fn memory_used_by_disconnected_clients_is_available_to_others() {
    const LIMIT: usize = 4 << 20;
    for receiver in [Receiver::Shared, Receiver::Dedicated] {
        let server = start(Config { memory_max: LIMIT, receiver, ..config(2) });
        let pieces: Vec<Vec<u8>> = (0..4)
            .map(|key| request(&[&b"SET"[..], format!("key{key}").as_bytes(), &vec![b'v'; 12_000]]))
            .chain((0..4).map(|key| request(&["GET", &format!("key{key}")])))
            .collect();
        for _ in 0..3 {
            let mut clients: Vec<Client> = (0..200).map(|_| Client::new(&server)).collect();
            for client in &mut clients {
                // Some of them are refused and closed.
                let _ = client.0.write_all(&pieces.concat());
            }
            for client in &mut clients {
                client.sends_no_more();
                client.rest();
            }
        }
        let mut client = Client::new(&server);
        wait_for_info(&mut client, "connected_clients", |clients| clients <= 1);
        client.ask("FLUSHALL\r\n", "+OK\r\n");
        // The memory of the keys is freed on a worker.
        let rest = (LIMIT / 32 + 64 * 1024) as u64;
        wait_for_info(&mut client, "used_memory", |bytes| bytes <= rest);
        // Arrives in at least two pieces, so the server stores it once more as received input.
        let value = vec![b'v'; LIMIT / 4];
        client.ask(request(&[&b"SET"[..], b"key", &value]), "+OK\r\n");
    }
}

// Catches: announced lengths that are charged at once, so that a few bytes claim all memory.
#[test]
fn an_announced_length_reserves_no_memory() {
    let server = start(Config { memory_max: 8 << 20, ..config(2) });
    let mut clients: Vec<Client> = (0..20).map(|_| Client::new(&server)).collect();
    for client in &mut clients {
        client.ask("PING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$7000000\r\nx", "+PONG\r\n");
    }
    let mut other = Client::new(&server);
    let used = info(&mut other, "used_memory");
    assert!(used < 1 << 20, "{used}");
    other.ask(request(&[&b"SET"[..], b"a", &vec![b'v'; 1 << 20]]), "+OK\r\n");
    // A value that arrives in many pieces is stored nevertheless.
    let value = vec![b'y'; 1_000_000];
    clients.truncate(1);
    let mut client = Client::new(&server);
    client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nb\r\n${}\r\n", value.len()));
    value.chunks(70_000).for_each(|piece| client.send(piece));
    client.ask("\r\nGET b\r\n", "+OK\r\n");
    assert_eq!(client.bulk(), value);
}

//! Input that is not a request, or exceeds a limit.

use std::io::Write;

use uwork_serve::Config;

use crate::client::{Client, config, is_closed, request, start, with_each};

/// Checks that other clients of the server are unaffected.
fn others_are_served(server: &uwork_serve::Server) {
    let mut other = Client::new(server);
    other.ask("SET other 1\r\nGET other\r\n", "+OK\r\n$1\r\n1\r\n");
}

#[test]
fn errors_are_worded_as_by_redis_and_end_the_connection() {
    with_each(|server| {
        for (input, reply) in [
            ("*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
            ("*9223372036854775808\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
            ("*1\r\n$-2\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
            ("*1\r\n$9223372036854775808\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
            ("*1\r\n*1\r\n", "-ERR Protocol error: expected '$', got '*'\r\n"),
            ("GET 'a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        ] {
            let mut client = Client::new(server);
            client.send(format!("SET a 1\r\nGET a\r\n{input}"));
            client.expect("+OK\r\n$1\r\n1\r\n");
            client.expect(reply);
            assert_eq!(client.rest(), b"");
        }
        others_are_served(server);
    });
}

#[test]
fn counts_below_one_request_nothing() {
    with_each(|server| {
        Client::new(server).ask("*-2\r\n*0\r\n\r\n*-1\r\nPING\r\n", "+PONG\r\n");
    });
}

#[test]
fn an_incomplete_request_waits_until_its_client_disconnects() {
    with_each(|server| {
        let request = request(&["SET", "key", "value"]);
        for cut in 0..=request.len() {
            let mut client = Client::new(server);
            client.send(&request[..cut]);
            client.sends_no_more();
            let reply: &[u8] = if cut == request.len() { b"+OK\r\n" } else { b"" };
            assert_eq!(client.rest(), reply, "cut at {cut}");
        }
        let mut client = Client::new(server);
        for byte in &request {
            client.send([*byte]);
        }
        client.expect("+OK\r\n");
    });
}

#[test]
fn an_inline_request_of_64_mib_is_refused() {
    with_each(|server| {
        let mut client = Client::new(server);
        let piece = vec![b'a'; 1 << 20];
        for _ in 0..64 {
            match client.0.write_all(&piece) {
                Ok(()) => {}
                Err(error) if is_closed(&error) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let reply = client.rest();
        let expected = b"-ERR Protocol error: too big inline request\r\n";
        // If a connection is closed while input still arrives, the last output may be lost.
        assert!(reply == expected || reply.is_empty(), "{}", reply.escape_ascii());
        others_are_served(server);
    });
}

#[test]
fn arrays_nested_deeply_are_refused() {
    with_each(|server| {
        let mut client = Client::new(server);
        client.send("*1\r\n".repeat(1000));
        let reply = client.rest();
        assert!(reply.is_empty() || reply == b"-ERR Protocol error: expected '$', got '*'\r\n");
        others_are_served(server);
    });
}

#[test]
fn a_request_that_is_too_large_is_refused_when_its_length_is_known() {
    let server = start(Config { request_max: 1 << 20, ..config(2) });
    let mut client = Client::new(&server);
    client.send("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1048577\r\n");
    client.expect("-ERR Protocol error: invalid bulk length\r\n");
    assert_eq!(client.rest(), b"");
    let mut client = Client::new(&server);
    let half = vec![b'v'; 600_000];
    client.send(request(&[&b"MSET"[..], b"a", &half]));
    let start = "*3\r\n$4\r\nMSET\r\n$600000\r\n";
    client.expect("+OK\r\n");
    client.send(start);
    client.send(&half);
    client.send("\r\n$600000\r\n");
    client.expect("-ERR Protocol error: too big request\r\n");
    assert_eq!(client.rest(), b"");
}

#[test]
fn http_is_not_parsed_behind_its_first_lines() {
    with_each(|server| {
        for head in ["POST / HTTP/1.1\r\n", "get / HTTP/1.1\r\nhost: a\r\n"] {
            let mut client = Client::new(server);
            client.send(format!("{head}\r\nSET stolen 1\r\n"));
            let replies = String::from_utf8(client.rest()).unwrap();
            assert!(!replies.contains("+OK"), "{replies}");
        }
        Client::new(server).ask("EXISTS stolen\r\n", ":0\r\n");
        others_are_served(server);
    });
}

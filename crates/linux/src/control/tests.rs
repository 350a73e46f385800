//! A connection without the thread: what it keeps, and when it drops its client.

use std::io::Read;
use std::io::Write;

use super::*;

struct Echo;

impl Service for Echo {
    fn greeting(&self) -> String {
        String::new()
    }

    fn answer(&self, request: &str) -> String {
        match request {
            "huge" => "x".repeat(OUTPUT_MAX + 1),
            "long" => "x".repeat(OUTPUT_MAX),
            _ => format!("{request}\n"),
        }
    }

    fn refuse(&self, reason: &str) -> String {
        format!("refused: {reason}\n")
    }
}

/// A connection, its client, and the present time.
fn pair() -> (Connection, UnixStream, Instant) {
    let (server, client) = UnixStream::pair().expect("a pair");
    server.set_nonblocking(true).expect("a socket");
    let now = Instant::now();
    (Connection::new(server, String::new(), now), client, now)
}

#[test]
fn a_client_that_reads_nothing_of_its_answer_is_dropped() {
    let (mut connection, mut client, now) = pair();
    client.write_all(b"long\nnext\n").expect("room");
    assert_eq!(connection.serve(&Echo, now), Fate::Stays);
    assert_eq!(connection.wants(), libc::POLLOUT);
    let almost = now + PATIENCE - Duration::from_millis(1);
    assert_eq!(connection.serve(&Echo, almost), Fate::Stays);
    // Any read that makes room counts.
    client.set_nonblocking(true).expect("a socket");
    while client.read(&mut [0; 1 << 14]).is_ok() {}
    assert_eq!(connection.serve(&Echo, almost), Fate::Stays);
    assert_eq!(connection.serve(&Echo, now + PATIENCE), Fate::Stays);
    assert_eq!(connection.serve(&Echo, almost + PATIENCE), Fate::Ends);
}

#[test]
fn an_idle_client_is_not_dropped() {
    let (mut connection, mut client, now) = pair();
    client.write_all(b"half").expect("room");
    let later = now + PATIENCE * 1_000;
    assert_eq!(connection.serve(&Echo, later), Fate::Stays);
    assert_eq!((connection.drop_at(), connection.wants()), (None, libc::POLLIN));
    client.write_all(b" a line\n").expect("room");
    assert_eq!(connection.serve(&Echo, later), Fate::Stays);
    let mut answer = [0; 12];
    client.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"half a line\n");
}

#[test]
fn an_answer_beyond_the_bound_is_refused() {
    let (mut connection, mut client, now) = pair();
    client.write_all(b"huge\nnext\n").expect("room");
    assert_eq!(connection.serve(&Echo, now), Fate::Stays);
    drop(connection);
    let mut all = String::new();
    client.read_to_string(&mut all).expect("UTF-8");
    assert_eq!(all, format!("refused: the answer has more than {OUTPUT_MAX} bytes\nnext\n"));
}

#[test]
fn input_is_bounded_by_a_line() {
    let (mut connection, mut client, now) = pair();
    client.write_all(&[b'x'; LINE_MAX - 1]).expect("room");
    assert_eq!(connection.serve(&Echo, now), Fate::Stays);
    assert_eq!(connection.input.len(), LINE_MAX - 1);
    client.write_all(b"\nnext\n").expect("room");
    assert_eq!(connection.serve(&Echo, now), Fate::Stays);
    assert!(connection.input.is_empty());
    client.write_all(&[b'x'; LINE_MAX + 1]).expect("room");
    assert_eq!(connection.serve(&Echo, now), Fate::Ends);
    drop(connection);
    let mut all = Vec::new();
    // The rest of the line was not read, which the system may report as a reset.
    let _ = client.read_to_end(&mut all);
    assert!(all.ends_with(b"next\nrefused: a line has at most 4096 bytes\n"));
}

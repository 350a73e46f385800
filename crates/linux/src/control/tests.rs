//! A connection without the thread: what it keeps, and when it drops its client.

use std::io::Read;
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;

use proptest::collection;
use proptest::prelude::*;

use super::*;
use crate::descriptor::Expected;

struct Echo;

impl Service for Echo {
    fn greeting(&self) -> String {
        String::new()
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(Echo)
    }

    fn refuse(&self, reason: &str) -> String {
        format!("refused: {reason}\n")
    }
}

impl Session for Echo {
    fn answer(&mut self, request: &str) -> String {
        match request {
            "huge" => "x".repeat(OUTPUT_MAX + 1),
            "long" => "x".repeat(OUTPUT_MAX),
            _ => format!("{request}\n"),
        }
    }

    fn is_busy(&self) -> bool {
        false
    }
}

/// A connection, its client, and the present time.
fn pair() -> (Connection, UnixStream, Instant) {
    let (server, client) = UnixStream::pair().expect("a pair");
    let server = OwnDescriptor::open(Expected::Socket, || server.into_raw_fd()).expect("room");
    let now = Instant::now();
    (Connection::new(server, &Echo, now), client, now)
}

/// As many turns as there is something to do in.
fn serve_all(connection: &mut Connection, now: Instant) -> Fate {
    loop {
        let fate = connection.serve(&Echo, now);
        if fate == Fate::Ends || !connection.is_due() {
            return fate;
        }
    }
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
    assert_eq!(serve_all(&mut connection, now), Fate::Stays);
    drop(connection);
    let mut all = String::new();
    client.read_to_string(&mut all).expect("UTF-8");
    assert_eq!(all, format!("refused: the answer has more than {OUTPUT_MAX} bytes\nnext\n"));
}

#[test]
fn input_is_bounded_by_a_line() {
    let (mut connection, mut client, now) = pair();
    client.write_all(&[b'x'; LINE_MAX - 1]).expect("room");
    assert_eq!(serve_all(&mut connection, now), Fate::Stays);
    assert_eq!(connection.input.len(), LINE_MAX - 1);
    client.write_all(b"\nnext\n").expect("room");
    assert_eq!(serve_all(&mut connection, now), Fate::Stays);
    assert!(connection.input.is_empty());
    client.write_all(&[b'x'; LINE_MAX + 1]).expect("room");
    assert_eq!(serve_all(&mut connection, now), Fate::Ends);
    drop(connection);
    let mut all = Vec::new();
    // The rest of the line was not read, which the system may report as a reset.
    let _ = client.read_to_end(&mut all);
    assert!(all.ends_with(b"next\nrefused: a line has at most 4096 bytes\n"));
}

/// The output for this input, and whether the connection ends.
fn expected(mut input: &[u8]) -> (String, bool) {
    let mut output = String::new();
    loop {
        let window = &input[..input.len().min(LINE_MAX)];
        let Some(end) = window.iter().position(|&byte| byte == b'\n') else {
            let is_too_long = window.len() == LINE_MAX;
            if is_too_long {
                output += &Echo.refuse(&format!("a line has at most {LINE_MAX} bytes"));
            }
            return (output, is_too_long);
        };
        let Ok(line) = std::str::from_utf8(&window[..end]) else {
            return (output + &Echo.refuse("a line is UTF-8"), true);
        };
        output += &Session::answer(&mut Echo, line.strip_suffix('\r').unwrap_or(line));
        input = &input[end + 1..];
    }
}

/// What a client may send in a piece.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), b'a'..=b'c'], 0..20),
        1 => collection::vec(0_u8.., 0..20),
        1 => (LINE_MAX - 2..LINE_MAX + 2).prop_map(|length| vec![b'x'; length]),
    ]
}

proptest! {
    #[test]
    fn any_pieces_of_lines_get_their_answers_in_order(pieces in collection::vec(piece(), 0..12)) {
        let (mut connection, mut client, now) = pair();
        client.set_nonblocking(true).expect("a socket");
        let (mut sent, mut read, mut fate) = (Vec::new(), Vec::new(), Fate::Stays);
        for piece in pieces {
            client.write_all(&piece).expect("room, as all answers are read");
            sent.extend(piece);
            fate = serve_all(&mut connection, now);
            let _ = client.read_to_end(&mut read);
            assert!(connection.input.len() <= LINE_MAX);
            if fate == Fate::Ends {
                break;
            }
        }
        drop(connection);
        let _ = client.read_to_end(&mut read);
        let (output, ends) = expected(&sent);
        assert_eq!((String::from_utf8_lossy(&read), fate == Fate::Ends), (output.into(), ends));
    }
}

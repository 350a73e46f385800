//! Digests of one connection are computed concurrently. The test freezes queues, which affects the
//! whole process.

use std::io::{Read, Write};
use std::net::TcpStream;

use uwork_serve::{Config, ForeignKeys, Io, Notify, Receiver, Server};

use crate::client::{LOOK_EVERY, Patient};
use crate::patience::until;
use crate::refused::in_child;

/// The digest of "abc".
const DIGEST: &str = "$64\r\nba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\r\n";

fn expect(client: &mut TcpStream, expected: &str) {
    let mut got = vec![0; expected.len()];
    Patient(client).read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), expected);
}

/// How many digests workers still have to compute.
fn in_flight(client: &mut TcpStream) -> usize {
    const NAME: &str = "digests_in_flight:";
    client.write_all(b"INFO stats\r\n").unwrap();
    let mut text = String::new();
    let mut bytes = [0; 4096];
    while !text.ends_with("\r\n\r\n") {
        let len = Patient(&mut *client).read(&mut bytes).unwrap();
        text.push_str(std::str::from_utf8(&bytes[..len]).unwrap());
    }
    let line = text.lines().find_map(|line| line.strip_prefix(NAME)).expect("the figure");
    line.parse().unwrap()
}

#[test]
fn pipelined_digests_run_concurrently_and_reply_in_order() {
    if in_child("digest::pipelined_digests_run_concurrently_and_reply_in_order").is_some() {
        return;
    }
    let config = |threads, receiver, io, notify| Config {
        address: "127.0.0.1:0".parse().unwrap(),
        threads,
        receiver,
        io,
        notify,
        ..Config::default()
    };
    for config in [
        config(1, Receiver::Shared, Io::Auto, Notify::Light),
        config(3, Receiver::Shared, Io::Auto, Notify::Light),
        Config {
            foreign_keys: ForeignKeys::HandedOver,
            ..config(2, Receiver::Shared, Io::Epoll, Notify::Signal)
        },
        config(2, Receiver::Dedicated, Io::Auto, Notify::Light),
    ] {
        eprintln!("with {config:?}");
        let server = Server::start(config).unwrap();
        let connect = || TcpStream::connect(server.address()).unwrap();
        let (mut client, mut other) = (connect(), connect());
        client.set_read_timeout(Some(LOOK_EVERY)).unwrap();
        other.set_read_timeout(Some(LOOK_EVERY)).unwrap();
        let keys = 0..8;
        for key in keys.clone() {
            client.write_all(format!("SET {key} abc\r\n").as_bytes()).unwrap();
            expect(&mut client, "+OK\r\n");
        }
        // The server first learns the size of the values.
        for _ in 0..10 {
            client.write_all("DIGEST 1\r\n".repeat(8).as_bytes()).unwrap();
            expect(&mut client, &DIGEST.repeat(8));
        }
        // Each key changes right behind its digest, which must be that of the earlier value.
        let digest = |key| format!("DIGEST {key}\r\nSET {key} x\r\nGET {key}\r\n");
        let requests: String = keys.clone().map(digest).collect();
        uwork::freeze::begin().unwrap();
        client.write_all(requests.as_bytes()).unwrap();
        until("all digests are queued", || in_flight(&mut other) == keys.len());
        uwork::freeze::thaw().unwrap();
        expect(&mut client, &format!("{DIGEST}+OK\r\n$1\r\nx\r\n").repeat(keys.len()));
        assert_eq!(in_flight(&mut other), 0);
        server.stop().unwrap();
    }
}

//! Shutdown: the server answers the requests that it has received, and stops within a bounded time.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use uwork_serve::Config;

use crate::address::Address;
use crate::client::{Client, at, config, configs, request, start};
use crate::patience::{received, until};

/// A limit that is never reached: a busy machine needs long for what a stop has to answer.
const LONG: Duration = Duration::from_secs(3_600);

/// Asserts that no socket listens at the address, which no other process gets. A process that another
/// test starts has a copy of all sockets for the moment between its fork and its exec.
#[track_caller]
fn nothing_listens(address: &Address) {
    until("nothing listens", || TcpStream::connect(address.socket()).is_err());
}

#[test]
fn received_requests_are_answered() {
    for config in configs() {
        eprintln!("with {config:?}");
        let address = Address::reserve().unwrap();
        let server = start(at(&address, Config { drain_max: LONG, ..config }));
        let mut clients: Vec<Client> = (0..20).map(|_| Client::new(&server)).collect();
        for client in &mut clients {
            client.ask("SET a abc\r\n", "+OK\r\n");
        }
        let requests = "DIGEST a\r\nGET a\r\n".repeat(50);
        clients.iter_mut().for_each(|client| client.send(&requests));
        clients.iter().for_each(Client::wait_until_delivered);
        server.stop().unwrap();
        for client in &mut clients {
            let replies = client.rest();
            assert_eq!(replies.len(), 50 * (71 + 9), "{}", replies.escape_ascii());
        }
        nothing_listens(&address);
    }
}

// Catches: requests of connections that are not accepted yet, lost when the server stops.
#[test]
fn requests_of_unaccepted_connections_are_answered() {
    for config in configs() {
        eprintln!("with {config:?}");
        let address = Address::reserve().unwrap();
        let server = start(at(&address, Config { drain_max: LONG, ..config }));
        let mut clients: Vec<Client> = (0..100).map(|_| Client::new(&server)).collect();
        clients.iter_mut().for_each(|client| client.send("INCR a\r\n".repeat(20)));
        clients.iter().for_each(Client::wait_until_delivered);
        server.stop().unwrap();
        for client in &mut clients {
            let replies = client.rest();
            let lines = replies.iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(lines, 20, "{}", replies.escape_ascii());
        }
        nothing_listens(&address);
    }
}

#[test]
fn a_client_that_does_not_read_delays_the_end_at_most_by_the_limit() {
    let small = Some(4096);
    let drain_max = Duration::from_millis(100);
    let server = start(Config { send_buffer: small, drain_max, ..config(2) });
    let mut client = Client::new(&server);
    let value = vec![b'v'; 1 << 20];
    client.ask(request(&[&b"SET"[..], b"a", &value]), "+OK\r\n");
    client.send("GET a\r\n".repeat(50));
    // This returns although the client neither reads nor disconnects.
    server.stop().unwrap();
}

#[test]
fn a_server_can_be_stopped_while_clients_connect() {
    for threads in [1, 3] {
        let address = Address::reserve().unwrap();
        let server = start(at(&address, config(threads)));
        let to = address.socket();
        let comers = thread::spawn(move || while TcpStream::connect(to).is_ok() {});
        let mut client = Client::new(&server);
        for _ in 0..100 {
            client.ask("PING\r\n", "+PONG\r\n");
        }
        server.stop().unwrap();
        comers.join().unwrap();
    }
}

#[test]
fn a_server_that_is_dropped_stops() {
    let address = Address::reserve().unwrap();
    drop(start(at(&address, config(2))));
    nothing_listens(&address);
}

#[test]
fn a_server_that_starts_again_gets_the_reserved_address_that_no_other_socket_gets() {
    let address = Address::reserve().unwrap();
    for _ in 0..3 {
        let any = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!((0..100).all(|_| any() != address.socket()));
        nothing_listens(&address);
        let server = start(at(&address, config(1)));
        Client::new(&server).ask("PING\r\n", "+PONG\r\n");
        server.stop().unwrap();
    }
}

#[test]
fn a_client_that_keeps_sending_gets_whole_replies_and_does_not_delay_the_end() {
    for config in configs() {
        // Far longer than any wait of this test.
        let server = start(Config { drain_max: LONG, ..config });
        let mut client = Client::new(&server);
        client.ask("SET a 1\r\n", "+OK\r\n");
        let mut sender = client.0.try_clone().unwrap();
        let sender = thread::spawn(move || {
            let requests = "GET a\r\n".repeat(100);
            while sender.write_all(requests.as_bytes()).is_ok() {}
        });
        let (begun, has_begun) = mpsc::channel();
        let reader = thread::spawn(move || {
            client.expect("$1\r\n1\r\n".repeat(1000));
            begun.send(()).unwrap();
            client.rest()
        });
        received("the first replies", &has_begun);
        server.stop().unwrap();
        let replies = reader.join().unwrap();
        sender.join().unwrap();
        assert_eq!(replies.len() % 7, 0, "{}", replies[replies.len() / 7 * 7..].escape_ascii());
    }
}

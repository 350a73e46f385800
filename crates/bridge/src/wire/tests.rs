//! Connections to servers that say what the test wants.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::*;
use crate::addresses::Addresses;
use crate::nodes::Nodes;
use crate::scripts;

/// A server that greets each connection and answers ten commands on it, and how many there were.
fn serve() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let connections = count.clone();
    let scripts = "+sha\r\n".repeat(scripts::texts().count());
    let info = "role:master\r\nrun_id:a\r\n";
    let greeting = format!(
        "{scripts}-ERR cluster support disabled\r\n${}\r\n{info}\r\n{}",
        info.len(),
        "+PONG\r\n".repeat(10)
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            connections.fetch_add(1, Ordering::Relaxed);
            stream.write_all(greeting.as_bytes()).unwrap();
            std::thread::spawn(move || io::copy(&mut stream, &mut io::sink()));
        }
    });
    (address, count)
}

fn ping(wire: &mut Wire) -> Result<(), Fault> {
    wire.ask(&[redis::cmd("PING")]).map(drop)
}

#[test]
fn a_connection_that_was_not_used_for_long_is_made_anew_before_anything_is_sent() {
    let (address, count) = serve();
    let mut wire = Wire::new(Server::new(&format!("redis://{address}")).unwrap());
    (0..3).for_each(|_| ping(&mut wire).unwrap());
    assert_eq!(count.load(Ordering::Relaxed), 1);
    wire.connection.as_mut().unwrap().used -= UNUSED_MAX;
    (0..3).for_each(|_| ping(&mut wire).unwrap());
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn a_name_whose_first_address_says_nothing_leads_to_its_second() {
    static FOUND: OnceLock<[SocketAddr; 2]> = OnceLock::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, _) = serve();
    FOUND.set([silent.local_addr().unwrap(), address]).unwrap();
    let server = Server::new("redis://name:6379").unwrap();
    let addresses = Addresses::of(|_, _| Ok(FOUND.get().unwrap().to_vec()));
    let nodes = Nodes::with(std::slice::from_ref(&server), 1, addresses);
    let mut wire = Wire::new(server.with_place(Place { nodes, home: 0, slot: None }));
    // For a shorter wait.
    wire.hurry();
    let fault = ping(&mut wire).unwrap_err();
    assert_eq!(fault.error.kind(), ErrorKind::Unreachable, "{}", fault.error);
    ping(&mut wire).unwrap();
}

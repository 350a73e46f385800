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
fn a_wire_whose_time_is_over_asks_no_server_and_looks_no_name_up() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let (address, count) = serve();
    let addresses = Addresses::of(|_, _| {
        ASKED.fetch_add(1, Ordering::Relaxed);
        Err(io::ErrorKind::NotFound.into())
    });
    let name = Server::new("redis://name:6379").unwrap();
    let nodes = Nodes::with(std::slice::from_ref(&name), 1, addresses);
    let mut named = Wire::new(name.with_place(Place { nodes, home: 0, slot: None }));
    let mut known = Wire::new(Server::new(&format!("redis://{address}")).unwrap());
    ping(&mut known).unwrap();
    for wire in [&mut named, &mut known] {
        wire.ends.set(Instant::now());
        let fault = ping(wire).unwrap_err();
        assert_eq!(fault.error.kind(), ErrorKind::Unreachable, "{}", fault.error);
        assert!(!wire.was_sent());
    }
    assert_eq!((ASKED.load(Ordering::Relaxed), count.load(Ordering::Relaxed)), (0, 1));
}

#[test]
fn a_forked_child_waits_for_no_lock_that_a_thread_of_its_parent_had() {
    static FOUND: OnceLock<SocketAddr> = OnceLock::new();
    let (address, count) = serve();
    FOUND.set(address).unwrap();
    let server = Server::new("redis://name:6379").unwrap();
    let addresses = Addresses::of(|_, _| Ok(vec![*FOUND.get().unwrap()]));
    let nodes = Nodes::with(std::slice::from_ref(&server), 1, addresses).inherited();
    // A wire of the parent, and one that the child makes at the parent's place.
    let place = Place { nodes: nodes.clone(), home: 0, slot: None };
    let mut own = Wire::new(server.clone().with_place(place.clone()));
    let mut parents = Wire { place, ..Wire::new(server) };
    let of_child = parents.nodes_of_child();
    parents.leave_parents(of_child);
    for wire in [&mut own, &mut parents] {
        assert!(!Arc::ptr_eq(&wire.place.nodes, &nodes));
        ping(wire).unwrap();
    }
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn a_command_for_one_connection_is_not_sent_on_another() {
    let (address, count) = serve();
    let mut wire = Wire::new(Server::new(&format!("redis://{address}")).unwrap());
    ping(&mut wire).unwrap();
    let first = wire.connects();
    let ask = |wire: &mut Wire| {
        let (mine, any) = (redis::cmd("PING"), redis::cmd("PING"));
        let may_go = |nth: usize, on: u64| nth == 1 || on == first;
        wire.ask_bound(&[mine, any], Duration::ZERO, &may_go, &mut |_, replies| replies.value())
    };
    let pong = || Value::SimpleString("PONG".to_owned());
    assert_eq!(ask(&mut wire).unwrap(), [pong(), pong()]);
    wire.connection.as_mut().unwrap().used -= UNUSED_MAX;
    for _ in 0..2 {
        assert_eq!(ask(&mut wire).unwrap(), [Value::Nil, pong()]);
    }
    assert_eq!((count.load(Ordering::Relaxed), wire.connects()), (2, first + 1));
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

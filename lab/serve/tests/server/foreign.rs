//! Keys that another thread than the connection's owns.

use std::thread;

use uwork_serve::{Config, ForeignKeys, Server};

use crate::client::{Client, config, start};
use crate::patience::until;

const CLIENTS: usize = 6;
const ROUNDS: usize = 200;
/// Enough that each thread owns some.
const KEYS: usize = 12;
/// `INCR`s of a round: a multiple of `KEYS`.
const DEEP: usize = 48;

fn both(threads: usize) -> [Config; 2] {
    [ForeignKeys::InPlace, ForeignKeys::HandedOver]
        .map(|foreign_keys| Config { foreign_keys, ..config(threads) })
}

/// Adds to all keys, and checks that this connection sees each sum grow.
fn count(server: &Server) {
    let mut client = Client::new(server);
    let requests: String = (0..DEEP).map(|n| format!("INCR {}\r\n", n % KEYS)).collect();
    let mut last = [0; KEYS];
    for _ in 0..ROUNDS {
        client.send(&requests);
        for n in 0..DEEP {
            let sum: u64 = client.line().strip_prefix(':').unwrap().parse().unwrap();
            assert!(sum > last[n % KEYS], "{sum} after {}", last[n % KEYS]);
            last[n % KEYS] = sum;
        }
    }
}

#[test]
fn counts_of_several_connections_are_exact() {
    for config in [both(2), both(3)].concat() {
        eprintln!("with {config:?}");
        let server = start(config);
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| count(&server));
            }
        });
        let mut client = Client::new(&server);
        let sum = CLIENTS * ROUNDS * DEEP / KEYS;
        for key in 0..KEYS {
            let digits = sum.to_string();
            client.ask(format!("GET {key}\r\n"), format!("${}\r\n{digits}\r\n", digits.len()));
        }
        client.ask("DBSIZE\r\n", format!(":{KEYS}\r\n"));
        server.stop().unwrap();
    }
}

// Catches: a thread that sleeps although another thread has set one of its keys to expire.
#[test]
fn keys_of_a_sleeping_thread_expire() {
    for config in both(2) {
        eprintln!("with {config:?}");
        let server = start(config);
        // The only connection, so that one of the two threads has nothing to do.
        let mut client = Client::new(&server);
        for key in 0..20 {
            client.ask(format!("SET {key} 1 PX 20\r\n"), "+OK\r\n");
        }
        until("all keys have expired", || {
            client.send("DBSIZE\r\n");
            client.line() == ":0"
        });
        server.stop().unwrap();
    }
}

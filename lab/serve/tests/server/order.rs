//! Replies arrive in the order of the requests, and equal those of sequential execution.

use std::collections::BTreeMap;
use std::thread;

use crate::client::{Client, request, with_each};

/// A xorshift64* generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % n
    }
}

/// The requests of one client and their expected replies. Each client uses its own keys; requests
/// for other clients' keys may be interleaved.
#[derive(Default)]
struct Model(BTreeMap<String, String>);

impl Model {
    fn step(&mut self, client: u64, draw: &mut Draw) -> (Vec<u8>, String) {
        let key = |draw: &mut Draw| format!("{client}:{}", draw.below(20));
        let bulk = |value: Option<&String>| match value {
            Some(value) => format!("${}\r\n{value}\r\n", value.len()),
            None => "$-1\r\n".to_owned(),
        };
        match draw.below(8) {
            0 | 1 => {
                let (key, value) = (key(draw), "v".repeat(draw.below(300) as usize));
                self.0.insert(key.clone(), value.clone());
                (request(&["SET", &key, &value]), "+OK\r\n".to_owned())
            }
            2 | 3 => {
                let key = key(draw);
                (request(&["GET", &key]), bulk(self.0.get(&key)))
            }
            4 => {
                let keys: Vec<String> = (0..draw.below(9) + 1).map(|_| key(draw)).collect();
                let values: String = keys.iter().map(|key| bulk(self.0.get(key))).collect();
                let args: Vec<&str> =
                    ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
                (request(&args), format!("*{}\r\n{values}", keys.len()))
            }
            5 => {
                let keys: Vec<String> = (0..draw.below(4) + 1).map(|_| key(draw)).collect();
                let removed = keys.iter().filter(|key| self.0.remove(*key).is_some()).count();
                let args: Vec<&str> =
                    ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
                (request(&args), format!(":{removed}\r\n"))
            }
            6 => {
                let (one, other) = (key(draw), key(draw));
                self.0.insert(one.clone(), "7".to_owned());
                self.0.insert(other.clone(), "x".to_owned());
                (request(&["MSET", &one, "7", &other, "x"]), "+OK\r\n".to_owned())
            }
            _ => {
                let key = format!("{client}:number");
                let value = self.0.get(&key).map_or(0, |text| text.parse::<i64>().unwrap()) + 1;
                self.0.insert(key.clone(), value.to_string());
                (request(&["INCR", &key]), format!(":{value}\r\n"))
            }
        }
    }
}

#[test]
fn pipelined_requests_of_many_clients_reply_in_order() {
    with_each(|server| {
        thread::scope(|scope| {
            for number in 1..=6 {
                scope.spawn(move || {
                    let (mut draw, mut model) = (Draw(number * 77), Model::default());
                    let mut client = Client::new(server);
                    for _ in 0..60 {
                        let (mut requests, mut replies) = (Vec::new(), String::new());
                        for _ in 0..draw.below(80) + 1 {
                            let (request, reply) = model.step(number, &mut draw);
                            requests.extend(request);
                            replies.push_str(&reply);
                        }
                        client.ask(requests, replies);
                    }
                });
            }
        });
    });
}

#[test]
fn digests_among_other_requests_reply_in_order() {
    with_each(|server| {
        let mut client = Client::new(server);
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let (mut requests, mut replies) = (String::new(), String::new());
        for key in 0..50 {
            // The digest must be that of the key's value between the two SETs.
            requests += &format!(
                "SET {key} abc\r\nDIGEST {key}\r\nSET {key} ''\r\nDIGEST {key}\r\nPING\r\n"
            );
            replies += &format!("+OK\r\n$64\r\n{abc}\r\n+OK\r\n$64\r\n{empty}\r\n+PONG\r\n");
        }
        client.ask(requests, replies);
    });
}

#[test]
fn commands_on_all_keys_wait_for_earlier_requests() {
    with_each(|server| {
        let mut client = Client::new(server);
        let (mut requests, mut replies) = (String::new(), String::new());
        for round in 0..20 {
            for key in 0..30 {
                requests += &format!("SET {key} {round}\r\n");
                replies += "+OK\r\n";
            }
            requests += "DBSIZE\r\nFLUSHALL\r\nDBSIZE\r\nGET 7\r\n";
            replies += ":30\r\n+OK\r\n:0\r\n$-1\r\n";
        }
        client.ask(requests, replies);
    });
}

//! Third-party clients: a library, and redis-cli if it is installed.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use redis::{Client, Commands, Connection, pipe};
use uwork_serve::Server;

use crate::client::{request, with_each};
use crate::left_out::left_out;
use crate::owned::{self, Owned};
use crate::patience::until;

fn connect(server: &Server, parameters: &str) -> Connection {
    let url = format!("redis://{}/{parameters}", server.address());
    Client::open(url).unwrap().get_connection().unwrap()
}

#[test]
fn the_redis_crate_gets_the_replies_that_it_expects() {
    with_each(|server| {
        for parameters in ["", "?protocol=resp3"] {
            let (mut client, begun) = (connect(server, parameters), Instant::now());
            let _: () = client.set("key", "value").unwrap();
            assert_eq!(client.get::<_, String>("key").unwrap(), "value");
            assert_eq!(client.get::<_, Option<String>>("nothing").unwrap(), None);
            let _: () = client.mset(&[("a", 1), ("b", 2), ("c", 3)]).unwrap();
            assert_eq!(client.mget::<_, Vec<i64>>(&["c", "b", "a"]).unwrap(), [3, 2, 1]);
            let unknown = redis::cmd("APPEND").arg("a").arg(1).query::<i64>(&mut client);
            assert_eq!(unknown.unwrap_err().code(), Some("ERR"));
            assert_eq!(redis::cmd("INCR").arg("a").query::<i64>(&mut client).unwrap(), 2);
            assert_eq!(client.incr::<_, _, i64>("a", -5).unwrap(), -3);
            let mut set_soon = redis::cmd("SET");
            let _: () =
                set_soon.arg("soon").arg("gone").arg("EX").arg(10_000).query(&mut client).unwrap();
            let left = client.ttl::<_, u64>("soon").unwrap();
            assert!(left <= 10_000 && left + begun.elapsed().as_secs() + 1 >= 10_000, "{left}");
            assert!(client.expire::<_, bool>("key", 5_000).unwrap());
            assert_eq!(client.exists::<_, i64>(&["key", "a", "nothing"]).unwrap(), 2);
            assert_eq!(client.del::<_, i64>(&["key", "a", "b", "c", "soon"]).unwrap(), 5);
            let replies: (String, i64, Option<String>) = pipe()
                .cmd("SET")
                .arg("n")
                .arg("41")
                .cmd("INCR")
                .arg("n")
                .cmd("GET")
                .arg("nothing")
                .query(&mut client)
                .unwrap();
            assert_eq!(replies, ("OK".to_owned(), 42, None));
            let _: () = redis::cmd("FLUSHALL").query(&mut client).unwrap();
            assert_eq!(redis::cmd("DBSIZE").query::<i64>(&mut client).unwrap(), 0);
        }
    });
}

#[test]
fn redis_cli_prints_the_expected_replies() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        return left_out("redis_cli_prints_the_expected_replies", "redis-cli is not installed");
    }
    with_each(|server| {
        for version in ["-2", "-3"] {
            let port = server.address().port().to_string();
            let command = || {
                let mut command = Command::new("redis-cli");
                command.args([version, "-p", &port]);
                command
            };
            let cli = |args: &[&str]| {
                String::from_utf8(owned::output(command().args(args)).stdout).unwrap()
            };
            // Sends all requests from standard input as fast as possible.
            let mut pipe = command();
            // The end of the pipe has no time limit.
            pipe.args(["--pipe", "--pipe-timeout", "0"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let mut pipe = Owned::spawn(&mut pipe);
            let requests: Vec<u8> =
                (0..10_000).flat_map(|n| request(&["SET", &n.to_string(), "x"])).collect();
            pipe.stdin.take().unwrap().write_all(&requests).unwrap();
            let out = String::from_utf8(pipe.output().stdout).unwrap();
            assert!(out.contains("errors: 0, replies: 10000"), "{out}");
            assert_eq!(cli(&["--no-raw", "DBSIZE"]), "(integer) 10000\n");
            assert_eq!(cli(&["FLUSHALL"]), "OK\n");
            assert_eq!(cli(&["SET", "a", "b c"]), "OK\n");
            assert_eq!(cli(&["--no-raw", "GET", "a"]), "\"b c\"\n");
            assert_eq!(cli(&["--no-raw", "GET", "nothing"]), "(nil)\n");
            assert_eq!(cli(&["--no-raw", "MGET", "a", "nothing"]), "1) \"b c\"\n2) (nil)\n");
            assert_eq!(cli(&["--no-raw", "DEL", "a"]), "(integer) 1\n");
            assert_eq!(cli(&["-n", "0", "SELECT", "1"]), "ERR DB index is out of range\n\n");
            assert!(cli(&["CLIENT", "HELP"]).starts_with("CLIENT <subcommand>"));
            // The server may not have seen the end of the call before.
            until("the last call has disconnected", || {
                cli(&["INFO"]).contains("connected_clients:1\r\n")
            });
            assert!(cli(&["HELLO"]).contains("uwork"));
        }
    });
}

//! Every command, with valid and invalid arguments, replies as Redis does.

use std::time::Instant;

use crate::client::{Client, request, with_each};
use crate::patience::until;

/// Requests as typed, and their replies.
const TALK: &[(&str, &str)] = &[
    ("PING", "+PONG\r\n"),
    ("ping hello", "$5\r\nhello\r\n"),
    ("PING a b", "-ERR wrong number of arguments for 'ping' command\r\n"),
    ("ECHO", "-ERR wrong number of arguments for 'echo' command\r\n"),
    ("ECHO 'a b'", "$3\r\na b\r\n"),
    ("GET a", "$-1\r\n"),
    ("SET a 1", "+OK\r\n"),
    ("GET a", "$1\r\n1\r\n"),
    ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
    ("SET a", "-ERR wrong number of arguments for 'set' command\r\n"),
    ("SET a 2 NX", "$-1\r\n"),
    ("SET b 2 xx", "$-1\r\n"),
    ("SET a 3 XX", "+OK\r\n"),
    ("SET a 3 XX NX", "-ERR syntax error\r\n"),
    ("SET a 3 XX XX", "+OK\r\n"),
    ("SET c 3 EX 10000 EX 20000", "+OK\r\n"),
    ("TTL c", ":20000\r\n"),
    ("DEL c", ":1\r\n"),
    ("SET a 3 EX", "-ERR syntax error\r\n"),
    ("SET a 3 EX 1 PX 1", "-ERR syntax error\r\n"),
    ("SET a 3 maybe", "-ERR syntax error\r\n"),
    ("SET a 3 EX x", "-ERR value is not an integer or out of range\r\n"),
    ("SET a 3 EX 0", "-ERR invalid expire time in 'set' command\r\n"),
    ("SET a 3 PX -1", "-ERR invalid expire time in 'set' command\r\n"),
    ("SET a 3 EX 9223372036854775807", "-ERR invalid expire time in 'set' command\r\n"),
    ("GET a", "$1\r\n3\r\n"),
    ("TTL a", ":-1\r\n"),
    ("TTL nothing", ":-2\r\n"),
    ("SET a 4 EX 10000", "+OK\r\n"),
    ("TTL a", ":10000\r\n"),
    ("INCR a", ":5\r\n"),
    ("TTL a", ":10000\r\n"),
    ("SET a 4 PX 100000 NX", "$-1\r\n"),
    ("SET a 5", "+OK\r\n"),
    ("TTL a", ":-1\r\n"),
    ("EXPIRE a 5000", ":1\r\n"),
    ("TTL a", ":5000\r\n"),
    ("EXPIRE nothing 50", ":0\r\n"),
    ("EXPIRE a x", "-ERR value is not an integer or out of range\r\n"),
    ("EXPIRE a 9223372036854775807", "-ERR invalid expire time in 'expire' command\r\n"),
    ("EXPIRE a -9223372036854775808", "-ERR invalid expire time in 'expire' command\r\n"),
    ("EXPIRE a -1", ":1\r\n"),
    ("EXISTS a", ":0\r\n"),
    ("INCR a", ":1\r\n"),
    ("SET a 9223372036854775807", "+OK\r\n"),
    ("INCR a", "-ERR increment or decrement would overflow\r\n"),
    ("INCRBY a -9223372036854775807", ":0\r\n"),
    ("SET a 01", "+OK\r\n"),
    ("INCR a", "-ERR value is not an integer or out of range\r\n"),
    ("MSET b 1 c 2 d 3 e 4 f 5 g 6", "+OK\r\n"),
    ("MSET b 1 c", "-ERR wrong number of arguments for 'mset' command\r\n"),
    (
        "MGET g f nothing e b b",
        "*6\r\n$1\r\n6\r\n$1\r\n5\r\n$-1\r\n$1\r\n4\r\n$1\r\n1\r\n$1\r\n1\r\n",
    ),
    ("EXISTS a b c nothing b", ":4\r\n"),
    ("DEL b c d nothing b", ":3\r\n"),
    ("DBSIZE", ":4\r\n"),
    ("DBSIZE a", "-ERR wrong number of arguments for 'dbsize' command\r\n"),
    ("SET empty ''", "+OK\r\n"),
    ("GET empty", "$0\r\n\r\n"),
    ("DIGEST nothing", "$-1\r\n"),
    ("DIGEST empty", "$64\r\ne3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n"),
    ("SET abc abc", "+OK\r\n"),
    ("DIGEST abc", "$64\r\nba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\r\n"),
    ("FLUSHALL now", "-ERR syntax error\r\n"),
    ("FLUSHALL", "+OK\r\n"),
    ("DBSIZE", ":0\r\n"),
    ("FLUSHALL async", "+OK\r\n"),
    ("FLUSHALL SYNC SYNC", "-ERR syntax error\r\n"),
    ("CLIENT GETNAME", "$-1\r\n"),
    ("CLIENT SETNAME me", "+OK\r\n"),
    ("CLIENT GETNAME", "$2\r\nme\r\n"),
    (
        "CLIENT SETNAME 'a b'",
        "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
    ),
    ("CLIENT SETINFO lib-name test", "+OK\r\n"),
    ("CLIENT NO-TOUCH ON", "+OK\r\n"),
    ("CLIENT NO-TOUCH maybe", "-ERR syntax error\r\n"),
    ("CLIENT REPLY SKIP", ""),
    ("MSET b 1 c 2 d 3 e 4", ""),
    ("MGET e d", "*2\r\n$1\r\n4\r\n$1\r\n3\r\n"),
    ("CLIENT REPLY OFF", ""),
    ("INCR e", ""),
    ("MGET b c d e nothing", ""),
    ("DIGEST b", ""),
    ("DEL b c d", ""),
    ("DBSIZE", ""),
    ("DANCE", ""),
    ("CLIENT REPLY ON", "+OK\r\n"),
    ("MGET b e", "*2\r\n$-1\r\n$1\r\n5\r\n"),
    ("CLIENT SETINFO lib-age 1", "-ERR Unrecognized option 'lib-age'\r\n"),
    ("CLIENT ID x", "-ERR wrong number of arguments for 'client|id' command\r\n"),
    ("CLIENT DANCE", "-ERR unknown subcommand 'DANCE'. Try CLIENT HELP.\r\n"),
    ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
    ("CONFIG GET nothing", "*0\r\n"),
    ("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command\r\n"),
    ("CONFIG SET a b", "-ERR unknown subcommand 'SET'. Try CONFIG HELP.\r\n"),
    ("SELECT 0", "+OK\r\n"),
    ("SELECT 1", "-ERR DB index is out of range\r\n"),
    (
        "CONFIG help",
        "*5\r\n+CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n\
         +GET <pattern> [<pattern> ...]\r\n\
         +    The settings whose names fit a pattern, and their values.\r\n\
         +HELP\r\n+    Prints this help.\r\n",
    ),
    ("CLIENT HELP me", "-ERR wrong number of arguments for 'client|help' command\r\n"),
    ("CONFIG GET [r-t]av?", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
    ("COMMAND COUNT", ":22\r\n"),
    ("COMMAND INFO nothing", "*1\r\n$-1\r\n"),
    (
        "COMMAND INFO get",
        "*1\r\n*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
    ),
    ("COMMAND DANCE", "-ERR unknown subcommand 'DANCE'. Try COMMAND HELP.\r\n"),
    ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
    ("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"),
    ("HELLO 2 DANCE", "-ERR Syntax error in HELLO option 'DANCE'\r\n"),
    (
        "HELLO 2 AUTH me secret",
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    ),
    ("\"PING\\x00\"", "-ERR unknown command 'PING', with args beginning with: \r\n"),
    ("DANCE", "-ERR unknown command 'DANCE', with args beginning with: \r\n"),
    ("dance 'a b' c", "-ERR unknown command 'dance', with args beginning with: 'a b' 'c' \r\n"),
];

/// Reads the reply to a request that was sent after `begun`. A time to live is rounded to seconds,
/// and may have passed in part since.
fn expect(client: &mut Client, request: &str, reply: &str, begun: Instant) {
    let ttl = |line: &str| line.trim_end().strip_prefix(':')?.parse::<u64>().ok();
    let Some(full) = ttl(reply).filter(|_| request.starts_with("TTL ")) else {
        return client.expect(reply);
    };
    let line = client.line();
    let passed = begun.elapsed().as_secs() + 1;
    let is_right = ttl(&line).is_some_and(|left| left <= full && left + passed >= full);
    assert!(is_right, "{request}: {line} instead of {full}, {passed} s later");
}

#[test]
fn replies_match_with_one_request_at_a_time() {
    with_each(|server| {
        let (mut client, begun) = (Client::new(server), Instant::now());
        for (request, reply) in TALK {
            client.send(format!("{request}\r\n"));
            eprintln!("{request}");
            expect(&mut client, request, reply, begun);
        }
    });
}

#[test]
fn replies_match_with_all_requests_pipelined() {
    with_each(|server| {
        let requests: String = TALK.iter().flat_map(|(request, _)| [request, "\r\n"]).collect();
        let (mut client, begun) = (Client::new(server), Instant::now());
        client.send(requests);
        TALK.iter().for_each(|(request, reply)| expect(&mut client, request, reply, begun));
    });
}

#[test]
fn resp3_has_a_null_maps_and_sets() {
    with_each(|server| {
        let mut client = Client::new(server);
        client.send("HELLO 3 AUTH default x SETNAME me\r\n");
        assert_eq!(client.line(), "%7");
        client.send("GET nothing\r\n");
        while client.line() != "_" {}
        client.ask("CONFIG GET save\r\n", "%1\r\n$4\r\nsave\r\n$0\r\n\r\n");
        client.ask("MGET a b c\r\n", "*3\r\n_\r\n_\r\n_\r\n");
        client.ask("CLIENT GETNAME\r\n", "$2\r\nme\r\n");
        let get = "*1\r\n*10\r\n$3\r\nget\r\n:2\r\n~2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n\
                   ~0\r\n~0\r\n~0\r\n~0\r\n";
        client.ask("COMMAND INFO get\r\n", get);
        client.ask("HELLO 2\r\nGET nothing\r\nQUIT\r\n", "*14\r\n");
        assert!(client.rest().ends_with(b"$-1\r\n+OK\r\n"));
    });
}

#[test]
fn keys_and_values_are_any_bytes() {
    with_each(|server| {
        let mut client = Client::new(server);
        for len in [0, 1, 15, 16, 17, 1000, 100_000, 3_000_000] {
            let bytes: Vec<u8> = (0..len).map(|n| (n * 7 + n / 256) as u8).collect();
            let key = [&b"\r\n\0\xff*$"[..], &bytes[..len.min(70_000)]].concat();
            client.ask(request(&[b"SET", &key[..], &bytes]), "+OK\r\n");
            client.send(request(&[b"GET", &key[..]]));
            assert!(client.bulk() == bytes, "{len}");
        }
    });
}

#[test]
fn keys_are_removed_when_they_expire() {
    with_each(|server| {
        let mut client = Client::new(server);
        for key in ["a", "b", "c", "d", "e"] {
            client.ask(format!("SET {key} 1 PX 20\r\n"), "+OK\r\n");
        }
        // No request touches these keys; the server removes them by itself.
        until("all keys have expired", || {
            client.send("DBSIZE\r\n");
            client.line() == ":0"
        });
        client.ask("GET a\r\n", "$-1\r\n");
    });
}

#[test]
fn client_list_shows_the_open_connections() {
    with_each(|server| {
        let mut client = Client::new(server);
        client.ask("CLIENT SETNAME me\r\n", "+OK\r\n");
        let mut other = Client::new(server);
        other.ask("CLIENT SETINFO lib-ver 1.2\r\nCLIENT SETINFO lib-name it\r\n", "+OK\r\n+OK\r\n");
        let list = |client: &mut Client| {
            client.send("CLIENT LIST\r\n");
            String::from_utf8(client.bulk()).unwrap()
        };
        let text = list(&mut client);
        let lines: Vec<&str> = text.lines().collect();
        let address = client.0.local_addr().unwrap();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains(&format!(" addr={address} name=me age=")), "{text}");
        assert!(lines[1].ends_with(" resp=2 lib-name=it lib-ver=1.2"), "{text}");
        drop(other);
        until("the other client has gone", || list(&mut client).lines().count() == 1);
        // Both have the connection's age in seconds.
        until("the list has the line of this client", || {
            client.send("CLIENT INFO\r\n");
            String::from_utf8(client.bulk()).unwrap() == list(&mut client)
        });
    });
}

#[test]
fn info_has_the_fields_that_clients_read() {
    with_each(|server| {
        let mut client = Client::new(server);
        for (section, line) in [
            ("server", "redis_version:7."),
            ("SERVER", "redis_mode:standalone\r\n"),
            ("replication", "role:master\r\n"),
            ("persistence", "loading:0\r\n"),
            ("clients", "blocked_clients:0\r\n"),
            ("memory", "maxmemory_policy:noeviction\r\n"),
            ("all", "connected_clients:1\r\n"),
            ("stats server", "redis_version:7."),
        ] {
            client.send(format!("INFO {section}\r\n"));
            let text = String::from_utf8(client.bulk()).unwrap();
            assert!(text.contains(&format!("\r\n{line}")), "{section}: {text}");
        }
    });
}

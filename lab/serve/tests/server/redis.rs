//! Unusual requests. The server's replies must equal those of Debian's redis-server byte for byte.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use uwork_serve::{Config, Server};

use crate::client::{LOOK_EVERY, Patient};
use crate::left_out::left_out;
use crate::owned::{Folder, Owned};

/// A redis-server on a socket of its own, without persistence; killed on drop.
struct Redis {
    _child: Owned,
    folder: Folder,
}

impl Redis {
    /// `None` if it is not installed.
    fn start() -> Option<Self> {
        Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().ok()?;
        let folder = Folder::new();
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--databases", "1", "--unixsocket"]);
        command.arg(folder.file("socket")).arg("--dir").arg(folder.path());
        let mut child = Owned::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut said = Vec::new();
        let is_ready = lines.any(|line| {
            said.push(line);
            said.iter().any(|line| line.contains("eady to accept connections"))
        });
        assert!(is_ready, "it has not started: {said:#?}");
        // Later output must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { _child: child, folder })
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.file("socket")).unwrap()
    }
}

const BEGIN: &[u8] = b"$5\r\nbegin\r\n";
const END: &[u8] = b"$10\r\nend of it!\r\n";

/// Sends HELLO, which the servers answer differently, and then the requests. Returns the replies to
/// the requests, up to the end of the connection if they end it.
fn ask(stream: impl Into<OwnedFd>, hello: &str, requests: &[u8]) -> String {
    // The socket may be of any family; only operations common to all stream sockets are used.
    let mut stream = UnixStream::from(stream.into());
    stream.set_read_timeout(Some(LOOK_EVERY)).unwrap();
    let start = format!("{hello}\r\nECHO begin\r\nFLUSHALL\r\n");
    let all = [start.as_bytes(), requests, b"\r\nECHO 'end of it!'\r\n"].concat();
    match stream.write_all(&all) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("{error}"),
        // Waiting for the reply to an incomplete request would never end.
        _ => drop(stream.shutdown(Shutdown::Write)),
    }
    let (mut replies, mut bytes) = (Vec::new(), [0; 4096]);
    while !replies.ends_with(END) {
        match Patient(&stream).read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => replies.extend_from_slice(&bytes[..len]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} after {}", replies.escape_ascii()),
        }
    }
    let begin = replies.windows(BEGIN.len()).position(|bytes| bytes == BEGIN);
    let begin = begin.unwrap_or_else(|| panic!("{}", replies.escape_ascii())) + BEGIN.len();
    replies[begin..].escape_ascii().to_string()
}

/// The inputs, each sent on a connection of its own: lines as typed, or arbitrary bytes.
fn cases() -> Vec<Vec<u8>> {
    let lines = |text: &str| {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>()
    };
    // Each line alone, and each line behind commands that create the keys it uses.
    let mut cases = lines(include_str!("redis/lines.txt"));
    let before = b"SET n 41\r\nSET text abc\r\nSET soon 1 EX 100\r\nMSET a 1 b 2 c 3\r\n".to_vec();
    let behind = cases.iter().map(|case| [&before[..], case].concat()).collect::<Vec<_>>();
    cases.extend(behind);
    cases.extend(raw());
    cases
}

/// Input that cannot be typed. Excluded is input for which the reply of Redis depends on how the
/// request arrives, or is missing. These are inline requests near the length limit, inline requests
/// with a NUL (Redis searches no line end behind it), and a command name followed by a NUL (Redis
/// accepts it if its hash, which differs in each process, happens to match).
fn raw() -> Vec<Vec<u8>> {
    let mut cases: Vec<Vec<u8>> = [
        &b"*1\r\n$4\r\nPING\r\n"[..],
        b"*0\r\nPING",
        b"*-1\r\nPING",
        b"*-5\r\nPING",
        b"*1\r\n$0\r\n\r\nPING",
        b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\0\xff\r\n",
        b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
        b"*2\r\n$4\r\nECHO\r\n$2\r\nabXXPING",
        b"*1\n$4\nPING\n",
        b"*x\r\n",
        b"*+1\r\n$4\r\nPING\r\n",
        b"* 1\r\n$4\r\nPING\r\n",
        b"*01\r\n$4\r\nPING\r\n",
        b"*1 \r\n$4\r\nPING\r\n",
        b"*\r\n",
        b"*2147483648\r\n",
        b"*9223372036854775808\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$-2\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$\r\n",
        b"*1\r\n$536870913\r\n",
        b"*1\r\n$9223372036854775808\r\n",
        b"*1\r\n*1\r\n$4\r\nPING\r\n",
        b"*1\r\n:4\r\n",
        b"*1\r\n\r\n",
        b"*1\r\n\xff\r\n",
        b"*1\r\n\x01\r\n",
        b"no \xff\xfe",
        b"\xff\xfe",
        b"CLIENT \xff\xfe",
        b"HELLO 3 \xff\xfe",
        b"*2\r\n$3\r\nGET\r\n4\r\n",
        b"*3\r\n$3\r\nSET\r\n$3\r\n\r\n\0\r\n$1\r\n\0\r\n*2\r\n$3\r\nGET\r\n$3\r\n\r\n\0\r\n",
        b"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n",
        b"*1\r\n$3\r\nno\n\r\n",
        b"*2\r\n$5\r\nno\r\nX\r\n$3\r\na\r\n\r\n",
        b"*2\r\n$2\r\nno\r\n$3\r\n\0a\xff\r\n",
        b"PING\nPING\r\n\n\r\n  \r\nPING",
        b"\tPING\t",
        b"PING\x0bmore\r\n",
        b"ECHO a\x0cb\r\n",
        b"ECHO \"a\"\x0b\r\n",
        b"ECHO 'a\rb'\r\n",
        b"PING\r",
        b"PING\r\r",
        b"\r\r\nPING",
        b"ECHO \xff\xfe\r\n",
        b"SET a 1 EX 100\r\nEXPIRE a 200 GT\r\nTTL a\r\nEXPIRE a 150 GT\r\nTTL a",
        b"SET a 1 EX 100\r\nEXPIRE a 200 LT\r\nTTL a\r\nEXPIRE a 50 LT\r\nTTL a",
        b"SET a 1\r\nEXPIRE a -1 GT\r\nEXISTS a\r\nEXPIRE a -1 LT\r\nEXISTS a",
        b"SET a -9223372036854775808\r\nINCR a\r\nINCR a",
        b"SET a -9223372036854775809\r\nINCR a\r\nGET a",
        b"SET a 9223372036854775806\r\nINCR a\r\nINCR a\r\nGET a",
        b"SET a -1\r\nINCR a\r\nINCR a",
        b"SET a 5 EX 100\r\nINCR a\r\nTTL a\r\nSET a 6\r\nTTL a",
        // An error in the middle, and an incomplete request at the end.
        b"PING\r\nDANCE\r\nGET\r\nSET a 1\r\nMSET b\r\nGET a",
        b"SET a 1\r\nQUIT\r\nSET a 2\r\nGET a",
        b"SET a 1\r\nGET a\r\n*1\r\n:1\r\nSET a 2\r\n",
        b"CLIENT REPLY SKIP\r\nPING\r\nECHO 1",
        b"CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nECHO 1\r\nECHO 2",
        b"CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nECHO 1",
        b"CLIENT REPLY SKIP\r\nDANCE\r\nDANCE",
        b"CLIENT REPLY SKIP\r\nQUIT",
        b"CLIENT REPLY SKIP\r\n*x\r\n",
        b"CLIENT REPLY OFF\r\nPING\r\nDANCE\r\nCLIENT REPLY maybe\r\nCLIENT REPLY ON\r\nECHO 1",
        b"CLIENT REPLY OFF\r\nCLIENT REPLY SKIP\r\nPING\r\nPING\r\nCLIENT REPLY ON",
        b"CLIENT REPLY OFF\r\nSET a 1\r\nMSET b 2 c 3\r\nDEL b\r\nINCR a\r\nCLIENT REPLY ON\r\nMGET a b c",
        b"SET a 1\r\nCLIENT REPLY SKIP\r\nMGET a b c d e f\r\nMGET f e d c b a\r\nCLIENT REPLY OFF\r\n\
          FLUSHALL\r\nCLIENT REPLY ON\r\nDBSIZE",
        b"SET a 1\r\nCLIENT REPLY SKIP\r\nMSET b 1 c 2 d 3 e 4\r\nMGET a b c d e\r\nMGET e d c b a",
        b"CLIENT REPLY OFF\r\nQUIT",
        b"CLIENT REPLY OFF\r\n*1\r\n:1\r\n",
        b"CLIENT SETNAME me\r\nCLIENT GETNAME\r\nCLIENT SETNAME ''\r\nCLIENT GETNAME",
    ]
    .iter()
    .map(|case| case.to_vec())
    .collect();
    // The quotation of an unknown request.
    for len in [100, 127, 128, 129, 200] {
        let long = "x".repeat(len);
        for request in [
            long.clone(),
            format!("HELP {long}"),
            format!("no {long}"),
            format!("no a {long} b"),
            format!("CLIENT {long}"),
        ] {
            cases.push(request.into_bytes());
        }
        cases.push(format!("no {}", "a ".repeat(len)).into_bytes());
        cases.push(format!("CLIENT SETNAME {long}").into_bytes());
    }
    cases.push([b"ECHO ", "x".repeat(60_000).as_bytes(), b"\r\n"].concat());
    cases
}

/// How often a difference in a time to live is seen again if it does not depend on the moment.
const ROUNDS: usize = 10;

#[test]
fn unusual_requests_get_the_replies_of_redis() {
    let Some(redis) = Redis::start() else {
        return left_out("unusual_requests", "redis-server is not installed");
    };
    let address = "127.0.0.1:0".parse().unwrap();
    let mut different = Vec::new();
    for (threads, hello) in [(1, ""), (3, ""), (2, "HELLO 3")] {
        let server = Server::start(Config { address, threads, ..Config::default() }).unwrap();
        for case in cases() {
            let both = || {
                let got = ask(TcpStream::connect(server.address()).unwrap(), hello, &case);
                (ask(redis.connect(), hello, &case), got)
            };
            let (mut expected, mut got) = both();
            // A time to live counts down between two requests on a busy machine, if rarely.
            let has_time = case.windows(3).any(|word| word.eq_ignore_ascii_case(b"TTL"));
            for _ in 0..if has_time { ROUNDS } else { 0 } {
                if got != expected {
                    (expected, got) = both();
                }
            }
            if got != expected {
                let case = &case[..case.len().min(200)];
                different.push(format!("{hello} {}\n  {expected}\n  {got}", case.escape_ascii()));
            }
        }
    }
    assert!(
        different.is_empty(),
        "{}: asked, Redis, uwork\n{}",
        different.len(),
        different.join("\n")
    );
}

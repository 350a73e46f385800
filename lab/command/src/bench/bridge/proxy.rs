//! A proxy on the loopback interface that cuts its connections on demand, in the middle of a reply. The
//! connection of a replica to its master is never cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::torture::time::now_us;
use crate::UserError;

/// A connection that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// By the clock of the records.
    pub(super) at_us: u64,
    /// The name of the connection, if it was used for jobs: that of a consumer.
    pub(super) client: Option<String>,
}

/// What all connections of a proxy share.
#[derive(Default)]
struct Cuts {
    /// How many cuts were ordered, times 1024, and the share of the next reply that still arrives, in
    /// 1024ths.
    ordered: AtomicU64,
    /// The last order that has met a connection. Later ones of a server that was dead are due still.
    done: AtomicU64,
    made: Mutex<Vec<Cut>>,
}

impl Cuts {
    /// Decides on the replies of a connection that begins now.
    fn cutter(
        self: Arc<Cuts>,
        client: Arc<Mutex<Client>>,
    ) -> impl Fn(&[u8]) -> Option<usize> + Send + 'static {
        let before = self.done.load(Ordering::Relaxed);
        move |bytes| {
            let ordered = self.ordered.load(Ordering::Relaxed);
            let client = lock(&client);
            if ordered == before || client.kind != Kind::Other {
                return None;
            }
            self.done.store(ordered, Ordering::Relaxed);
            let name = client.name.clone().filter(|_| client.has_jobs);
            lock(&self.made).push(Cut { at_us: now_us(), client: name });
            Some(bytes.len() * (ordered % 1024) as usize / 1024)
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a replica says to its master first, and waits for the answer.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// What it says next. Words of commands, which are other text in the scripts that a client loads.
const REPLICA: &[u8] = b"\r\nREPLCONF\r\n";
/// What a consumer asks for jobs, or says of them.
const JOBS: [&[u8]; 2] = [b"\r\nEVALSHA\r\n", b"\r\nXREADGROUP\r\n"];
const NAME: &[u8] = b"\r\nSETNAME\r\n$";
/// Bytes that are kept of what a client has said: no word is missed that two pieces have.
const TAIL_MAX: usize = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// It may be a replica.
    #[default]
    Unknown,
    Replica,
    Other,
}

/// What is known of a client from what it has said.
#[derive(Debug, Default)]
struct Client {
    kind: Kind,
    name: Option<String>,
    /// It has used the connection for jobs.
    has_jobs: bool,
    tail: Vec<u8>,
}

impl Client {
    fn says(&mut self, bytes: &[u8]) {
        if self.kind == Kind::Replica || (self.name.is_some() && self.has_jobs) {
            return;
        }
        self.tail.extend_from_slice(bytes);
        if position(&self.tail, REPLICA).is_some() {
            self.kind = Kind::Replica;
        } else if !PING.starts_with(&self.tail) {
            self.kind = Kind::Other;
        }
        self.has_jobs |= JOBS.iter().any(|word| position(&self.tail, word).is_some());
        self.name = self.name.take().or_else(|| name(&self.tail));
        let surplus = self.tail.len().saturating_sub(TAIL_MAX);
        self.tail.drain(..surplus);
    }
}

fn position(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|of| of == word)
}

/// The name that a client gives its connection, if all of it is here.
fn name(bytes: &[u8]) -> Option<String> {
    let rest = &bytes[position(bytes, NAME)? + NAME.len()..];
    let end = position(rest, b"\r\n")?;
    let length: usize = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    let name = rest.get(end + 2..)?.get(..length)?;
    String::from_utf8(name.to_vec()).ok()
}

#[derive(Clone)]
pub(super) struct Proxy {
    port: u16,
    cuts: Arc<Cuts>,
}

impl Proxy {
    pub(super) fn to(target: u16) -> Result<Proxy, UserError> {
        let fail = |error: std::io::Error| UserError(format!("proxy: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
        let port = listener.local_addr().map_err(fail)?.port();
        let cuts: Arc<Cuts> = Arc::default();
        let shared = cuts.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // While the server is down, its clients are turned away.
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                if let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) {
                    let said: Arc<Mutex<Client>> = Arc::default();
                    let cutter = shared.clone().cutter(said.clone());
                    copy(from, to, move |bytes| {
                        lock(&said).says(bytes);
                        None
                    });
                    copy(server, client, cutter);
                }
            }
        });
        Ok(Proxy { port, cuts })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Cuts each connection at its next reply, of which `part` in 1024 arrives, or the next one if there
    /// is none. The server has executed the commands.
    pub(super) fn cut(&self, part: u64) {
        let next = (self.cuts.ordered.load(Ordering::Relaxed) / 1024 + 1) * 1024;
        self.cuts.ordered.store(next + part % 1024, Ordering::Relaxed);
    }

    /// The connections that were cut.
    pub(super) fn made(&self) -> Vec<Cut> {
        lock(&self.cuts.made).clone()
    }
}

/// Copies bytes in one direction until one side ends, or a cut ends both: where `cuts` says how many bytes
/// of a piece still pass.
fn copy(
    mut from: TcpStream,
    mut to: TcpStream,
    cuts: impl Fn(&[u8]) -> Option<usize> + Send + 'static,
) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let part = cuts(&bytes[..count]);
            if to.write_all(&bytes[..part.unwrap_or(count)]).is_err() || part.is_some() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pieces: &[&str]) -> Client {
        let mut client = Client::default();
        pieces.iter().for_each(|piece| client.says(piece.as_bytes()));
        client
    }

    #[test]
    fn a_replica_is_known_from_its_first_word_on() {
        let ping = "*1\r\n$4\r\nPING\r\n";
        assert_eq!(said(&[]).kind, Kind::Unknown);
        assert_eq!(said(&[ping]).kind, Kind::Unknown, "it may be a replica");
        let conf = "*3\r\n$8\r\nREPLCONF\r\n$14\r\nlistening-port\r\n$4\r\n6379\r\n";
        assert_eq!(said(&[ping, conf]).kind, Kind::Replica);
        assert_eq!(said(&[ping, ping]).kind, Kind::Other);
        assert_eq!(said(&["*2\r\n$4\r\nAUTH\r\n"]).kind, Kind::Other);
    }

    #[test]
    fn a_consumer_is_known_by_its_name_and_what_it_asks() {
        let script = "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$26\r\nredis.call('XREADGROUP', 1)\r\n";
        let name = "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$14\r\ntorture-2:77:0\r\n";
        let client = said(&[script, &name[..40], &name[40..]]);
        assert_eq!((client.name.as_deref(), client.has_jobs), (Some("torture-2:77:0"), false));
        for word in ["$7\r\nEVALSHA\r\n", "$10\r\nXREADGROUP\r\n"] {
            let filler = "x".repeat(1_000);
            let client = said(&[name, &filler, &word[..9], &word[9..]]);
            assert!(client.has_jobs && client.name.is_some() && client.kind == Kind::Other);
        }
    }
}

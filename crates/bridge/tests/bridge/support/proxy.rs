//! A proxy on the loopback interface that cuts its connections on demand: bytes on their way are
//! lost, as with a cable.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) struct Proxy {
    port: u16,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    is_closed: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn to(target: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let is_closed = Arc::new(AtomicBool::new(false));
        let (kept, closed) = (streams.clone(), is_closed.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if closed.load(Ordering::Relaxed) {
                    continue;
                }
                // The server is down for a moment: so is the connection.
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", target)))
                else {
                    continue;
                };
                let both = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                kept.lock().unwrap().extend(both);
                copy(client.try_clone().unwrap(), server.try_clone().unwrap());
                copy(server, client);
            }
        });
        Proxy { port, streams, is_closed }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Cuts all connections, and accepts none from now on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.cut();
    }

    /// Accepts connections again.
    pub(crate) fn open(&self) {
        self.is_closed.store(false, Ordering::Relaxed);
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

/// A server in trouble: it has one answer to every command, until its trouble ends. Then its
/// connections end, and new ones lead to the real server.
pub(crate) struct Trouble {
    port: u16,
    is_over: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Trouble {
    pub(crate) fn new(target: u16, answer: &str) -> Trouble {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (is_over, streams) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let trouble = Trouble { port, is_over: is_over.clone(), streams };
        let (kept, answer) = (trouble.streams.clone(), format!("{answer}\r\n"));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if is_over.load(Ordering::Relaxed) {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                    copy(client.try_clone().unwrap(), server.try_clone().unwrap());
                    copy(server, client);
                } else {
                    kept.lock().unwrap().push(client.try_clone().unwrap());
                    let answer = answer.clone();
                    std::thread::spawn(move || refuse(client, &answer));
                }
            }
        });
        trouble
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Gives one answer to each command of a client.
fn refuse(client: TcpStream, answer: &str) {
    let mut commands = BufReader::new(client.try_clone().unwrap());
    let mut client = client;
    let mut line = String::new();
    while commands.read_line(&mut line).is_ok_and(|count| count > 0) {
        let words: usize = line[1..].trim_end().parse().unwrap();
        for _ in 0..words {
            line.clear();
            commands.read_line(&mut line).unwrap_or(0);
            let Ok(bytes) = line.trim_start_matches('$').trim_end().parse::<usize>() else {
                return;
            };
            if commands.read_exact(&mut vec![0; bytes + 2]).is_err() {
                return;
            }
        }
        line.clear();
        if client.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

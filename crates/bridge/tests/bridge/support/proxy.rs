//! A proxy on the loopback interface that cuts its connections on demand: bytes on their way are
//! lost, as with a cable.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The connections that can be cut, and whether the next ones are treated alike: both under one
/// lock, so that no connection that is being made escapes a cut.
struct Connections {
    /// With what ends in a cut.
    streams: Vec<(TcpStream, Shutdown)>,
    is_closed: bool,
    /// Connections that their clients have not closed.
    clients: usize,
    /// Connections that were ever made.
    made: usize,
}

impl Connections {
    fn new(is_closed: bool) -> Arc<Mutex<Connections>> {
        Arc::new(Mutex::new(Connections { streams: Vec::new(), is_closed, clients: 0, made: 0 }))
    }

    fn cut(&mut self) {
        for (stream, end) in self.streams.drain(..) {
            let _ = stream.shutdown(end);
        }
    }
}

/// Locks them. A test that has failed elsewhere cuts its connections all the same.
fn lock(connections: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The replies on their way, counted in pieces as they are read from the server.
#[derive(Default)]
struct Replies {
    are_held: bool,
    read: u64,
    /// While they are held, those up to this number pass.
    passed: u64,
}

#[derive(Default)]
struct Gate {
    replies: Mutex<Replies>,
    changed: Condvar,
}

impl Gate {
    fn change<R>(&self, change: impl FnOnce(&mut Replies) -> R) -> R {
        let result = change(&mut self.replies.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        result
    }

    /// A piece was read: waits until it may pass.
    fn pass(&self) {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.read += 1;
        let number = replies.read;
        let is_held = |replies: &mut Replies| replies.are_held && number > replies.passed;
        drop(self.changed.wait_while(replies, is_held));
    }
}

pub(crate) struct Proxy {
    port: u16,
    /// Where new connections lead.
    target: Arc<AtomicU16>,
    connections: Arc<Mutex<Connections>>,
    gate: Arc<Gate>,
}

impl Proxy {
    pub(crate) fn to(target: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Connections::new(false);
        let kept = connections.clone();
        let target = Arc::new(AtomicU16::new(target));
        let to = target.clone();
        let gate = Arc::new(Gate::default());
        let of_replies = gate.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let target = to.load(Ordering::Relaxed);
                // The server is down for a moment: so is the connection.
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", target)))
                else {
                    continue;
                };
                // A cut does not end what is read from the client: the end of that shows that the
                // client has met the cut. Until then its bytes are dropped.
                let both = [
                    (client.try_clone().unwrap(), Shutdown::Write),
                    (server.try_clone().unwrap(), Shutdown::Both),
                ];
                {
                    let mut kept = lock(&kept);
                    if kept.is_closed {
                        continue;
                    }
                    kept.streams.extend(both);
                    kept.clients += 1;
                    kept.made += 1;
                }
                let (back, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let gate = of_replies.clone();
                std::thread::spawn(move || {
                    copy_each(&back, &to, || gate.pass());
                    let _ = to.shutdown(Shutdown::Write);
                });
                let kept = kept.clone();
                std::thread::spawn(move || {
                    copy_each(&client, &server, || ());
                    let _ = server.shutdown(Shutdown::Both);
                    while let Ok(1..) = (&client).read(&mut [0; 4096]) {}
                    lock(&kept).clients -= 1;
                });
            }
        });
        Proxy { port, target, connections, gate }
    }

    /// New connections lead to this port from now on.
    pub(crate) fn lead_to(&self, port: u16) {
        self.target.store(port, Ordering::Relaxed);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Cuts all connections, and accepts none from now on.
    pub(crate) fn close(&self) {
        {
            let mut connections = lock(&self.connections);
            connections.is_closed = true;
            connections.cut();
        }
        // Held replies meet the cut.
        self.gate.change(|replies| replies.are_held = false);
    }

    /// Holds the replies that the server sends from now on.
    pub(crate) fn hold_replies(&self) {
        self.gate.change(|replies| (replies.are_held, replies.passed) = (true, replies.read));
    }

    /// How many pieces of replies have come from the server.
    pub(crate) fn replies(&self) -> u64 {
        self.gate.change(|replies| replies.read)
    }

    /// Lets held replies pass up to this number of pieces.
    pub(crate) fn pass_replies(&self, to: u64) {
        self.gate.change(|replies| replies.passed = to);
    }

    /// Accepts connections again.
    pub(crate) fn open(&self) {
        lock(&self.connections).is_closed = false;
    }

    /// How many connections the clients have not closed. Each closes its end of a cut connection when
    /// it meets the cut.
    pub(crate) fn clients(&self) -> usize {
        lock(&self.connections).clients
    }

    /// How many connections were ever made.
    pub(crate) fn made(&self) -> usize {
        lock(&self.connections).made
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        lock(&self.connections).cut();
    }
}

/// A proxy that keeps back what a client says, from a word on, until the test lets it go on.
pub(crate) struct Checkpoint {
    port: u16,
    is_armed: Arc<AtomicBool>,
    /// A client has said the word; it goes on when a message is sent.
    pub(crate) reached: Receiver<Sender<()>>,
}

impl Checkpoint {
    pub(crate) fn to(target: u16, word: &'static [u8]) -> Checkpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_armed = Arc::new(AtomicBool::new(false));
        let (arrives, reached) = channel();
        let armed = is_armed.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) =
                    (client.unwrap(), TcpStream::connect(("127.0.0.1", target)).unwrap());
                copy(server.try_clone().unwrap(), client.try_clone().unwrap());
                let (armed, arrives) = (armed.clone(), arrives.clone());
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = (&client).read(&mut bytes) {
                        let has_word = bytes[..count].windows(word.len()).any(|of| of == word);
                        if has_word && armed.swap(false, Ordering::Relaxed) {
                            let (go_on, gone_on) = channel();
                            // Either fails only if the test has ended.
                            let _ = arrives.send(go_on);
                            let _ = gone_on.recv();
                        }
                        if (&server).write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = server.shutdown(Shutdown::Both);
                });
            }
        });
        Checkpoint { port, is_armed, reached }
    }

    /// Keeps back the next client that says the word.
    pub(crate) fn arm(&self) {
        self.is_armed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn copy(from: TcpStream, to: TcpStream) {
    std::thread::spawn(move || {
        copy_each(&from, &to, || ());
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

/// Copies until one of both sides ends. `passes` returns when a piece that was read may go on.
fn copy_each(mut from: &TcpStream, mut to: &TcpStream, passes: impl Fn()) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        passes();
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
}

/// A server in trouble: it has one answer to every command, until its trouble ends. Then its
/// connections end, and new ones lead to the real server.
pub(crate) struct Trouble {
    port: u16,
    connections: Arc<Mutex<Connections>>,
    answer: Arc<Mutex<String>>,
    answers: Arc<AtomicU64>,
}

impl Trouble {
    pub(crate) fn new(target: u16, answer: &str) -> Trouble {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = Arc::new(Mutex::new(format!("{answer}\r\n")));
        let (connections, answers) = (Connections::new(true), Arc::default());
        let trouble = Trouble { port, connections, answer, answers };
        let (kept, answer) = (trouble.connections.clone(), trouble.answer.clone());
        let answers = trouble.answers.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let is_closed = {
                    let mut kept = lock(&kept);
                    kept.streams.push((client.try_clone().unwrap(), Shutdown::Both));
                    kept.is_closed
                };
                if !is_closed {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                    copy(client.try_clone().unwrap(), server.try_clone().unwrap());
                    copy(server, client);
                } else {
                    let answer = answer.lock().unwrap().clone();
                    let answers = answers.clone();
                    std::thread::spawn(move || refuse(client, &answer, &answers));
                }
            }
        });
        trouble
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How often the answer was given.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// New connections get this answer.
    pub(crate) fn answer(&self, answer: &str) {
        *self.answer.lock().unwrap() = format!("{answer}\r\n");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The trouble begins: connections end, and new ones get the answer.
    pub(crate) fn begin(&self) {
        let mut connections = lock(&self.connections);
        connections.is_closed = true;
        connections.cut();
    }

    pub(crate) fn end(&self) {
        let mut connections = lock(&self.connections);
        connections.is_closed = false;
        connections.cut();
    }
}

/// Gives one answer to each command of a client.
fn refuse(client: TcpStream, answer: &str, answers: &AtomicU64) {
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
        answers.fetch_add(1, Ordering::Relaxed);
        if client.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

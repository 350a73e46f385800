//! Resources that the system refuses: descriptors and io_uring. Both settings affect the whole
//! process, so each test runs in a process of its own.

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use rustix::net::{AddressFamily, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uwork_serve::{Config, Io, Server};

use crate::owned;

const CHILD: &str = "UWORK_SERVE_TEST_CHILD";

/// Runs the test of this name again in a process of its own; returns `None` in that process.
pub(crate) fn in_child(test: &str) -> Option<String> {
    if env::var_os(CHILD).is_some() {
        return None;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    let out = owned::output(command.args(["--exact", test, "--nocapture"]).env(CHILD, "1"));
    let text = [out.stdout, out.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    // If the name matched no test, zero tests would pass.
    assert!(out.status.success() && text.contains("1 passed"), "{test}: {text}");
    Some(text)
}

fn config(clients_max: usize) -> Config {
    Config { address: "127.0.0.1:0".parse().unwrap(), threads: 2, clients_max, ..Config::default() }
}

fn ping(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    stream
}

fn limit_descriptors(current: u64) {
    let limit = Rlimit { current: Some(current), maximum: Some(current) };
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn too_few_descriptors_lower_the_client_limit_with_a_note() {
    if in_child("refused::too_few_descriptors_lower_the_client_limit_with_a_note").is_some() {
        return;
    }
    limit_descriptors(200);
    let server = Server::start(config(10_000)).unwrap();
    let note = server.notes().iter().find(|note| note.contains("open descriptors")).unwrap();
    assert!(note.starts_with("10000 clients need "), "{note}");
    assert!(note.contains("200 are allowed: at most 160 clients"), "{note}");
    drop(ping(server.address()));
    server.stop().unwrap();
}

#[test]
fn the_descriptor_limit_is_raised_as_far_as_permitted() {
    if in_child("refused::the_descriptor_limit_is_raised_as_far_as_permitted").is_some() {
        return;
    }
    let maximum = getrlimit(Resource::Nofile).maximum;
    let low = Rlimit { current: Some(100), maximum };
    setrlimit(Resource::Nofile, low).unwrap();
    let server = Server::start(config(500)).unwrap();
    assert_eq!(server.notes(), [] as [&str; 0]);
    assert!(getrlimit(Resource::Nofile).current.is_none_or(|current| current > 500));
}

#[test]
fn without_descriptors_clients_wait_until_another_disconnects() {
    if in_child("refused::without_descriptors_clients_wait_until_another_disconnects").is_some() {
        return;
    }
    limit_descriptors(64);
    for io in [Io::Auto, Io::Epoll] {
        let server = Server::start(Config { io, ..config(50) }).unwrap();
        let first = ping(server.address());
        // Every open connection takes a descriptor on both sides; the client's exists before all
        // that remain are used up.
        let waiting = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let mut files = Vec::new();
        while let Ok(file) = std::fs::File::open("/proc/self/stat") {
            files.push(file);
        }
        // The server has no descriptor left to accept it.
        connect(&waiting, &server.address()).unwrap();
        let mut waiting = TcpStream::from(waiting);
        waiting.write_all(b"PING\r\n").unwrap();
        drop(first);
        let mut reply = [0; 7];
        waiting.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
        server.stop().unwrap();
    }
}

#[test]
fn a_refused_io_uring_falls_back_to_epoll_with_a_note() {
    if in_child("refused::a_refused_io_uring_falls_back_to_epoll_with_a_note").is_some() {
        return;
    }
    refuse_io_uring();
    let server = Server::start(config(10)).unwrap();
    let expected = "the system refuses io_uring (io_uring_setup: Operation not permitted (os error \
                    1)): waiting with epoll";
    assert_eq!(server.notes(), [expected]);
    drop(ping(server.address()));
    server.stop().unwrap();
}

/// Makes `io_uring_setup` fail with EPERM, as container runtimes do.
fn refuse_io_uring() {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};

    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let step = |code, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The first word of the data is the number of the system call.
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
        step(BPF_RET | BPF_K, 0, 0, refused),
        step(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is live and well-formed. It applies to this thread and to the threads
    // that it starts.
    let outcome = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(outcome, 0);
}

//! The memory limit bounds the memory of the process for any sequence of requests. This test counts
//! every allocation and compares the peak with the limit.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

use uwork_serve::{Config, ForeignKeys, Receiver, Server};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Counts allocated bytes, and their maximum over time.
struct Counting;

fn grown(bytes: usize) {
    PEAK.fetch_max(LIVE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: every call is forwarded to the system's allocator unchanged; the counters allocate
// nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old and the new size are not counted together, because the kernel moves large
        // allocations without a copy.
        LIVE.fetch_sub(layout.size(), Relaxed);
        grown(size);
        // SAFETY: by the caller's contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Serializes the tests, because each counts the allocations of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

const LIMIT: usize = 16 << 20;
/// Memory that the server does not charge: connections, the spare memory of threads, and argument
/// positions parsed from the last piece of input.
const BESIDE: usize = 1 << 20;

/// Sends a request with `args` arguments, each generated while sending, and returns the reply.
fn ask(server: &Server, name: &str, args: usize, arg: impl Fn(usize) -> String + Send) -> String {
    let stream = TcpStream::connect(server.address()).unwrap();
    let mut sender = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut piece = format!("*{}\r\n${}\r\n{name}\r\n", args + 1, name.len());
            for place in 0..args {
                let arg = arg(place);
                piece += &format!("${}\r\n{arg}\r\n", arg.len());
                // After a refusal, the server does not read the rest.
                if piece.len() > 60_000 && sender.write_all(piece.as_bytes()).is_err() {
                    return;
                }
                if piece.len() > 60_000 {
                    piece.clear();
                }
            }
            let _ = sender.write_all(piece.as_bytes());
            let _ = sender.shutdown(std::net::Shutdown::Write);
        });
        // The first line of the reply, and the first error among the other lines.
        let mut lines = BufReader::new(stream.take(1 << 32));
        let (mut first, mut line, mut failed) = (String::new(), String::new(), false);
        while matches!(lines.read_line(&mut line), Ok(1..)) {
            failed |= line.starts_with("-OOM ");
            if first.is_empty() {
                first = line.trim_end().to_owned();
            }
            line.clear();
        }
        if failed && !first.starts_with('-') { format!("{first}, -OOM") } else { first }
    })
}

#[test]
fn requests_for_very_many_keys_stay_within_the_limit() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let config = |threads, receiver, foreign_keys| Config {
        address: "127.0.0.1:0".parse().unwrap(),
        threads,
        receiver,
        foreign_keys,
        memory_max: LIMIT,
        ..Config::default()
    };
    for config in [
        config(1, Receiver::Shared, ForeignKeys::InPlace),
        config(2, Receiver::Shared, ForeignKeys::InPlace),
        config(3, Receiver::Shared, ForeignKeys::HandedOver),
        config(2, Receiver::Dedicated, ForeignKeys::HandedOver),
    ] {
        eprintln!("with {config:?}");
        let server = Server::start(config).unwrap();
        // Every code path has run once.
        assert_eq!(ask(&server, "MGET", 100, |key| key.to_string()), "*100");
        assert_eq!(ask(&server, "MSET", 100, |key| key.to_string()), "+OK");
        let base = LIVE.load(Relaxed);
        let mut refusals = 0;
        for keys in [50_000, 200_000, 400_000, 600_000] {
            for name in ["MGET", "EXISTS", "DEL", "MSET"] {
                PEAK.store(LIVE.load(Relaxed), Relaxed);
                let reply = ask(&server, name, keys, |key| format!("{:05x}", key % 0xf_ffff));
                let peak = PEAK.load(Relaxed).saturating_sub(base);
                eprintln!("{name} {keys}: {reply}, {} KiB", peak >> 10);
                assert!(peak < LIMIT + BESIDE, "{name} {keys}: {peak}");
                refusals += usize::from(reply.contains("-OOM"));
                assert_eq!(ask(&server, "FLUSHALL", 0, |_| String::new()), "+OK");
            }
            assert_eq!(ask(&server, "GET", 1, |_| "a".to_owned()), "$-1");
        }
        assert!(refusals > 0, "the limit was reached");
        server.stop().unwrap();
    }
}

#[test]
fn replies_that_are_longer_than_their_requests_stay_within_the_limit() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let config = Config {
        address: "127.0.0.1:0".parse().unwrap(),
        threads: 1,
        memory_max: LIMIT,
        ..Config::default()
    };
    let server = Server::start(config).unwrap();
    let base = LIVE.load(Relaxed);
    let mut refusals = 0;
    for (name, first, args) in [
        ("COMMAND", "INFO", 50_000),
        ("COMMAND", "INFO", 500_000),
        ("COMMAND", "DOCS", 50_000),
        ("COMMAND", "DOCS", 500_000),
    ] {
        PEAK.store(LIVE.load(Relaxed), Relaxed);
        let arg = |place| if place == 0 { first } else { "GET" }.to_owned();
        let reply = ask(&server, name, args, arg);
        let peak = PEAK.load(Relaxed).saturating_sub(base);
        assert!(peak < LIMIT + BESIDE, "{name} {first} {args}: {reply}, {peak}");
        refusals += usize::from(reply.contains("-OOM"));
    }
    // The received argument, and a second copy in the output.
    let reply = ask(&server, "ECHO", 1, |_| "x".repeat(LIMIT * 5 / 8));
    assert!(reply.starts_with("-OOM "), "{reply}");
    assert!(refusals > 0, "the limit was reached");
    server.stop().unwrap();
}

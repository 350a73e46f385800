//! Requests allocate nothing once every code path has run before. This process's allocator counts,
//! on the threads that execute requests: the server's threads and the workers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use uwork_serve::{Config, ForeignKeys, Io, Receiver, Server};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Counts the allocations of those threads.
struct Counting;

// SAFETY: every call is forwarded to the system's allocator unchanged; the counter allocates
// nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: by the caller's contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    // `try_with` fails in an ending thread, which executes no requests any more. A new thread may
    // get its name later, so the name is checked again until it matches.
    let is_counted = IS_COUNTED.try_with(|is_counted| {
        is_counted.set(is_counted.get() || executes_requests());
        is_counted.get()
    });
    if is_counted == Ok(true) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Recognizes the thread by its kernel name, which needs no allocation. The watcher is excluded: it
/// scans periodically, independent of requests.
fn executes_requests() -> bool {
    let mut name = [0_u8; 16];
    // SAFETY: the buffer has room for the longest thread name.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let is_worker = name.starts_with(b"uw/") && !name.starts_with(b"uw/watch");
    is_worker || name.starts_with(b"serve/")
}

const REQUESTS: &[u8] = b"*3\r\n$3\r\nSET\r\n$5\r\nkey:1\r\n$8\r\nabcdefgh\r\n\
    *2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n*2\r\n$3\r\nGET\r\n$5\r\nkey:2\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n\
    *4\r\n$4\r\nMGET\r\n$5\r\nkey:1\r\n$5\r\nkey:3\r\n$5\r\nkey:4\r\n\
    *5\r\n$4\r\nMSET\r\n$5\r\nkey:1\r\n$1\r\n1\r\n$5\r\nkey:5\r\n$1\r\n2\r\n\
    *3\r\n$6\r\nEXISTS\r\n$5\r\nkey:1\r\n$5\r\nkey:5\r\n*2\r\n$6\r\nDIGEST\r\n$5\r\nkey:1\r\n\
    *2\r\n$6\r\nDIGEST\r\n$5\r\nkey:5\r\n*2\r\n$6\r\nDIGEST\r\n$1\r\nn\r\n\
    *2\r\n$3\r\nTTL\r\n$5\r\nkey:1\r\n*2\r\n$6\r\nEXISTS\r\n$5\r\nkey:9\r\n*1\r\n$4\r\nPING\r\n";

/// Sends all requests, and reads up to the last reply.
fn round_trip(stream: &mut TcpStream, buffer: &mut [u8]) {
    stream.write_all(REQUESTS).unwrap();
    let mut len = 0;
    while !buffer[..len].ends_with(b"+PONG\r\n") {
        match stream.read(&mut buffer[len..]).unwrap() {
            0 => panic!("closed after '{}'", buffer[..len].escape_ascii()),
            bytes => len += bytes,
        }
    }
}

#[test]
fn a_request_allocates_nothing_after_the_first_ones() {
    let config = |threads, receiver, io, foreign_keys| Config {
        address: "127.0.0.1:0".parse().unwrap(),
        threads,
        receiver,
        io,
        foreign_keys,
        ..Config::default()
    };
    for config in [
        config(1, Receiver::Shared, Io::Auto, ForeignKeys::InPlace),
        config(3, Receiver::Shared, Io::Auto, ForeignKeys::InPlace),
        config(3, Receiver::Shared, Io::Auto, ForeignKeys::HandedOver),
        config(2, Receiver::Shared, Io::Epoll, ForeignKeys::HandedOver),
        config(2, Receiver::Dedicated, Io::Auto, ForeignKeys::HandedOver),
    ] {
        eprintln!("with {config:?}");
        let server = Server::start(config).unwrap();
        let connect = |_| TcpStream::connect(server.address()).unwrap();
        let mut streams: Vec<TcpStream> = (0..4).map(connect).collect();
        let mut buffer = vec![0; 4096];
        let mut rounds = |rounds| {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            for _ in 0..rounds {
                streams.iter_mut().for_each(|stream| round_trip(stream, &mut buffer));
            }
            ALLOCATIONS.load(Ordering::Relaxed) - before
        };
        rounds(100);
        // A new worker thread may allocate, on a busy machine in many rounds.
        assert!((0..1_000).any(|_| rounds(50) == 0), "each round allocates");
        assert!(ALLOCATIONS.load(Ordering::Relaxed) > 0, "the allocator counts");
    }
}

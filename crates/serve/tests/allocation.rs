//! Requests allocate nothing once everything has been used before. Counted by this process's allocator, on the
//! threads that carry requests out: the server's and the workers'.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use uwork_serve::{Config, Io, Receiver, Server};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Counts what those threads allocate.
struct Counting;

// SAFETY: every call goes on to the system's allocator unchanged; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, handed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    // A thread that is ending is asked for nothing any more. One that begins may get its name later.
    let is_counted = IS_COUNTED.try_with(|is_counted| {
        is_counted.set(is_counted.get() || carries_out());
        is_counted.get()
    });
    if is_counted == Ok(true) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

/// By the name that the system has for the thread, which takes no memory. The watch looks at the machine
/// every now and then, whatever is asked for.
fn carries_out() -> bool {
    let mut name = [0_u8; 16];
    // SAFETY: there is room for the longest name that there is.
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

/// Sends all the requests, and reads up to the last reply.
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
    let config = |threads, receiver, io| Config {
        address: "127.0.0.1:0".parse().unwrap(),
        threads,
        receiver,
        io,
        ..Config::default()
    };
    for config in [
        config(1, Receiver::Shared, Io::Auto),
        config(3, Receiver::Shared, Io::Auto),
        config(2, Receiver::Shared, Io::Epoll),
        config(2, Receiver::Dedicated, Io::Auto),
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
        // A worker that comes is not a request's doing.
        let fewest = (0..10).map(|_| rounds(50)).min();
        assert_eq!(fewest, Some(0));
        assert!(ALLOCATIONS.load(Ordering::Relaxed) > 0, "the counter counts");
    }
}

//! A program that is stuck, to be looked at by `uwork doctor`: `stuck KIND`. It prints its process's
//! number when its items are stuck, and runs until a signal ends it, or the program that has given it a
//! pipe as its standard input. Its twin in C is `lab/stuck/stuck.c`.

use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use uwork::Queue;

/// Items that have come to the place where they are stuck.
pub(crate) static STUCK: AtomicU32 = AtomicU32::new(0);
static LOCKS: [Mutex<u32>; 2] = [Mutex::new(0), Mutex::new(0)];

/// Computes for ever.
#[inline(never)]
fn spins_for_ever() {
    let mut n = 0_u64;
    STUCK.fetch_add(1, Ordering::SeqCst);
    while std::hint::black_box(n) != u64::MAX {
        n = n.wrapping_add(2);
    }
}

/// Takes a lock and then the other, of which another item holds the first.
#[inline(never)]
fn takes_both_locks(first: usize) {
    let mut held = LOCKS[first].lock().unwrap();
    STUCK.fetch_add(1, Ordering::SeqCst);
    while STUCK.load(Ordering::SeqCst) < 2 {
        std::hint::spin_loop();
    }
    *held += *LOCKS[1 - first].lock().unwrap();
}

/// Waits for all items of a queue, of which one waits for all items of this one's queue.
#[inline(never)]
fn flushes_the_other_queue(other: &Queue) {
    STUCK.fetch_add(1, Ordering::SeqCst);
    while STUCK.load(Ordering::SeqCst) < 2 {
        std::hint::spin_loop();
    }
    other.flush().unwrap();
}

/// Waits for a thread that waits for all items of this one's queue. Without the thread, the flush
/// would be refused.
#[inline(never)]
fn waits_for_a_flush_of_its_queue(own: Arc<Queue>) {
    let flusher = std::thread::spawn(move || {
        STUCK.fetch_add(1, Ordering::SeqCst);
        own.flush()
    });
    std::hint::black_box(flusher.join().is_err());
}

/// Sleeps in a system call: nothing is ever written to the pipe.
#[inline(never)]
fn reads_from_a_pipe(pipe: &mut std::io::PipeReader) {
    STUCK.fetch_add(1, Ordering::SeqCst);
    let _ = std::hint::black_box(pipe.read(&mut [0]));
}

/// Waits for a message that is never sent.
#[inline(never)]
fn waits_for_a_message(messages: &mpsc::Receiver<()>) {
    STUCK.fetch_add(1, Ordering::SeqCst);
    std::hint::black_box(messages.recv().is_err());
}

/// Starts the items of this kind in the queue `stuck`, which never end. Returns how many get stuck; None
/// if there is no such kind.
pub(crate) fn start(kind: &str) -> Option<u32> {
    let queue = Arc::new(Queue::builder("stuck").max_active(2).build().unwrap());
    let other = Arc::new(Queue::builder("other").ordered().build().unwrap());
    let expected = match kind {
        "loop" => {
            drop(queue.spawn(spins_for_ever));
            1
        }
        "locks" => {
            drop(queue.spawn(|| takes_both_locks(0)));
            drop(queue.spawn(|| takes_both_locks(1)));
            2
        }
        "flush" => {
            let (own, second) = (queue.clone(), other.clone());
            drop(queue.spawn(move || flushes_the_other_queue(&second)));
            drop(other.spawn(move || flushes_the_other_queue(&own)));
            2
        }
        "own" => {
            let own = queue.clone();
            drop(queue.spawn(move || waits_for_a_flush_of_its_queue(own)));
            1
        }
        "call" => {
            let (mut reader, writer) = std::io::pipe().unwrap();
            std::mem::forget(writer);
            drop(queue.spawn(move || reads_from_a_pipe(&mut reader)));
            1
        }
        "limit" => {
            for _ in 0..2 {
                let (sender, messages) = mpsc::channel();
                std::mem::forget(sender);
                drop(queue.spawn(move || waits_for_a_message(&messages)));
            }
            (0..8).for_each(|_| drop(queue.spawn(|| ())));
            2
        }
        _ => return None,
    };
    // The drop of a queue waits for its items.
    std::mem::forget((queue, other));
    Some(expected)
}

fn main() {
    let Some(expected) = start(&std::env::args().nth(1).unwrap_or_default()) else {
        eprintln!("usage: stuck loop|locks|flush|own|call|limit");
        std::process::exit(2);
    };
    while STUCK.load(Ordering::SeqCst) < expected || uwork::control::socket().is_err() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    println!("{}", std::process::id());
    // In the background of a script, standard input may be /dev/null, which has ended.
    let is_pipe = |input: std::fs::Metadata| input.file_type().is_fifo();
    while !std::fs::metadata("/dev/stdin").is_ok_and(is_pipe) {
        std::thread::park();
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

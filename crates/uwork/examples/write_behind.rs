//! A write-behind log: lines are collected in memory, and one delayed item writes them out.
//!
//! However many lines come in, the item is queued once: a pending item is not queued again. When
//! the log is closed, the remaining lines are written at once.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uwork::{DelayedWork, Enqueued, Queue, WorkItem};

/// How long a line waits for others to be written with it.
const DELAY: Duration = Duration::from_millis(5);

struct Log {
    write_out: DelayedWork<Log>,
    lines: Mutex<String>,
    file: Mutex<File>,
    writes: Mutex<u32>,
}
uwork::has_work!(impl HasDelayedWork for Log { write_out });

impl WorkItem for Log {
    type Pointer = Arc<Log>;

    /// Never runs twice at once, so the lines stay in order.
    fn run(this: Arc<Log>) {
        this.write_lines();
    }
}

impl Log {
    fn append(self: &Arc<Log>, queue: &Queue, line: &str) {
        let mut lines = self.lines.lock().unwrap();
        lines.push_str(line);
        lines.push('\n');
        drop(lines);
        match queue.enqueue_delayed(self.clone(), DELAY) {
            // Pending: the coming run sees the line that was appended above.
            Enqueued::Queued | Enqueued::Pending(_) => {}
            Enqueued::Disabled(_) | Enqueued::Refused(_) => eprintln!("the log is closed"),
        }
    }

    fn write_lines(&self) {
        let lines = std::mem::take(&mut *self.lines.lock().unwrap());
        let outcome = uwork::blocking(|| self.file.lock().unwrap().write_all(lines.as_bytes()));
        if let Err(error) = outcome {
            eprintln!("{} bytes of the log are lost: {error}", lines.len());
        }
        *self.writes.lock().unwrap() += 1;
    }

    /// Accepts no more lines and writes the remaining ones.
    fn close(&self) -> Result<(), uwork::DisableDepthError> {
        // From now on the item is neither armed nor queued, and does not run.
        drop(self.write_out.disable_sync()?);
        self.write_lines();
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("uwork-write-behind-{}.log", std::process::id()));
    let queue = Queue::builder("write-behind").build()?;
    let log = Arc::new(Log {
        write_out: DelayedWork::new(),
        lines: Mutex::new(String::new()),
        file: Mutex::new(File::create(&path)?),
        writes: Mutex::new(0),
    });

    const WRITERS: u32 = 4;
    const LINES: u32 = 25_000;
    std::thread::scope(|threads| {
        for writer in 0..WRITERS {
            let (log, queue) = (&log, &queue);
            threads.spawn(move || {
                (0..LINES).for_each(|n| log.append(queue, &format!("writer {writer} line {n}")));
            });
        }
    });
    log.close()?;

    let written = std::fs::read_to_string(&path)?.lines().count();
    std::fs::remove_file(&path)?;
    let writes = *log.writes.lock().unwrap();
    println!("{written} lines from {WRITERS} threads in {writes} writes");
    assert_eq!(written, (WRITERS * LINES) as usize);
    Ok(())
}

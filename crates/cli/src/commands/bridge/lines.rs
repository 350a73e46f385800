//! Lines for standard error from threads that must not wait for its reader: those of a consumer give
//! heartbeats, and one that ends kills its jobs. A thread of its own writes them.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::commands::{Patient, UserError, one_line};

/// Bytes of lines that wait for the reader. Further ones are dropped, and counted.
const BYTES_MAX: usize = 1 << 20;
/// How long the end of a process waits for the reader of its last lines.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Lines that wait to be written. The clones share them.
#[derive(Clone)]
pub(super) struct Lines(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<String>,
    bytes: usize,
    /// Those for which there was no room behind the lines.
    dropped: u64,
    is_writing: bool,
}

impl State {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }
}

impl Lines {
    /// Lines for standard error. The thread has the signal mask of the caller.
    pub(super) fn of_stderr() -> Result<Lines, UserError> {
        Lines::to(Patient(io::stderr()))
            .map_err(|error| UserError(format!("a thread for lines: {error}")))
    }

    fn to(out: impl Write + Send + 'static) -> io::Result<Lines> {
        let lines = Lines(Arc::default());
        let queue = lines.0.clone();
        thread::Builder::new().name("lines".into()).spawn(move || queue.write_to(out))?;
        Ok(lines)
    }

    /// Adds a line, as by `complain!`.
    pub(super) fn say(&self, text: &str) {
        let line = one_line(text) + "\n";
        let mut state = self.0.lock();
        let is_full = !state.lines.is_empty() && state.bytes + line.len() > BYTES_MAX;
        if is_full || state.dropped > 0 {
            state.dropped += 1;
        } else {
            state.bytes += line.len();
            state.lines.push_back(line);
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// Waits until all lines are written, for a second at most: the process ends.
    pub(super) fn finish(&self) {
        self.flush(FLUSH_MAX);
    }

    /// False if the limit is over before all lines are written.
    fn flush(&self, limit: Duration) -> bool {
        let is_left = |state: &mut State| !state.is_empty() || state.is_writing;
        let waited = self.0.changed.wait_timeout_while(self.0.lock(), limit, is_left);
        let (_state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, mut out: impl Write) {
        loop {
            let waited = self.changed.wait_while(self.lock(), |state| state.is_empty());
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            let mut text: String = state.lines.drain(..).collect();
            if state.dropped > 0 {
                let dropped = state.dropped;
                text +=
                    &format!("uwork bridge: {dropped} more line(s), which were not read in time\n");
            }
            *state = State { is_writing: true, ..State::default() };
            drop(state);
            // Nothing can report that the reader has gone.
            let _ = out.write_all(text.as_bytes());
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }
}

/// Says a last line, although standard error may have a reader that does not read.
pub(super) fn say_last(text: &str) {
    if let Ok(lines) = Lines::of_stderr() {
        lines.say(text);
        lines.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    /// A reader that reads when it is told, and says when it is waited for.
    struct Gate {
        waits: Sender<()>,
        go: Receiver<()>,
        read: Arc<Mutex<String>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // The test may have ended.
            let _ = self.waits.send(());
            let _ = self.go.recv();
            self.read.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_delays_no_line_and_learns_how_many_are_missing() {
        const LINES: usize = 100_000;
        let ((waits, waited), (go_on, go)) = (channel(), channel());
        let read = Arc::new(Mutex::new(String::new()));
        let lines = Lines::to(Gate { waits, go, read: read.clone() }).unwrap();
        assert!(lines.flush(LONG), "there is no line");
        lines.say("the\nfirst");
        waited.recv().unwrap();
        (0..LINES).for_each(|n| lines.say(&format!("line {n:06}")));
        assert!(!lines.flush(Duration::ZERO), "the first one is not written");
        go_on.send(()).unwrap();
        waited.recv().unwrap();
        drop(go_on);
        assert!(lines.flush(LONG));
        lines.say("the last");
        assert!(lines.flush(LONG));
        let text = read.lock().unwrap();
        let mut all = text.lines();
        assert_eq!((all.next(), all.next_back()), (Some("the\\u000afirst"), Some("the last")));
        let missing = all.next_back().unwrap().strip_prefix("uwork bridge: ").unwrap();
        let missing: usize = missing.split(' ').next().unwrap().parse().unwrap();
        let kept: Vec<&str> = all.collect();
        assert_eq!((kept[0], kept.len() + missing), ("line 000000", LINES));
        assert_eq!(kept.len(), BYTES_MAX / "line 000000\n".len());
    }
}

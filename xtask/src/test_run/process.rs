//! One process of a test binary, from its start to its end.
//!
//! It writes into files and not into pipes, because a process that outlives it may hold a pipe open
//! for ever.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;
use std::time::{Duration, Instant};

use super::binary::Binary;
use super::event::{Event, split};
use super::lists;
use super::record::Record;
use super::tally::Tally;

/// How often the files are read.
const PAUSE: Duration = Duration::from_millis(20);
/// A test says nothing for this long only if neither a watchdog nor a limit of its own ends it.
const SILENCE_MAX: Duration = Duration::from_secs(30 * 60);
/// Tests that take longer are shown with their duration.
const LONG: Duration = Duration::from_secs(5);

/// How many tests of a binary run at once; the option `--test-threads` has precedence.
const THREADS: &str = "RUST_TEST_THREADS";
/// So many tests that mostly wait run beside each other.
const WAITING_FOR_EACH_CPU: usize = 4;

pub(super) struct Ended {
    pub(super) tally: Tally,
    /// As in `signal: 6 (SIGABRT)`.
    pub(super) ending: String,
    /// The exit code, unless a signal ended the process.
    pub(super) code: Option<i32>,
    /// All that was written, apart from events.
    pub(super) output: String,
}

/// Runs the binary with these arguments, and prints what happens.
pub(super) fn run(
    binary: &Binary,
    arguments: &[String],
    record: &mut Record,
) -> Result<Ended, String> {
    let (mut out, written_out) = record.scratch("out")?;
    let (mut err, written_err) = record.scratch("err")?;
    let mut command = binary.command();
    command.args(arguments).stdout(written_out).stderr(written_err);
    if lists::waits(&binary.package, &binary.target) && std::env::var_os(THREADS).is_none() {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        command.env(THREADS, (WAITING_FOR_EACH_CPU * cpus).to_string());
    }
    let child = command.spawn();
    let mut child = child.map_err(|error| format!("{}: {error}", binary.program.display()))?;
    let mut follower = Follower::new(binary.label());
    let mut heard = Instant::now();
    let status = loop {
        // In this order, so that nothing is missed that the process wrote before its end.
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        let news = follower.read(&mut out, &mut err, record)?;
        if news {
            heard = Instant::now();
        }
        match ended {
            Some(status) => break status,
            None if heard.elapsed() > SILENCE_MAX => end(&mut child, &mut heard),
            None if !news => std::thread::sleep(PAUSE),
            None => {}
        }
    };
    follower.finish(record);
    let (ending, code) = (status.to_string(), status.code());
    Ok(Ended { tally: follower.tally, ending, code, output: follower.output })
}

fn end(child: &mut Child, heard: &mut Instant) {
    println!("no test has begun or ended in {SILENCE_MAX:?}: the process is killed");
    // It may have ended by itself.
    let _ = child.kill();
    *heard = Instant::now();
}

/// Reads both files as they grow.
struct Follower {
    label: String,
    tally: Tally,
    output: String,
    began: Vec<(String, Instant)>,
    /// The last lines, which have not ended.
    rest_out: Vec<u8>,
    rest_err: Vec<u8>,
}

impl Follower {
    fn new(label: String) -> Self {
        let tally = Tally::default();
        let (rest_out, rest_err) = (Vec::new(), Vec::new());
        Self { label, tally, output: String::new(), began: Vec::new(), rest_out, rest_err }
    }

    /// Whether there was anything new.
    fn read(
        &mut self,
        out: &mut File,
        err: &mut File,
        record: &mut Record,
    ) -> Result<bool, String> {
        let mut news = 0;
        news += err.read_to_end(&mut self.rest_err).map_err(|error| error.to_string())?;
        for line in take_lines(&mut self.rest_err) {
            self.text(&line);
        }
        news += out.read_to_end(&mut self.rest_out).map_err(|error| error.to_string())?;
        for line in take_lines(&mut self.rest_out) {
            self.line(&line, record);
        }
        Ok(news != 0)
    }

    fn finish(&mut self, record: &mut Record) {
        let rest = std::mem::take(&mut self.rest_err);
        self.text(&String::from_utf8_lossy(&rest));
        let rest = std::mem::take(&mut self.rest_out);
        self.line(&String::from_utf8_lossy(&rest), record);
        record.running(&self.label, &[]);
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            println!("{text}");
            self.output += text;
            self.output.push('\n');
        }
    }

    fn line(&mut self, line: &str, record: &mut Record) {
        let parts = split(line);
        self.text(&parts.text);
        for event in &parts.events {
            self.tally.note(event);
            self.show(event);
        }
        if !parts.events.is_empty() {
            record.running(&self.label, &self.tally.running);
            let _ = std::io::stdout().flush();
        }
    }

    fn show(&mut self, event: &Event) {
        let (test, verdict) = match event {
            Event::Began(test) => return self.began.push((test.clone(), Instant::now())),
            Event::Over(_) => return,
            Event::Passed(test) => (test, "ok"),
            Event::Ignored(test) => (test, "ignored"),
            Event::Failed(test, _) => (test, "FAILED"),
            Event::Slow(test) => (test, "is still running"),
        };
        let took = self.began.iter().find(|(name, _)| name == test).map(|(_, at)| at.elapsed());
        match took.filter(|took| *took >= LONG) {
            Some(took) => println!("test {test} ... {verdict} ({:.0} s)", took.as_secs_f64()),
            None => println!("test {test} ... {verdict}"),
        }
    }
}

/// Takes the whole lines out of the buffer.
fn take_lines(buffer: &mut Vec<u8>) -> Vec<String> {
    let Some(last) = buffer.iter().rposition(|&byte| byte == b'\n') else { return Vec::new() };
    let rest = buffer.split_off(last + 1);
    let whole = std::mem::replace(buffer, rest);
    String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::take_lines;

    #[test]
    fn a_line_is_read_when_it_has_ended() {
        let mut buffer = b"one\ntwo\nthr".to_vec();
        assert_eq!(take_lines(&mut buffer), ["one", "two"]);
        assert_eq!(take_lines(&mut buffer), [""; 0]);
        buffer.extend(b"ee\n");
        assert_eq!(take_lines(&mut buffer), ["three"]);
        assert!(buffer.is_empty());
    }
}

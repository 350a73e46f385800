//! Prints the parts in order, each as soon as all parts before it are printed, and starts the next
//! few deferred jobs.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use super::job::{self, Job, Part, Shared, Tally, Text};
use crate::commands::Patient;

/// Number of parts, counted from the one being printed, that are always started. The number matters
/// once `HELD_MAX` stops items from queueing jobs freely; it must then keep all workers busy.
const AHEAD: usize = if cfg!(test) { 2 } else { 64 };

/// Writes to standard output (in tests, to a buffer) and to standard error.
pub(super) struct Printer<W: Write> {
    shared: Arc<Shared>,
    out: BufWriter<W>,
}

/// The parts of one result that are not printed yet.
struct Level {
    parts: VecDeque<Part>,
    /// The first `checked` parts are started already, or must not be started ahead.
    checked: usize,
}

impl Level {
    fn new(parts: Vec<Part>) -> Self {
        Self { parts: parts.into(), checked: 0 }
    }

    fn start_ahead(&mut self, shared: &Arc<Shared>) {
        while self.checked < self.parts.len().min(AHEAD) {
            let part = &mut self.parts[self.checked];
            if matches!(part, Part::Later(job) if !matches!(job, Job::StandardInput))
                && let Part::Later(job) = std::mem::replace(part, Part::Text(Text::default()))
            {
                *part = job::start(shared, job);
            }
            self.checked += 1;
        }
    }

    fn pop(&mut self) -> Option<Part> {
        self.checked = self.checked.saturating_sub(1);
        self.parts.pop_front()
    }
}

/// Standard output without the line buffer of `io::stdout()`, which writes each line separately.
pub(super) fn standard_output() -> io::Result<Patient<File>> {
    Ok(Patient(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
}

impl<W: Write> Printer<W> {
    pub(super) fn new(shared: Arc<Shared>, out: W) -> Self {
        Self { shared, out: BufWriter::with_capacity(64 * 1024, out) }
    }

    /// Prints the results of the jobs in order, and returns the totals.
    ///
    /// # Errors
    /// Standard output cannot be written. Items that still run are then asked to stop.
    pub(super) fn print(&mut self, jobs: Vec<Job>) -> io::Result<Tally> {
        let outcome = self.print_parts(jobs.into_iter().map(Part::Later).collect());
        if outcome.is_err() {
            self.shared.stop();
        }
        outcome
    }

    fn print_parts(&mut self, parts: Vec<Part>) -> io::Result<Tally> {
        let mut tally = Tally::default();
        let mut levels = vec![Level::new(parts)];
        while let Some(level) = levels.last_mut() {
            level.start_ahead(&self.shared);
            match level.pop() {
                None => {
                    levels.pop();
                }
                Some(Part::Text(text)) => {
                    self.text(&text)?;
                    tally.add(text.tally);
                }
                Some(Part::Started(handle, charge)) => {
                    // The wait may be long, so the text printed so far must become visible first.
                    self.flush()?;
                    match handle.join() {
                        Ok(parts) => levels.push(Level::new(parts)),
                        Err(error) => {
                            self.complain(&format!("uwork: a work item failed: {error}\n"))?;
                            tally.unreadable += 1;
                        }
                    }
                    drop(charge);
                }
                Some(Part::Later(job)) => {
                    self.flush()?;
                    levels.push(Level::new(job.run(&self.shared)));
                }
            }
        }
        self.flush()?;
        Ok(tally)
    }

    fn text(&mut self, text: &Text) -> io::Result<()> {
        self.out.write_all(&text.lines)?;
        match text.complaints.is_empty() {
            true => Ok(()),
            false => self.complain(&text.complaints),
        }
    }

    /// Prints to standard error, after all earlier text for standard output.
    pub(super) fn complain(&mut self, text: &str) -> io::Result<()> {
        self.flush()?;
        self.shared.progress.suspend(|| {
            // An error here cannot be reported anywhere.
            let _ = io::stderr().write_all(text.as_bytes());
        });
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Self { shared, out } = self;
        match out.buffer().is_empty() {
            true => Ok(()),
            false => shared.progress.suspend(|| out.flush()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use super::super::digest::Algorithm;
    use super::super::progress::Progress;
    use super::*;

    /// A tree of adjacent and nested directories with more files than the small bounds in tests
    /// permit to be held.
    fn make_tree(root: &std::path::Path) -> BTreeMap<Vec<u8>, String> {
        let mut files = BTreeMap::new();
        for i in 0..400_usize {
            let dir = match i % 4 {
                0 => root.join(format!("a{}", i % 40)),
                1 => root.join(format!("a{}/b.{}/c", i % 20, i % 60)),
                2 => root.join(format!("a{}/b", i % 30)),
                _ => root.to_owned(),
            };
            fs::create_dir_all(&dir).unwrap();
            let path = dir.join(format!("{}.{i}", ["a", "b-", "z", "a0"][i % 7 % 4]));
            fs::write(&path, i.to_string()).unwrap();
            files.insert(path.as_os_str().as_bytes().to_vec(), i.to_string());
        }
        files
    }

    #[test]
    fn output_order_holds_with_far_more_files_than_may_be_held() {
        let root = tempfile::tempdir().unwrap();
        let mut expected = String::new();
        for (path, content) in make_tree(root.path()) {
            let crc = crc32c::crc32c(content.as_bytes());
            expected.push_str(&format!("{crc:08x}  {}\n", String::from_utf8(path).unwrap()));
        }
        let queue = uwork::Queue::builder("sum-order").unbound().build().unwrap();
        let shared = Shared::new(queue, Algorithm::Crc32c, false, Progress::new(false));
        let path = root.path().as_os_str().as_bytes().to_vec();
        let mut printed = Vec::new();
        let mut printer = Printer::new(shared.clone(), &mut printed);
        let tally = printer.print(vec![Job::Directory { path, named: true }]).unwrap();
        drop(printer);
        assert_eq!(String::from_utf8(printed).unwrap(), expected);
        assert_eq!(tally, Tally::default());
        assert_eq!(shared.held(), 0, "all charges are given back");
    }

    #[test]
    fn an_item_that_panics_is_reported_and_the_rest_is_printed() {
        let queue = uwork::Queue::builder("sum-panic").unbound().build().unwrap();
        let shared = Shared::new(queue, Algorithm::Crc32c, false, Progress::new(false));
        let handle = shared.queue.spawn(|| -> Vec<Part> { panic!("on purpose") });
        let charge = job::Charge::new(&shared, 1);
        let text = Text { lines: b"after\n".to_vec(), ..Text::default() };
        let mut printed = Vec::new();
        let mut printer = Printer::new(shared.clone(), &mut printed);
        let tally =
            printer.print_parts(vec![Part::Started(handle, charge), Part::Text(text)]).unwrap();
        drop(printer);
        assert_eq!((printed.as_slice(), tally.unreadable), (&b"after\n"[..], 1));
    }
}

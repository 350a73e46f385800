//! Reads small text files under a root folder, and keeps notes of anomalies.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use uwork_policy::cpuset::CpuSet;

use crate::small_files;

/// The number of notes kept; the same anomaly on every CPU must not fill the memory.
const MAX_NOTES: usize = 16;

/// The most that is read of a file; none is expected to be longer.
const MAX_FILE_BYTES: usize = 4 << 20;

pub(super) struct Files<'a> {
    root: &'a Path,
    notes: Vec<String>,
    left_out: usize,
    /// Files read since this list was taken last.
    consulted: RefCell<Vec<String>>,
}

impl<'a> Files<'a> {
    pub(super) fn under(root: &'a Path) -> Self {
        Self { root, notes: Vec::new(), left_out: 0, consulted: RefCell::default() }
    }

    pub(super) fn note(&mut self, note: String) {
        if self.notes.contains(&note) {
            return;
        }
        match self.notes.len() < MAX_NOTES {
            true => self.notes.push(note),
            false => self.left_out += 1,
        }
    }

    pub(super) fn into_notes(mut self) -> Vec<String> {
        if self.left_out > 0 {
            self.notes.push(format!("{} more like these", self.left_out));
        }
        self.notes
    }

    /// The files that were read since the last call.
    pub(super) fn take_consulted(&mut self) -> Vec<String> {
        self.consulted.take()
    }

    /// The location under the root of an absolute path of the machine.
    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The file's text without surrounding white space; `None` if it cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let bytes = small_files::contents(&self.path(path), MAX_FILE_BYTES)?;
        self.consulted.borrow_mut().push(path.to_owned());
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub(super) fn number(&self, path: &str) -> Option<u32> {
        self.text(path)?.parse().ok()
    }

    /// A CPU list; `None` if the file is missing, and also, with a note, if it does not contain a
    /// CPU list.
    pub(super) fn cpus(&mut self, path: &str) -> Option<CpuSet> {
        let text = self.text(path)?;
        // Some kernels print this for a mask that was never allocated.
        if text == "(null)" {
            return Some(CpuSet::new());
        }
        match text.parse() {
            Ok(cpus) => Some(cpus),
            Err(error) => {
                self.note(format!("{path}: {error}; ignored"));
                None
            }
        }
    }

    /// The numbers N of the entries `prefixN` of a folder, ascending.
    pub(super) fn numbered(&self, folder: &str, prefix: &str) -> Vec<u32> {
        let names = small_files::names(&self.path(folder), MAX_FILE_BYTES).into_iter();
        let numbers = names.filter_map(|name| {
            let name = String::from_utf8(name).ok()?;
            let digits = name.strip_prefix(prefix)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
        });
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        numbers
    }
}

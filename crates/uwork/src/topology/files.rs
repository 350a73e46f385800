//! Reading small text files under a root folder, and keeping note of what was odd.

use std::cell::RefCell;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use uwork_policy::cpuset::CpuSet;

/// Notes kept; a machine that is odd in the same way on every CPU must not fill the memory.
const MAX_NOTES: usize = 16;

/// No file that is read here is longer; what is behind it is cut off.
const MAX_FILE_BYTES: u64 = 4 << 20;

pub(super) struct Files<'a> {
    root: &'a Path,
    notes: Vec<String>,
    left_out: usize,
    /// Files that could be read, since this was taken last.
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

    /// Where an absolute path of the machine lies under the root.
    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The file's text without the white space around it; `None` if it cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        fs::File::open(self.path(path)).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        self.consulted.borrow_mut().push(path.to_owned());
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub(super) fn number(&self, path: &str) -> Option<u32> {
        self.text(path)?.parse().ok()
    }

    /// A CPU list; `None`, with a note, if there is something that is no CPU list.
    pub(super) fn cpus(&mut self, path: &str) -> Option<CpuSet> {
        let text = self.text(path)?;
        // What some kernels print for a mask that was never allocated.
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
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let numbers = names.filter_map(|name| {
            let digits = name.strip_prefix(prefix)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
        });
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        numbers
    }
}

//! Checksum files: each file is parsed completely before any listed file is checked, then checked
//! line by line.
//!
//! A line is `HASH  NAME` or `HASH *NAME` (GNU), or `TAG (NAME) = HASH` (BSD). A leading backslash
//! means that the name is escaped. Blanks before the line and a carriage return after it are
//! skipped, as are empty lines and lines that start with `#`.

use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::digest::{Algorithm, Digest};
use super::job::{FILES_PER_ITEM, Job, Tally, Work};
use super::names;

/// The reporting options of the command line.
#[derive(Clone, Copy, Default)]
pub(super) struct Mode {
    /// Print no line for a file that matches.
    pub(super) quiet: bool,
    /// Print no result lines and no closing warnings.
    pub(super) status: bool,
    /// A malformed line makes the exit code 1.
    pub(super) strict: bool,
    /// Do not report files that do not exist.
    pub(super) ignore_missing: bool,
    /// Report each malformed line.
    pub(super) warn: bool,
}

/// A parsed checksum file.
pub(super) struct Check {
    /// The file's name, used in messages.
    source: String,
    mode: Mode,
    entries: Vec<Entry>,
    /// All names, concatenated.
    names: Vec<u8>,
    /// Line numbers of malformed lines, starting from 1.
    malformed: Vec<usize>,
    tag: &'static str,
}

struct Entry {
    digest: Digest,
    name: Range<usize>,
}

impl Check {
    /// Parses the text of a checksum file; messages call the file `source`.
    ///
    /// # Errors
    /// No line is properly formatted. The error is a line for standard error.
    pub(super) fn parse(
        source: String,
        text: &[u8],
        algorithm: Algorithm,
        mode: Mode,
    ) -> Result<Self, String> {
        let tag = algorithm.tag();
        let mut check = Self {
            source,
            mode,
            entries: Vec::new(),
            names: Vec::new(),
            malformed: Vec::new(),
            tag,
        };
        for (i, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            match parse_line(line, algorithm, &mut check.names) {
                Some((digest, name)) => check.entries.push(Entry { digest, name }),
                None => check.malformed.push(i + 1),
            }
        }
        if check.entries.is_empty() {
            return Err(format!(
                "uwork: {}: no properly formatted {tag} checksum lines found (allowed: 'HASH  NAME', \
                 'HASH *NAME', '{tag} (NAME) = HASH')\n",
                check.source
            ));
        }
        Ok(check)
    }

    /// Whether a malformed line makes the exit code 1.
    pub(super) fn is_refused(&self) -> bool {
        self.mode.strict && !self.malformed.is_empty()
    }

    /// The jobs that check all lines.
    pub(super) fn jobs(self: &Arc<Self>) -> Vec<Job> {
        let all = self.entries.len();
        let starts = (0..all).step_by(FILES_PER_ITEM);
        starts
            .map(|start| Job::Check(self.clone(), start..all.min(start + FILES_PER_ITEM)))
            .collect()
    }

    /// Checks the lines in `run`.
    pub(super) fn run(self: &Arc<Self>, work: &mut Work<'_>, run: Range<usize>) {
        for i in run.clone() {
            if work.shared.stopped() {
                return;
            }
            let entry = &self.entries[i];
            let name = &self.names[entry.name.clone()];
            let (shared, mut rest) = (work.shared, None);
            let outcome = work.hash_named(name, || {
                if i + 1 < run.end {
                    rest =
                        Some(super::job::offer(shared, Job::Check(self.clone(), i + 1..run.end)));
                }
            });
            self.verdict(work, entry.digest, name, outcome);
            if let Some(rest) = rest {
                work.answer.push(rest);
                return;
            }
        }
    }

    fn verdict(
        &self,
        work: &mut Work<'_>,
        expected: Digest,
        name: &[u8],
        outcome: io::Result<Digest>,
    ) {
        let verdict = match outcome {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.mode.ignore_missing => {
                return;
            }
            Err(error) => {
                work.answer.unreadable(name, &error);
                "FAILED open or read"
            }
            Ok(digest) if digest == expected => {
                work.answer.text.tally.matched += 1;
                "OK"
            }
            Ok(_) => {
                work.answer.text.tally.mismatched += 1;
                "FAILED"
            }
        };
        if self.mode.status || (self.mode.quiet && verdict == "OK") {
            return;
        }
        let lines = &mut work.answer.text.lines;
        if names::needs_escape(name) {
            lines.push(b'\\');
        }
        names::write_escaped(name, lines);
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(verdict.as_bytes());
        lines.push(b'\n');
    }

    /// A warning for each malformed line, if `--warn` is given.
    pub(super) fn opening_warnings(&self) -> String {
        let mut text = String::new();
        for line in self.malformed.iter().filter(|_| self.mode.warn) {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(
                text,
                "uwork: {}: {line}: improperly formatted {} checksum line",
                self.source, self.tag
            );
        }
        text
    }

    /// The closing warnings, built from the totals.
    pub(super) fn closing_warnings(&self, tally: Tally) -> String {
        let mut text = String::new();
        if self.mode.status {
            return text;
        }
        let counts = [
            (
                self.malformed.len() as u64,
                "line is improperly formatted",
                "lines are improperly formatted",
            ),
            (tally.unreadable, "listed file could not be read", "listed files could not be read"),
            (
                tally.mismatched,
                "computed checksum did NOT match",
                "computed checksums did NOT match",
            ),
        ];
        for (n, one, many) in counts {
            match n {
                0 => {}
                1 => drop(writeln!(text, "uwork: WARNING: 1 {one}")),
                _ => drop(writeln!(text, "uwork: WARNING: {n} {many}")),
            }
        }
        if self.mode.ignore_missing && tally.matched == 0 {
            let _ = writeln!(text, "uwork: {}: no file was verified", self.source);
        }
        text
    }
}

/// Parses one line and appends its unescaped name to `names`.
fn parse_line(
    line: &[u8],
    algorithm: Algorithm,
    names: &mut Vec<u8>,
) -> Option<(Digest, Range<usize>)> {
    let line = line.trim_ascii_start();
    let (escaped, line) = match line.strip_prefix(b"\\") {
        Some(line) => (true, line),
        None => (false, line),
    };
    let (digest, name) = match line.strip_prefix(algorithm.tag().as_bytes()) {
        Some(rest) => parse_tagged(rest, algorithm)?,
        None => match Digest::parse(line, algorithm.digest_len())? {
            (digest, [b' ' | b'\t', b' ' | b'*', name @ ..]) => (digest, name),
            _ => return None,
        },
    };
    let start = names.len();
    match escaped {
        true if !names::write_unescaped(name, names) => return None,
        true => {}
        false => names.extend_from_slice(name),
    }
    // A file name is never empty and never contains NUL.
    if names.len() == start || names[start..].contains(&0) {
        names.truncate(start);
        return None;
    }
    Some((digest, start..names.len()))
}

/// Parses ` (NAME) = HASH`. The name may contain parentheses, so it ends at the last one.
fn parse_tagged(rest: &[u8], algorithm: Algorithm) -> Option<(Digest, &[u8])> {
    let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"(")?;
    let end = rest.iter().rposition(|&byte| byte == b')')?;
    let hash = rest[end + 1..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
    match Digest::parse(hash, algorithm.digest_len())? {
        (digest, []) => Some((digest, &rest[..end])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(line: &[u8]) -> Option<(Digest, Vec<u8>)> {
        let mut names = b"before".to_vec();
        let parsed = parse_line(line, Algorithm::Crc32c, &mut names);
        match parsed {
            Some((digest, name)) => Some((digest, names[name].to_vec())),
            None => {
                assert_eq!(names, b"before");
                None
            }
        }
    }

    fn digest() -> Digest {
        Digest::parse(b"e3069283", 4).unwrap().0
    }

    #[test]
    fn each_form_of_a_line() {
        let lines = [
            (&b"e3069283  a b"[..], &b"a b"[..]),
            (b"e3069283 *a", b"a"),
            (b"E3069283   a", b" a"),
            (b" \te3069283  a", b"a"),
            (b"\\e3069283  a\\nb", b"a\nb"),
            (b"e3069283  a\\nb", b"a\\nb"),
            (b"CRC32C (a) = e3069283", b"a"),
            (b"CRC32C (a) = b) = E3069283", b"a) = b"),
            (b"CRC32C(a)=e3069283 ", b"a"),
            (b"\\CRC32C (a\\\\) = e3069283", b"a\\"),
        ];
        for (line, name) in lines {
            assert_eq!(parsed(line), Some((digest(), name.to_vec())), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn malformed_lines() {
        let lines: [&[u8]; 12] = [
            b"e3069283",
            b"e3069283  ",
            b"e3069283 a",
            b"e306928  a",
            b"e30692833  a",
            b"x3069283  a",
            b"\\e3069283  a\\t",
            b"e3069283  a\0b",
            b"CRC32C (a) e3069283",
            b"CRC32C () = e3069283",
            b"CRC32C (a) = e30692830",
            b"SHA256 (a) = e3069283",
        ];
        for line in lines {
            assert_eq!(parsed(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn malformed_lines_are_reported_by_line_number() {
        let text = b"# a comment\n\ne3069283  a\r\nnonsense\n";
        let parse = |mode| Check::parse("F".to_owned(), text, Algorithm::Crc32c, mode);
        let check = parse(Mode::default()).ok().unwrap();
        assert_eq!(
            (check.entries.len(), &check.malformed[..], &check.names[..]),
            (1, &[4][..], &b"a"[..])
        );
        assert!(!check.is_refused());
        let check = parse(Mode { strict: true, warn: true, ..Mode::default() }).ok().unwrap();
        let warning = "uwork: F: 4: improperly formatted CRC32C checksum line\n";
        assert_eq!((check.is_refused(), check.opening_warnings().as_str()), (true, warning));
    }

    proptest! {
        #[test]
        fn a_written_line_parses_back(name in proptest::collection::vec(1u8.., 1..40), star: bool, tagged: bool) {
            let mut line = if names::needs_escape(&name) { b"\\".to_vec() } else { Vec::new() };
            match tagged {
                true => line.extend_from_slice(b"CRC32C ("),
                false => line.extend_from_slice(if star { b"e3069283 *" } else { b"e3069283  " }),
            }
            names::write_escaped(&name, &mut line);
            if tagged {
                line.extend_from_slice(b") = e3069283");
            }
            prop_assert_eq!(parsed(&line), Some((digest(), name)));
        }

        #[test]
        fn parsing_never_panics(line: Vec<u8>) {
            let _ = parsed(&line);
        }
    }
}

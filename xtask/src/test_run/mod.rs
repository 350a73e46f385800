//! `cargo xtask test`: runs tests as `cargo test --no-fail-fast` does, and repeats a test that
//! failed, once and on the record.
//!
//! A test that fails and then passes alone in a process is flaky: the run is green, and its last
//! lines name the test. Tests that are right or wrong (`lists`) are never repeated.

mod binary;
mod doc_tests;
mod event;
mod lists;
mod options;
mod process;
mod record;
mod tally;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use binary::Binary;
use options::{Options, Storms};
use process::Ended;
use record::Record;
use tally::Failure;

pub(crate) use options::USAGE;

/// So many failures are no chance: the others are not repeated.
const REPEATED_MAX: usize = 20;

pub(crate) fn main(root: &Path, arguments: &[String]) -> ExitCode {
    let options = match Options::new(arguments) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("xtask test: {message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let result = Record::new(&root.join(target)).and_then(|record| {
        let mut run = Run::new(options, record);
        run.all()?;
        Ok(run.summary())
    });
    result.unwrap_or_else(|message| {
        eprintln!("xtask test: {message}");
        println!("FAILED: the test run: {message}");
        ExitCode::FAILURE
    })
}

struct Run {
    options: Options,
    record: Record,
    began: Instant,
    passed: usize,
    ignored: usize,
    repeated: usize,
    failed: Vec<String>,
    flaky: Vec<String>,
}

impl Run {
    fn new(options: Options, record: Record) -> Self {
        let (passed, ignored, repeated) = (0, 0, 0);
        let (failed, flaky) = (Vec::new(), Vec::new());
        Self { options, record, began: Instant::now(), passed, ignored, repeated, failed, flaky }
    }

    fn all(&mut self) -> Result<(), String> {
        let mut has_doc_tests = self.options.has_doc_tests();
        if self.options.has_binaries() {
            let (binaries, built) = binary::build(&self.options.cargo)?;
            println!("the tests are built after {:.0} s", self.began.elapsed().as_secs_f64());
            if !built {
                self.failed.push("the build of the tests".to_owned());
            }
            if !self.options.runs {
                return Ok(());
            }
            self.binaries(&binaries)?;
            // cargo refuses packages without a library.
            has_doc_tests &= binaries.iter().any(|binary| binary.target == "lib");
        }
        if has_doc_tests {
            self.doc_tests()?;
        }
        let some = self.passed + self.ignored + self.failed.len() != 0;
        // A filter that selects nothing is a mistake.
        if some || self.options.binary.is_empty() { Ok(()) } else { Err("no such test".to_owned()) }
    }

    fn binaries(&mut self, binaries: &[Binary]) -> Result<(), String> {
        let mut storms = Vec::new();
        for binary in binaries {
            let all = match binary.tests(&self.options.binary) {
                Ok(all) => all,
                Err(message) => {
                    println!("{}: {message}", binary.label());
                    self.failed.push(format!("{}: its list of tests", binary.label()));
                    continue;
                }
            };
            self.check_lists(binary, &all);
            let is_storm = |test: &&String| lists::is_storm(&binary.package, &binary.target, test);
            let (later, now): (Vec<&String>, Vec<&String>) = all.iter().partition(is_storm);
            storms.extend(later.into_iter().map(|test| (binary, vec![test.clone()])));
            if self.options.storms != Storms::Only && !now.is_empty() {
                let now: Vec<String> = now.into_iter().cloned().collect();
                self.tests(binary, &now, now.len() == all.len())?;
            }
        }
        if self.options.storms != Storms::Without {
            for (binary, test) in storms {
                self.tests(binary, &test, false)?;
            }
        }
        Ok(())
    }

    /// The names in the lists exist.
    fn check_lists(&mut self, binary: &Binary, all: &[String]) {
        if !self.options.binary.is_empty() {
            return;
        }
        for (package, target, test) in lists::STORMS.into_iter().chain(lists::FORKS) {
            if (package, target) == (&*binary.package, &*binary.target)
                && !all.iter().any(|known| known == test)
            {
                println!("a list of the runner names a test that does not exist (lists.rs)");
                self.failed.push(format!("{}::{test}", binary.label()));
            }
        }
    }

    /// Runs these tests, in as many processes as it takes until each has run.
    fn tests(&mut self, binary: &Binary, tests: &[String], all: bool) -> Result<(), String> {
        println!("\nrunning {} tests of {}", tests.len(), binary.label());
        let began = Instant::now();
        let mut arguments = self.options.binary.clone();
        if !all {
            arguments = self.options.exactly(tests);
        }
        let mut left = tests.to_vec();
        let mut failures: Vec<Vec<Failure>> = Vec::new();
        while !left.is_empty() {
            let mut ended = process::run(binary, &arguments, &mut self.record)?;
            for failure in &ended.tally.failed {
                println!("\n---- {}\n{}", failure.test, failure.said);
            }
            let known = ended.tally.failed.len();
            let count = left.len();
            left = ended.tally.close(&left, &ended.ending, &ended.output);
            let suspects = ended.tally.failed.split_off(known);
            for failure in &suspects {
                println!("test {} ... FAILED: {}", failure.test, ended.ending);
            }
            let ended_badly = ended.tally.ended_badly(ended.code);
            if let Some(when) = ended_badly {
                self.ended_badly(&binary.label(), when, &ended)?;
            }
            self.passed += ended.tally.passed.len();
            self.ignored += ended.tally.ignored.len();
            failures.extend(ended.tally.failed.into_iter().map(|failure| vec![failure]));
            failures.push(suspects);
            if left.len() == count && ended_badly.is_some() {
                break;
            }
            if left.len() == count {
                println!("{}: no test has begun: {}", binary.label(), ended.ending);
                self.failed.push(format!("{}: {}", binary.label(), ended.ending));
                break;
            }
            if !left.is_empty() {
                println!("\nrunning the other {} tests of {}", left.len(), binary.label());
            }
            arguments = self.options.exactly(&left);
        }
        println!("{}: {:.0} s", binary.label(), began.elapsed().as_secs_f64());
        failures.iter().try_for_each(|suspects| self.judge(binary, suspects))
    }

    /// Never repeated: the failure belongs to no test.
    fn ended_badly(&mut self, what: &str, when: &str, ended: &Ended) -> Result<(), String> {
        let name = format!("{what}: {when}: {}", ended.ending);
        let said = self.record.keep(what, "end", &format!("{}{}\n", ended.output, ended.ending))?;
        println!("{name}; the output: {}", said.display());
        self.failed.push(name);
        Ok(())
    }

    /// Repeats a test that failed, or each of those that were running when their process ended. If
    /// one of these fails again, the others are without fault.
    fn judge(&mut self, binary: &Binary, suspects: &[Failure]) -> Result<(), String> {
        let mut passed = Vec::new();
        let failed_before = self.failed.len();
        for failure in suspects {
            let name = format!("{}::{}", binary.label(), failure.test);
            match self.repeat(binary, failure, &name)? {
                true => passed.push(name),
                false => self.failed.push(name),
            }
        }
        self.passed += passed.len();
        if self.failed.len() == failed_before {
            passed.iter().try_for_each(|name| self.record.flaky(name))?;
            self.flaky.extend(passed);
        }
        Ok(())
    }

    /// Whether the test passes when it is repeated, if that is allowed.
    fn repeat(&mut self, binary: &Binary, failure: &Failure, name: &str) -> Result<bool, String> {
        let first = self.record.keep(name, "first", &failure.said)?;
        let may = lists::may_be_repeated(&binary.package, &binary.target, &failure.test);
        if !may || !self.may_repeat() {
            println!("the output of {name}: {}", first.display());
            return Ok(false);
        }
        println!("\nonce more, alone: {name}");
        let arguments = ["--exact", &failure.test, "--nocapture", "--test-threads=1"];
        let ended = process::run(binary, &arguments.map(str::to_owned), &mut self.record)?;
        let said = format!("{}{}\n", ended.output, ended.ending);
        self.keep_both(name, &said)?;
        let passed = ended.tally.passed.contains(&failure.test);
        let ended_badly = ended.tally.ended_badly(ended.code).is_some();
        if passed && ended_badly {
            println!("{name}: passed, and then the process ended: {}", ended.ending);
        }
        Ok(passed && !ended_badly)
    }

    fn keep_both(&self, name: &str, said: &str) -> Result<(), String> {
        let again = self.record.keep(name, "again", said)?;
        let both = again.display().to_string().replace(".again.log", ".{first,again}.log");
        println!("both outputs: {both}");
        Ok(())
    }

    fn may_repeat(&mut self) -> bool {
        self.repeated += 1;
        self.options.repeats && self.repeated <= REPEATED_MAX
    }

    fn doc_tests(&mut self) -> Result<(), String> {
        println!("\nrunning the examples in the documentation");
        self.record.running("the examples in the documentation", &[String::new()]);
        let all = doc_tests::run(&self.options.cargo, None)?;
        self.passed += all.passed;
        if all.failed.is_empty() && !all.success {
            self.failed.push("the build of the examples in the documentation".to_owned());
        }
        for test in all.failed {
            self.record.keep(&test, "first", &all.output)?;
            if !self.may_repeat() {
                self.failed.push(test);
                continue;
            }
            println!("\nonce more: {test}");
            let again = doc_tests::run(&self.options.cargo, Some(doc_tests::file_of(&test)))?;
            self.keep_both(&test, &again.output)?;
            if again.failed.contains(&test) || !again.success {
                self.failed.push(test);
            } else {
                self.passed += 1;
                self.record.flaky(&test)?;
                self.flaky.push(test);
            }
        }
        self.record.running("", &[]);
        Ok(())
    }

    fn summary(&self) -> ExitCode {
        println!(
            "\ntests: {} passed, {} failed, {} skipped",
            self.passed,
            self.failed.len(),
            self.ignored
        );
        let (repeated, seconds) = (self.flaky.len(), self.began.elapsed().as_secs_f64());
        println!("{repeated} passed only when they were repeated; {seconds:.0} s in all");
        for name in &self.failed {
            println!("FAILED: {name}");
        }
        for name in &self.flaky {
            println!("flaky: {name}");
        }
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

//! Parses text into a syntax tree in which every count is in range and every level in its place.

use super::{NotationError, too_many};
use crate::cpuset::{CpuSet, MAX_CPUS};
use crate::topology::FULL_CAPACITY;

/// A level of the machine, coarsest first; the order of the variants is the order in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Package,
    Node,
    Llc,
    Cluster,
    Core,
    Smt,
}

impl Level {
    pub(super) const ALL: [Level; 6] =
        [Level::Package, Level::Node, Level::Llc, Level::Cluster, Level::Core, Level::Smt];

    pub(super) fn name(self) -> &'static str {
        match self {
            Level::Package => "package",
            Level::Node => "node",
            Level::Llc => "llc",
            Level::Cluster => "cluster",
            Level::Core => "core",
            Level::Smt => "smt",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }
}

pub(super) const LEVEL_NAMES: &str = "package, node, llc, cluster, core, smt";

/// Parts of a machine side by side, all beginning with the same level.
pub(super) struct Sum {
    pub(super) parts: Vec<Product>,
}

/// Nested levels, never empty, and the contents of the innermost one.
pub(super) struct Product {
    pub(super) levels: Vec<(Level, u32)>,
    pub(super) capacity: Option<u32>,
    pub(super) inner: Option<Sum>,
}

/// One `cpu:LIST core:ID ...` clause of a listing: its words, `cpu:` first.
pub(super) type Clause<'a> = Vec<Word<'a>>;

pub(super) enum Shape<'a> {
    Levels(Sum),
    Listing(Vec<Clause<'a>>),
}

/// `isolated:LIST` or `offline:LIST`.
pub(super) struct CpuOption<'a> {
    pub(super) word: Word<'a>,
    pub(super) cpus: CpuSet,
}

pub(super) struct Machine<'a> {
    pub(super) shape: Shape<'a>,
    pub(super) first_line: usize,
    pub(super) isolated: Option<CpuOption<'a>>,
    pub(super) offline: Option<CpuOption<'a>>,
    pub(super) threads_last: bool,
}

/// A word of the text, or one of `+`, `(`, `)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
}

impl<'a> Word<'a> {
    /// The two sides of `NAME:VALUE`; the value is empty where there is no colon.
    pub(super) fn pair(self) -> (&'a str, &'a str) {
        self.text.split_once(':').unwrap_or((self.text, ""))
    }

    fn is_option(self) -> bool {
        matches!(self.pair().0, "isolated" | "offline" | "numbering")
    }
}

pub(super) fn parse(text: &str) -> Result<Machine<'_>, NotationError> {
    let words = words(text);
    let Some(first) = words.first().copied() else {
        let message =
            "the text describes no machine (allowed: for example package:2 llc:2 core:4 smt:2)";
        return Err(NotationError::new(1, message));
    };
    let mut parser = Parser { words: &words, at: 0 };
    let shape = match first.pair().0 {
        "cpu" => Shape::Listing(parser.listing()),
        _ => {
            let sum = parser.sum(None)?;
            if sum.cpus() > u64::from(MAX_CPUS) {
                return Err(NotationError::new(first.line, too_many()));
            }
            Shape::Levels(sum)
        }
    };
    let mut machine = Machine {
        shape,
        first_line: first.line,
        isolated: None,
        offline: None,
        threads_last: false,
    };
    parser.options(&mut machine)?;
    Ok(machine)
}

fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default();
        for chunk in content.split_whitespace() {
            let mut rest = chunk;
            while !rest.is_empty() {
                let end = match rest.find(['+', '(', ')']) {
                    Some(0) => 1,
                    Some(at) => at,
                    None => rest.len(),
                };
                let (text, after) = rest.split_at(end);
                words.push(Word { text, line });
                rest = after;
            }
        }
    }
    words
}

impl Sum {
    fn cpus(&self) -> u64 {
        self.parts.iter().map(Product::cpus).fold(0, u64::saturating_add)
    }
}

impl Product {
    fn cpus(&self) -> u64 {
        let inner = self.inner.as_ref().map_or(1, Sum::cpus);
        self.levels.iter().fold(inner, |cpus, &(_, count)| cpus.saturating_mul(count.into()))
    }
}

struct Parser<'w, 'a> {
    words: &'w [Word<'a>],
    at: usize,
}

impl<'a> Parser<'_, 'a> {
    fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.text == text);
        self.at += usize::from(found);
        found
    }

    /// The line of the last word read, for errors about text that is missing after it.
    fn line(&self) -> usize {
        self.words[self.at.saturating_sub(1)].line
    }

    /// `outer` is the level around the parenthesis that contains this sum.
    fn sum(&mut self, outer: Option<Level>) -> Result<Sum, NotationError> {
        let mut parts: Vec<Product> = Vec::new();
        loop {
            let start = self.peek();
            let part = self.product(outer)?;
            if let (Some(first), Some(start)) = (parts.first(), start)
                && first.levels[0].0 != part.levels[0].0
            {
                let level = first.levels[0].0.name();
                let message =
                    format!("the parts of a sum must begin with the same level (allowed: {level})");
                return Err(NotationError::at(start, message));
            }
            parts.push(part);
            if !self.take("+") {
                return Ok(Sum { parts });
            }
        }
    }

    fn product(&mut self, outer: Option<Level>) -> Result<Product, NotationError> {
        let mut levels = Vec::new();
        let mut capacity = None;
        let mut finest = outer;
        while let Some(word) = self.peek() {
            if matches!(word.text, "+" | "(" | ")") || word.is_option() {
                break;
            }
            self.at += 1;
            if word.pair().0 == "capacity" {
                let value = number(word, 1, FULL_CAPACITY)?;
                if levels.is_empty() || capacity.replace(value).is_some() {
                    let message = "a capacity stands once behind the levels it is for";
                    return Err(NotationError::at(word, message));
                }
                continue;
            }
            let (level, count) = level_and_count(word)?;
            if finest.is_some_and(|finest| finest >= level) {
                let message =
                    format!("levels go from coarse to fine, each once (allowed: {LEVEL_NAMES})");
                return Err(NotationError::at(word, message));
            }
            finest = Some(level);
            levels.push((level, count));
        }
        if levels.is_empty() {
            let found = self.peek().map_or("the end".to_owned(), |word| format!("'{}'", word.text));
            let line = self.peek().map_or_else(|| self.line(), |word| word.line);
            let message = format!("expected LEVEL:COUNT before {found} (levels: {LEVEL_NAMES})");
            return Err(NotationError::new(line, message));
        }
        let inner = self.parenthesis(finest)?;
        Ok(Product { levels, capacity, inner })
    }

    fn parenthesis(&mut self, outer: Option<Level>) -> Result<Option<Sum>, NotationError> {
        let opened = self.peek();
        if !self.take("(") {
            return Ok(None);
        }
        let sum = self.sum(outer)?;
        if !self.take(")") {
            let line = opened.map_or_else(|| self.line(), |word| word.line);
            return Err(NotationError::new(line, "'(' without its ')'"));
        }
        Ok(Some(sum))
    }

    fn listing(&mut self) -> Vec<Clause<'a>> {
        let mut clauses: Vec<Clause<'a>> = Vec::new();
        while let Some(word) = self.peek().filter(|word| !word.is_option()) {
            match clauses.last_mut() {
                Some(clause) if word.pair().0 != "cpu" => clause.push(word),
                _ => clauses.push(vec![word]),
            }
            self.at += 1;
        }
        clauses
    }

    fn options(&mut self, machine: &mut Machine<'a>) -> Result<(), NotationError> {
        while let Some(word) = self.peek() {
            self.at += 1;
            let repeated = match word.pair() {
                ("isolated", list) => machine.isolated.replace(cpu_option(word, list)?).is_some(),
                ("offline", list) => machine.offline.replace(cpu_option(word, list)?).is_some(),
                ("numbering", "threads-last") => match machine.shape {
                    Shape::Levels(_) => std::mem::replace(&mut machine.threads_last, true),
                    Shape::Listing(_) => {
                        return Err(NotationError::at(word, "a listing gives the numbers itself"));
                    }
                },
                ("numbering", _) => {
                    return Err(NotationError::at(
                        word,
                        "unknown numbering (allowed: threads-last)",
                    ));
                }
                _ => {
                    let message = "only '+' or an option may follow here (allowed: \
                        isolated:LIST, offline:LIST, numbering:threads-last)";
                    return Err(NotationError::at(word, message));
                }
            };
            if repeated {
                return Err(NotationError::at(word, "an option may stand only once"));
            }
        }
        Ok(())
    }
}

fn level_and_count(word: Word<'_>) -> Result<(Level, u32), NotationError> {
    let (name, _) = word.pair();
    match Level::of_name(name) {
        Some(level) => Ok((level, number(word, 1, MAX_CPUS)?)),
        None => {
            Err(NotationError::at(word, format!("unknown level '{name}' (allowed: {LEVEL_NAMES})")))
        }
    }
}

/// The number behind the colon of `NAME:NUMBER`.
pub(super) fn number(word: Word<'_>, low: u32, high: u32) -> Result<u32, NotationError> {
    let (name, value) = word.pair();
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    let number = value.parse().ok().filter(|number| digits && (low..=high).contains(number));
    number.ok_or_else(|| {
        NotationError::at(word, format!("expected {name}:NUMBER (allowed: {low} to {high})"))
    })
}

/// The CPU list behind the colon of `NAME:LIST`.
pub(super) fn cpu_list(word: Word<'_>, list: &str) -> Result<CpuSet, NotationError> {
    list.parse().map_err(|error| NotationError::at(word, error))
}

fn cpu_option<'a>(word: Word<'a>, list: &str) -> Result<CpuOption<'a>, NotationError> {
    Ok(CpuOption { word, cpus: cpu_list(word, list)? })
}

//! `cargo xtask semantics`: docs/semantics.md promises behaviours and names the tests that show
//! them, and so does SECURITY.md. This checks that the tests exist.
//!
//! It reads the tables with a column headed `Test` or `Tests`, and the code spans in that column:
//! `test_name`, or `file::test_name`, where the stem of the file or the name of a module tells
//! tests of the same name apart.
//!
//! Each of the promises 2.1 to 2.37 has a row that begins with its number and names a test, unless
//! a cell of the row begins with `not yet` or `not applicable`.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::markdown::Markdown;
use crate::tidy::words;
use crate::tree::{Kind, Tree, numbered};

const FILE: &str = "docs/semantics.md";
/// The table of threats, with a test for each.
const THREATS: &str = "SECURITY.md";
const RULE: &str = "semantics";
/// The number of the kernel's promises: rows 2.1 to 2.37.
const PROMISES: usize = 37;
/// The beginnings of a cell that explains why a row needs no test.
const EXEMPT: [&str; 2] = ["not yet", "not applicable"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(Kind::Markdown(markdown)) = tree.file(FILE).map(|file| &file.kind) else {
        println!("semantics: {FILE} does not exist yet");
        return Vec::new();
    };
    let Some(named) = named_tests(markdown) else {
        let message = "no table has a column headed `Test`";
        return vec![Finding::new(FILE, 1, RULE, message)];
    };
    let functions = functions(tree);
    let threats = tree.file(THREATS).and_then(|file| match &file.kind {
        Kind::Markdown(markdown) => named_tests(markdown),
        _ => None,
    });
    let gone = |file, named: Vec<(usize, String)>| {
        let gone = named.into_iter().filter(|(_, name)| !exists(&functions, name));
        let message = |name| format!("no test `{name}` in the tree");
        gone.map(|(line, name)| Finding::new(file, line, RULE, message(name))).collect::<Vec<_>>()
    };
    let unshown = unshown(markdown);
    let unshown =
        unshown.into_iter().map(|(line, message)| Finding::new(FILE, line, RULE, message));
    let threats = gone(THREATS, threats.unwrap_or_default());
    gone(FILE, named).into_iter().chain(unshown).chain(threats).collect()
}

/// Promises without a row, and rows without a test.
fn unshown(markdown: &Markdown) -> Vec<(usize, String)> {
    let mut rows: BTreeMap<usize, (usize, bool)> = BTreeMap::new();
    for (column, body) in markdown.tables.iter().filter_map(|table| tests_of(table)) {
        for (line, cells) in body {
            let number = cells.first().and_then(|cell| cell.strip_prefix("2."));
            let Some(number) = number.and_then(|number| number.parse().ok()) else { continue };
            let named = cells.get(column).is_some_and(|cell| cell.contains('`'));
            let exempt = cells.iter().any(|cell| EXEMPT.iter().any(|why| cell.starts_with(why)));
            let row = rows.entry(number).or_insert((*line, false));
            row.1 |= named || exempt;
        }
    }
    let problem = |number| match rows.get(&number) {
        None => Some((1, format!("no row for 2.{number}"))),
        Some((line, false)) => Some((*line, format!("2.{number} names no test"))),
        Some((_, true)) => None,
    };
    (1..=PROMISES).filter_map(problem).collect()
}

type Row = (usize, Vec<String>);

/// The column that names tests, and the rows below the header; `None` if there is no such column.
fn tests_of(table: &[Row]) -> Option<(usize, &[Row])> {
    let ((_, header), rows) = table.split_first()?;
    let is_test = |cell: &String| matches!(cell.to_lowercase().as_str(), "test" | "tests");
    header.iter().position(is_test).map(|column| (column, rows))
}

/// The tests named in the tables, with their lines; `None` if no table has a column for tests.
fn named_tests(markdown: &Markdown) -> Option<Vec<(usize, String)>> {
    let mut named = None;
    for (column, rows) in markdown.tables.iter().filter_map(|table| tests_of(table)) {
        let named = named.get_or_insert_with(Vec::new);
        for (line, cells) in rows {
            let cell = cells.get(column).map_or("", String::as_str);
            let names = cell.split('`').skip(1).step_by(2);
            named.extend(names.map(|name| (*line, name.to_owned())));
        }
    }
    named
}

/// For each function of the tree, the qualifiers that may precede `::` in its name: file stems and
/// folders.
fn functions(tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    let mut functions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, rust) in tree.rust() {
        let places = file.path.trim_end_matches(".rs").split('/').map(str::to_owned);
        let mut places: BTreeSet<String> = places.collect();
        for (_, line) in numbered(&rust.code) {
            let mut line = words(line);
            while let Some(word) = line.next() {
                match word {
                    "mod" => places.extend(line.next().map(str::to_owned)),
                    "fn" => {
                        let name = line.next().unwrap_or_default().to_owned();
                        functions.entry(name).or_default().extend(places.iter().cloned());
                    }
                    _ => {}
                }
            }
        }
    }
    functions
}

fn exists(functions: &BTreeMap<String, BTreeSet<String>>, name: &str) -> bool {
    let mut parts: Vec<&str> = name.split("::").collect();
    let function = parts.pop().unwrap_or_default().trim_end_matches("()");
    let places = functions.get(function);
    places.is_some_and(|places| parts.iter().all(|&part| places.contains(part)))
}

#[cfg(test)]
mod tests {
    use super::{PROMISES, check};
    use crate::tree::Tree;

    const TESTS: &str = "#[test]\nfn a_pending_item_is_refused() {}\n";

    fn findings(rows: &str) -> usize {
        let numbered = (1..=PROMISES).map(|n| format!("| 2.{n} | `a_pending_item_is_refused` |\n"));
        findings_of(&format!("{}{rows}", numbered.collect::<String>()))
    }

    fn findings_of(rows: &str) -> usize {
        let table = format!("| rule | Test |\n|---|---|\n{rows}");
        let files = [("docs/semantics.md", table.as_str()), ("crates/uwork/tests/queue.rs", TESTS)];
        check(&Tree::of(&files)).len()
    }

    #[test]
    fn a_test_that_exists_is_fine() {
        assert_eq!(findings("| `queue_work` twice | `a_pending_item_is_refused` |\n"), 0);
        assert_eq!(findings("| twice | `queue::a_pending_item_is_refused` |\n"), 0);
    }

    #[test]
    fn a_missing_test_is_found() {
        assert_eq!(findings("| twice | `a_pending_item_is_taken` |\n"), 1);
        assert_eq!(findings("| twice | `flush::a_pending_item_is_refused` |\n"), 1);
    }

    #[test]
    fn each_promise_has_a_row_with_a_test_or_a_reason() {
        assert_eq!(findings_of("| 2.1 | `a_pending_item_is_refused` |\n"), PROMISES - 1);
        let without = |number: usize, cell: &str| {
            let rows = (1..=PROMISES).map(|n| match n == number {
                true => format!("| 2.{n} | {cell} |\n"),
                false => format!("| 2.{n} | `a_pending_item_is_refused` |\n"),
            });
            findings_of(&rows.collect::<String>())
        };
        assert_eq!(without(37, ""), 1);
        assert_eq!(without(7, "kept"), 1);
        assert_eq!(without(1, "not yet: a watchdog"), 0);
        assert_eq!(without(20, "not applicable: no interrupts"), 0);
    }

    #[test]
    fn a_table_without_tests_is_found() {
        let tree = Tree::of(&[("docs/semantics.md", "| rule |\n|---|\n| x |\n")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn a_missing_document_is_accepted() {
        assert_eq!(check(&Tree::of(&[])), []);
    }
}

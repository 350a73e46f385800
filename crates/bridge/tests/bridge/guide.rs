//! The table of failures in docs/bridge.md: each row names tests that exist.

use std::fs;
use std::path::Path;

const GUIDE: &str = include_str!("../../../../docs/bridge.md");

/// The text of all tests of a folder.
fn tests_in(folder: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.is_file()).map(|file| fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn each_row_of_the_table_of_failures_names_tests_that_exist() {
    let tests = tests_in("tests/bridge") + &tests_in("../cli/tests/command");
    let table = GUIDE.split("| what fails | what happens | shown by |\n").nth(1).unwrap();
    let rows: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 10, "{rows:?}");
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 3, "{row}");
        let named: Vec<&str> = cells[2].split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test: {row}");
        for name in named {
            assert!(tests.contains(&format!("#[test]\nfn {name}() {{")), "no test {name}: {row}");
        }
    }
}

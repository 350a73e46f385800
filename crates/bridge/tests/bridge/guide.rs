//! The table of failures in docs/bridge.md: each row names tests that exist, and a row with a time of
//! the server's failover or of a takeover the benchmark that measures it.

use std::fs;
use std::path::Path;

/// Of the laboratory, with a case behind it.
const BENCHMARK: &str = "uwork-lab bench bridge --case ";
const CASES: &str = "../../lab/command/src/bench/bridge/mod.rs";
const GUIDE: &str = include_str!("../../../../docs/bridge.md");

/// The text of all tests of a folder.
fn tests_in(folder: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let text = |file| fs::read_to_string(file).unwrap();
    let texts: String = files.filter(|file| file.is_file()).map(text).collect();
    // The tests of a module of the source are indented.
    texts.lines().map(|line| line.trim_start().to_owned() + "\n").collect()
}

#[test]
fn each_row_of_the_table_of_failures_names_tests_that_exist() {
    let command = ["../cli/tests/command", "../cli/tests/command/bridge"];
    let folders = [
        &["tests/bridge", "src", "src/consumer", "src/consumer/committer", "src/wire"][..],
        &command,
    ]
    .concat();
    let tests: String = folders.into_iter().map(tests_in).collect();
    let table = GUIDE.split("| what fails | what happens | shown by |\n").nth(1).unwrap();
    let rows: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 10, "{rows:?}");
    let cases = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(CASES)).unwrap();
    let mut timed = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 3, "{row}");
        let named: Vec<&str> = cells[2].split('`').skip(1).step_by(2).collect();
        let (benchmarks, named): (Vec<&str>, Vec<&str>) =
            named.iter().partition(|name| name.starts_with(BENCHMARK));
        assert!(!named.is_empty(), "no test: {row}");
        for benchmark in benchmarks {
            let case = &benchmark[BENCHMARK.len()..];
            assert!(cases.contains(&format!(": &str = \"{case}\";")), "no case {case}: {row}");
            timed += 1;
        }
        for name in named {
            assert!(tests.contains(&format!("#[test]\nfn {name}() {{")), "no test {name}: {row}");
        }
    }
    assert_eq!(timed, 2, "the takeover and the failover");
}

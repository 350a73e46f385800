//! What the commands print as JSON.

use std::process::{Command, Stdio};

use crate::left_out::left_out;
use crate::observed::{looked_at, observed, until};
use crate::process::{answered, command, refused, text};

/// What `jq` makes of a text. None where it is not installed, which fails in CI.
fn jq(filter: &str, text: &str) -> Option<String> {
    let mut command = Command::new("jq");
    command.args(["-c", "-r", filter]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut running) = command.spawn() else {
        left_out("json::the_answers_as_json_have_the_documented_fields", "jq is not installed");
        return None;
    };
    std::io::Write::write_all(&mut running.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{filter}: {text}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The objects of an answer, each on a line.
pub(crate) fn objects(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Fails unless the page for operators names every field of an object, in the line of its kind.
pub(crate) fn documented(object: &serde_json::Value, kind: &str) {
    let page = include_str!("../../../../docs/operations.md");
    let from = page.find(&format!("- **{kind}**: ")).expect(kind);
    let line = page[from..].split("\n- **").next().unwrap().split("\n\n").next().unwrap();
    let columns = page.split("\n### Columns of `queues`").nth(1).unwrap();
    let columns = columns.split("\n## ").next().unwrap();
    for name in object.as_object().unwrap().keys() {
        let name = format!("`{name}`");
        let is_column = line.contains("#columns-of-queues") && columns.contains(&name);
        assert!(line.contains(&name) || is_column, "{kind}: {name}");
    }
}

#[test]
fn the_answers_as_json_have_the_documented_fields() {
    observed("json::the_answers_as_json_have_the_documented_fields", || {
        let (queue, pid) = looked_at("as-json");
        queue.spawn(|| ()).join().unwrap();
        // A process that got no CPU for an answer has the reason instead.
        let own = || {
            let text = text(&["ls", "--json"]);
            let own = objects(&text).into_iter().find(|it| it["pid"] == std::process::id());
            own.filter(|own| own["error"].is_null()).map(|own| (own, text.clone())).ok_or(text)
        };
        let (own, list) = until(own, |_| true);
        assert!(own["queues"].as_u64() >= Some(1) && own["socket"].is_string(), "{own}");
        documented(&own, "A process");
        let path = "devices/as-json/max_active";
        let limit = text(&["get", "--json", &pid, path]);
        assert_eq!(objects(&limit)[0]["value"], queue.max_active());
        documented(&objects(&limit)[0], "An attribute");
        let tree = text(&["ls", "--json", &pid, "devices/as-json"]);
        assert!(objects(&tree).contains(&objects(&limit)[0]), "{tree}");
        let tables = text(&["monitor", "--json", "-i", "0.01", "-c", "2", &pid, "^as-json$"]);
        let samples = objects(&tables);
        assert_eq!((samples.len(), &samples[1]["name"]), (2, &"as-json".into()), "{tables}");
        assert!(samples[0]["items_per_s"].is_null() && samples[1]["items_per_s"].is_f64());
        samples.iter().for_each(|sample| documented(sample, "A queue at a time"));
        // 1: something to look at, on this machine; 2: something that it does not show.
        let findings = answered(&mut command(&["doctor", "--json", &pid]));
        assert!(matches!(findings.status.code(), Some(0..=2)), "{findings:?}");
        let looked_at = String::from_utf8(findings.stdout).unwrap();
        let findings = objects(&looked_at);
        findings.iter().for_each(|finding| documented(finding, "A finding"));
        let of_process = |finding: &&serde_json::Value| finding["process"] == std::process::id();
        assert!(findings[0]["process"].is_null() && findings.iter().any(|it| of_process(&it)));
        let dump = text(&["dump", "--json", &pid]);
        assert_eq!(dump.lines().count(), 1, "{dump}");
        let of_own = format!("select(.pid == {pid}) | .error");
        for (filter, text, expected) in [
            (".path", &limit, "devices/as-json/max_active\n"),
            ("select(.items_per_s != null) | .name", &tables, "as-json\n"),
            (&*of_own, &list, "null\n"),
            ("select(.what | contains(\"perf\")) | .process", &looked_at, "null\n"),
            (".queues[] | select(.name == \"as-json\") | .kind", &dump, "unbound\n"),
        ] {
            let found = jq(filter, text);
            assert!(found.is_none_or(|found| found == expected), "{filter}: {text}");
        }
        assert!(refused(&["get", "--json", &pid, "devices/none/nice"]).contains("no queue"));
    });
}

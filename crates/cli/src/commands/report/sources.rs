//! The tables of the documents that uwork started from, with our figures beside theirs.
//!
//! Their machines are not ours: the ratios within a column compare, the columns do not.

use super::records::Record;
use super::table::table;
use super::{escaped, short};

/// Every table for which there is a figure of ours.
pub(super) fn tables(all: &[Record]) -> String {
    let plain = [scopes(all), fallback(all), cycles(all), joules(all)].concat();
    let plain =
        if plain.is_empty() { plain } else { format!("<div class=\"tables\">{plain}</div>\n") };
    plain + &latency(all)
}

/// The figure of one contestant.
fn find<'a>(
    all: &'a [Record],
    [bench, case, runner, variant, metric]: [&str; 5],
) -> Option<&'a Record> {
    all.iter().find(|record| {
        record.bench == bench
            && record.case == case
            && record.runner == runner
            && record.variant == variant
            && record.metric == metric
    })
}

fn shown(record: Option<&Record>) -> String {
    record.map_or("-".to_owned(), |record| short(record.value))
}

fn ratio(over: Option<&Record>, under: Option<&Record>) -> String {
    match (over, under) {
        (Some(over), Some(under)) if under.value > 0.0 => {
            format!("{:+.1} %", (over.value / under.value - 1.0) * 100.0)
        }
        _ => "-".to_owned(),
    }
}

/// "workqueue: defer wake_up_process() outside pool->lock on hot paths": items per second in batches.
fn scopes(all: &[Record]) -> String {
    const THEIRS: [(&str, u32, u32); 6] = [
        ("cpu", 1_419_973, 1_413_896),
        ("smt", 1_442_921, 1_437_164),
        ("cache_shard", 1_184_058, 1_279_184),
        ("cache", 1_167_603, 1_271_341),
        ("numa", 1_163_617, 1_285_427),
        ("system", 1_175_933, 1_255_227),
    ];
    let of = |runner, variant| find(all, ["workqueue", "batch", runner, variant, "items_per_s"]);
    if THEIRS.iter().all(|(scope, ..)| of("uwork", scope).is_none()) {
        return String::new();
    }
    let rows = THEIRS.map(|(scope, before, after)| {
        vec![
            scope.to_owned(),
            short(before.into()),
            short(after.into()),
            format!("{:+.1} %", (f64::from(after) / f64::from(before) - 1.0) * 100.0),
            shown(of("uwork", scope)),
        ]
    });
    let head = ["affinity_scope", "kernel, baseline", "kernel, patched", "gain", "uwork here"];
    let html =
        table("Wakes outside the pool's lock: items/s in batches, 8 producers", &head, &rows)
            + &enqueues(all);
    let rebuilt = [of("kernel-locked", "system"), of("kernel-deferred", "system")];
    if let [Some(locked), Some(deferred)] = rebuilt {
        let gain = ratio(Some(deferred), Some(locked));
        return format!(
            "<div>{html}<p>The kernel's queue rebuilt here, scope system: wake under the lock {}, \
             deferred {} items/s ({gain}).</p></div>\n",
            short(locked.value),
            short(deferred.value)
        );
    }
    html
}

/// The same document's latencies of an enqueue, in contended scopes.
fn enqueues(all: &[Record]) -> String {
    const THEIRS: [(&str, &str, u32, u32); 2] =
        [("p50", "enqueue_p50_ns", 2_875, 2_625), ("p99", "enqueue_p99_ns", 5_000, 4_200)];
    let ours = |metric: &str| {
        let found = all.iter().filter(|record| {
            record.bench == "workqueue"
                && record.case == "batch"
                && record.runner == "uwork"
                && record.metric == metric
        });
        // The contended scope that the queue has by default, if several were measured.
        found.min_by_key(|record| !record.variant.starts_with("default"))
    };
    if THEIRS.iter().all(|(_, metric, ..)| ours(metric).is_none()) {
        return String::new();
    }
    let rows = THEIRS.map(|(name, metric, before, after)| {
        vec![name.to_owned(), before.to_string(), after.to_string(), shown(ours(metric))]
    });
    let head = ["", "kernel, baseline", "kernel, patched", "uwork here"];
    table("The same: ns of an enqueue in contended scopes", &head, &rows)
}

/// "Automatic affinity scope fallback for single-pod topologies".
fn fallback(all: &[Record]) -> String {
    let rows: Vec<Vec<String>> = ["batch", "flood"]
        .iter()
        .filter_map(|case| {
            let of = |scope| find(all, ["scope", case, "uwork", scope, "items_per_s"]);
            let (cache, default) = (of("cache")?, of("default")?);
            Some(vec![
                (*case).to_owned(),
                short(cache.value),
                short(default.value),
                ratio(Some(default), Some(cache)),
            ])
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["12 submitters", "cache", "default, with fallback", "gain"];
    table("Affinity scope fallback on one last-level cache: items/s", &head, &rows)
}

/// "Introduce Per-CPU Work helpers": cycles of an allocation.
fn cycles(all: &[Record]) -> String {
    /// Nothing here is without the locks and yet beside them.
    const NONE: [&str; 2] = ["-", ""];
    const THEIRS: [(&str, &str, &str, [&str; 2]); 5] = [
        ("unpatched", "60", "95", ["bare", ""]),
        ("CONFIG_QPW=n", "62", "-", NONE),
        ("CONFIG_QPW=y, qpw=0", "62", "99", ["uwork", "mode0"]),
        ("CONFIG_QPW=y, qpw=1", "75", "97", ["uwork", "mode1"]),
        ("no counterpart", "-", "-", ["uwork", "mode2"]),
    ];
    let of = |case, [runner, variant]: [&str; 2]| {
        find(all, ["percpu", case, runner, variant, "cycles_per_op"])
    };
    if THEIRS.iter().all(|(.., ours)| of("alloc", *ours).is_none()) {
        return String::new();
    }
    let rows = THEIRS.map(|(theirs, dynamic, rt, ours)| {
        let name = ours.join(" ");
        vec![
            theirs.to_owned(),
            dynamic.to_owned(),
            rt.to_owned(),
            name.trim_end().to_owned(),
            shown(of("alloc", ours)),
            shown(of("write", ours)),
        ]
    });
    let head = ["kernel", "its cycles", "with RT", "here", "alloc", "write"];
    table("Per-CPU locks: cycles of an allocation of 64 bytes", &head, &rows)
}

/// "task_work: use TIF_NOTIFY_SIGNAL if available": the latency table of an echo server.
fn latency(all: &[Record]) -> String {
    const THEIRS: [&str; 2] = [
        "stock kernel, 16 CPUs:\n\
         0.01% <= 0.1 milliseconds\n95.86% <= 0.2 milliseconds\n98.27% <= 0.3 milliseconds\n\
         99.71% <= 0.4 milliseconds\n100.00% <= 0.5 milliseconds\n100.00% <= 0.6 milliseconds\n\
         100.00% <= 0.7 milliseconds\n100.00% <= 0.8 milliseconds\n100.00% <= 0.9 milliseconds\n\
         100.00% <= 1.0 milliseconds\n100.00% <= 1.1 milliseconds\n100.00% <= 2 milliseconds\n\
         100.00% <= 3 milliseconds\n100.00% <= 3 milliseconds\n\
         1378930.00 requests per second\n~1600% CPU\n",
        "patched kernel, 16 CPUs:\n\
         0.01% <= 0.1 milliseconds\n98.24% <= 0.2 milliseconds\n99.47% <= 0.3 milliseconds\n\
         99.99% <= 0.4 milliseconds\n100.00% <= 0.5 milliseconds\n100.00% <= 0.6 milliseconds\n\
         100.00% <= 0.7 milliseconds\n100.00% <= 0.8 milliseconds\n100.00% <= 0.9 milliseconds\n\
         100.00% <= 1.2 milliseconds\n\
         1666111.38 requests per second\n~1450% CPU\n",
    ];
    let served: Vec<&Record> = all
        .iter()
        .filter(|record| {
            record.bench == "serve" && record.case == "get" && record.metric == "requests_per_s"
        })
        .collect();
    if served.is_empty() {
        return String::new();
    }
    let mut blocks: Vec<String> = THEIRS.map(|text| format!("<pre>{}</pre>", escaped(text))).into();
    blocks.extend(served.iter().map(|rate| {
        let of_server = all.iter().filter(|record| {
            record.bench == "serve"
                && record.case == rate.case
                && record.contestant() == rate.contestant()
        });
        // `within_0.1_ms` is the share of the requests that took no longer than that.
        let lines: Vec<(f64, &str)> = of_server
            .clone()
            .filter_map(|record| {
                let ms = record.metric.strip_prefix("within_")?.strip_suffix("_ms")?;
                Some((record.value, ms))
            })
            .collect();
        let cpu = of_server.clone().find(|record| record.metric == "cpu_s_per_mitem");
        block(&format!("{} here", rate.contestant()), &lines, rate.value, cpu.map(|cpu| cpu.value))
    }));
    format!(
        "<h3>An echo server&#39;s latencies</h3><div class=\"blocks\">{}</div>\n",
        blocks.concat()
    )
}

/// As the document's. `cpu`: CPU seconds for a million requests.
fn block(title: &str, lines: &[(f64, &str)], rate: f64, cpu: Option<f64>) -> String {
    let text: String =
        lines.iter().map(|(percent, ms)| format!("{percent:.2}% <= {ms} milliseconds\n")).collect();
    let cpu = cpu.map_or(String::new(), |cpu| format!("~{:.0}% CPU\n", rate * cpu / 1e4));
    let text = format!("{title}:\n{text}{rate:.2} requests per second\n{cpu}");
    format!("<pre>{}</pre>", escaped(&text))
}

/// "Power-efficient workqueues": joules, or wakes where the machine measures no joules.
fn joules(all: &[Record]) -> String {
    let of = |metric: &str| -> Vec<&Record> {
        all.iter()
            .filter(|r| r.bench == "power" && r.case == "audio" && r.metric == metric)
            .collect()
    };
    let (metric, ours) = match of("joules") {
        joules if !joules.is_empty() => ("joules", joules),
        _ => ("wakes/s", of("wakeups_per_s")),
    };
    if ours.is_empty() {
        return String::new();
    }
    let mut rows = vec![
        vec!["A15 cluster, vanilla / power-efficient".to_owned(), "0.323 / 0.229 J".to_owned()],
        vec!["A7 cluster, vanilla / power-efficient".to_owned(), "2.62 / 2.25 J".to_owned()],
    ];
    rows.extend(ours.iter().map(|record| {
        vec![format!("{} here", record.contestant()), format!("{} {metric}", short(record.value))]
    }));
    table("Power-efficient queues", &["", "cost"], &rows)
}

#[cfg(test)]
mod tests {
    use super::super::records::tests::record;
    use super::*;

    #[test]
    fn a_document_without_a_figure_of_ours_has_no_table() {
        assert_eq!(tables(&[record("flood", "rayon", "items_per_s", 1.0)]), "");
    }

    #[test]
    fn latencies_have_the_form_of_the_document() {
        let mut rate = record("get", "uwork", "requests_per_s", 50_000.0);
        let mut within = record("get", "uwork", "within_0.1_ms", 12.5);
        let mut cpu = record("get", "uwork", "cpu_s_per_mitem", 20.0);
        for record in [&mut rate, &mut within, &mut cpu] {
            record.bench = "serve".to_owned();
        }
        let html = tables(&[rate, within, cpu]);
        let ours = "uwork here:\n12.50% &lt;= 0.1 milliseconds\n50000.00 requests per second\n\
                    ~100% CPU\n";
        assert!(html.contains(ours), "{html}");
        assert!(html.contains("98.24% &lt;= 0.2 milliseconds"), "{html}");
        assert!(html.contains("per second\n~1600% CPU\n"), "{html}");
    }

    #[test]
    fn latencies_of_an_enqueue_are_beside_the_documents() {
        let of = |metric, variant: &str| {
            let variant = variant.to_owned();
            Record { variant, ..record("batch", "uwork", metric, 40.0) }
        };
        let html =
            enqueues(&[of("enqueue_p50_ns", "cpu+clock"), of("enqueue_p50_ns", "default+clock")]);
        assert!(html.contains("2875") && html.contains("4200") && html.contains("40.0"), "{html}");
    }
}

//! The declarations of `uwork.h` match the definitions in Rust.
//!
//! The header is written by hand. Here cbindgen generates prototypes of the functions that Rust
//! exports, and a C compiler reads both: two different declarations of a function are an error.

use std::path::Path;
use std::process::Command;

use cbindgen::{Config, EnumConfig, ExportConfig, ItemType, Language, Style};

/// Types that have another name in C.
const NAMES: [(&str, &str); 19] = [
    ("UwCounters", "uw_counters"),
    ("UwThread", "uw_thread"),
    ("UwThreadHooks", "uw_thread_hooks"),
    ("UwSetup", "uw_setup"),
    ("UwQueue", "uw_queue"),
    ("UwWork", "uw_work"),
    ("UwDelayedWork", "uw_delayed_work"),
    ("UwRcuWork", "uw_rcu_work"),
    ("UwQueueAttrs", "uw_queue_attrs"),
    ("UwJob", "uw_job"),
    ("UwBounded", "uw_bounded"),
    ("UwPercpu", "uw_percpu"),
    ("UwPercpuWork", "uw_percpu_work"),
    ("UwPercpuCache", "uw_percpu_cache"),
    ("UwPercpuCacheStats", "uw_percpu_cache_stats"),
    ("UwPercpuBatch", "uw_percpu_batch"),
    ("UwPercpuCounter", "uw_percpu_counter"),
    ("UwTask", "uw_task"),
    ("UwTaskWork", "uw_task_work"),
];

/// Function types, which the header spells out at each use.
const FUNCTIONS: &str = "
typedef uw_work_fn UwWorkFn;
typedef long (*UwCpuFn)(void *arg);
typedef void (*UwEachCpuFn)(int cpu, void *arg);
typedef void (*UwBlockingFn)(void *arg);
typedef void *(*UwJobFn)(void *arg);
typedef uw_task_work_fn UwTaskWorkFn;
typedef bool (*UwTaskMatchFn)(struct uw_task_work *work, void *arg);
typedef int (*UwTaskWaitFn)(void *arg);
typedef void *(*UwThreadStart)(const struct uw_thread *thread, void *arg);
typedef void (*UwThreadStop)(const struct uw_thread *thread, void *state, void *arg);
typedef void (*UwReporter)(const char *text);
typedef void (*UwReporterWith)(void *arg, const char *text);
typedef void (*UwPercpuFn)(int cpu, void *block, void *arg);
typedef void (*UwPercpuSink)(void *const *items, size_t count, void *arg);
/* Not exported: between the library's own Rust and C. */
typedef struct { void *first; size_t stride; unsigned count; } UwLocks;
typedef struct uw_slab UwSlab;
typedef struct uw_slab_source Source;
";

fn prototypes(sources: &Path) -> String {
    let rename =
        NAMES.iter().map(|(rust, c)| ((*rust).to_owned(), format!("struct {c}"))).collect();
    let config = Config {
        language: Language::C,
        style: Style::Type,
        no_includes: true,
        usize_is_size_t: true,
        enumeration: EnumConfig::default(),
        export: ExportConfig {
            item_types: vec![ItemType::Functions],
            rename,
            ..Default::default()
        },
        ..Config::default()
    };
    let mut builder = cbindgen::Builder::new().with_config(config);
    for entry in std::fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                builder = builder.with_src(entry.unwrap().path());
            }
        } else if path.file_name().is_some_and(|name| name != "lib.rs") {
            builder = builder.with_src(path);
        }
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_declares_what_is_exported() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let prototypes = prototypes(&root.join("src"));
    let count = prototypes.matches("uw_").count();
    assert!(count > 70, "cbindgen has found only {count} functions:\n{prototypes}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("both.c");
    let text = format!("#include <uwork.h>\n{FUNCTIONS}\n{prototypes}\n");
    std::fs::write(&file, &text).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(compiler)
        .args(["-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root.join("include"))
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "uwork.h and Rust differ:\n{said}\n{text}");
}

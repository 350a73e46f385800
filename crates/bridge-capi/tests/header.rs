//! The declarations of `uwork-bridge.h` match the definitions in Rust: cbindgen generates
//! prototypes of the exported functions, and a C compiler reads both. The members of structures are
//! compared by `layout.rs`.

use std::path::Path;
use std::process::Command;

use cbindgen::{Builder, Config, ExportConfig, ItemType, Language, Style};

/// Types that have another name in C.
const NAMES: [(&str, &str); 11] = [
    ("UwBridge", "uw_bridge"),
    ("UwBridgeConfig", "uw_bridge_config"),
    ("UwBridgeCounters", "uw_bridge_counters"),
    ("UwBridgeDead", "uw_bridge_dead"),
    ("UwBridgeHandler", "uw_bridge_handler"),
    ("UwBridgeJob", "uw_bridge_job"),
    ("UwBridgeLetter", "uw_bridge_letter"),
    ("UwBridgeProducer", "uw_bridge_producer"),
    ("UwBridgePush", "uw_bridge_push"),
    ("UwBridgeSettled", "uw_bridge_settled"),
    ("UwBridgeWord", "uw_bridge_word"),
];

fn prototypes() -> String {
    let rename =
        NAMES.iter().map(|(rust, c)| ((*rust).to_owned(), format!("struct {c}"))).collect();
    let item_types = vec![ItemType::Functions];
    let config = Config {
        language: Language::C,
        style: Style::Type,
        no_includes: true,
        usize_is_size_t: true,
        export: ExportConfig { item_types, rename, ..Default::default() },
        ..Config::default()
    };
    let mut builder = Builder::new().with_config(config);
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name != "lib.rs") {
            builder = builder.with_src(path);
        }
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

/// Compiles a C file, and returns what the compiler said if it failed.
fn compile(text: &str) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("both.c");
    std::fs::write(&file, text).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(compiler)
        .args(["-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root.join("include"))
        .arg("-I")
        .arg(root.join("../capi/include"))
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{said}\n{text}")) }
}

#[test]
fn the_header_declares_what_is_exported() {
    let prototypes = prototypes();
    assert!(prototypes.matches("uw_bridge_").count() > 15, "cbindgen has found: {prototypes}");
    let report = "typedef void (*UwBridgeReport)(const char *line, void *arg);";
    compile(&format!("#include <uwork-bridge.h>\n{report}\n{prototypes}\n")).unwrap();
    let wrong = prototypes.replace("uw_bridge_get_counters(const ", "uw_bridge_get_counters(");
    assert_ne!(wrong, prototypes);
    let wrong = compile(&format!("#include <uwork-bridge.h>\n{report}\n{wrong}\n"));
    assert!(wrong.unwrap_err().contains("conflicting types"), "a difference is found");
}

//! The structures of `uwork-bridge.h` have the sizes and offsets of their twins in Rust.

use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use uwork_bridge_capi::{
    UwBridgeConfig, UwBridgeCounters, UwBridgeHandler, UwBridgeLetter, UwBridgePush,
    UwBridgeSettled, UwBridgeWord,
};

/// Assertions in C of the offsets of members, and of the size.
macro_rules! layout {
    ($rust:ty, $c:literal, $($member:ident),*) => {{
        let mut text = format!("_Static_assert(sizeof(struct {}) == {}, \"\");\n", $c, size_of::<$rust>());
        $(text += &format!(
            "_Static_assert(offsetof(struct {}, {}) == {}, \"{}\");\n",
            $c, stringify!($member), offset_of!($rust, $member), stringify!($member)
        );)*
        text
    }};
}

fn assertions() -> String {
    [
        layout!(
            UwBridgeConfig,
            "uw_bridge_config",
            size,
            servers,
            server_count,
            streams,
            stream_count,
            shards,
            max_active,
            group,
            name,
            ca_file,
            cert_file,
            key_file,
            heartbeat_ns,
            limit_ns,
            retry_first_ns,
            retry_max_ns,
            result_key_ns,
            result_stream_max,
            dead_max,
            payload_bytes_max,
            attempts_max,
            keep,
            strict,
            window_ns,
            patience
        ),
        layout!(
            UwBridgeCounters,
            "uw_bridge_counters",
            done,
            retries,
            dead,
            reclaimed,
            lost,
            duplicates,
            handed_back,
            faults,
            held,
            abandoned,
            uncommitted
        ),
        layout!(UwBridgeHandler, "uw_bridge_handler", name, func, arg),
        layout!(
            UwBridgeLetter,
            "uw_bridge_letter",
            stream,
            number,
            entry,
            id,
            handler,
            key,
            group,
            error,
            payload,
            length,
            payload_bytes,
            age_ns,
            attempts,
            quarantine
        ),
        layout!(UwBridgeSettled, "uw_bridge_settled", settled, left),
        layout!(UwBridgePush, "uw_bridge_push", payload, length, handler, id, key, delay_ns),
        layout!(UwBridgeWord, "uw_bridge_word", bytes, length),
    ]
    .concat()
}

fn compiles(assertions: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layout.c");
    std::fs::write(&file, format!("#include <uwork-bridge.h>\n{assertions}")).unwrap();
    let mut command = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    command.args(["-std=c11", "-fsyntax-only", "-I"]).arg(root.join("include"));
    command.arg("-I").arg(root.join("../capi/include")).arg(file).status().unwrap().success()
}

#[test]
fn structures_have_one_layout_in_both_languages() {
    let assertions = assertions();
    assert!(compiles(&assertions), "the compiler has named the members that differ");
    let wrong = assertions.replacen("== 16", "== 17", 1);
    assert_ne!(wrong, assertions);
    assert!(!compiles(&wrong), "a difference is found");
}

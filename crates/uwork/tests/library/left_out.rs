//! Which tests may be left out of a run that must leave none out.

use std::panic::catch_unwind;
use std::process::Command;

use crate::support::child::ending_of;
use crate::support::left_out::{left_out, not_here};

#[test]
fn with_ci_set_only_what_is_named_may_be_missing() {
    let test = "with_ci_set_only_what_is_named_may_be_missing";
    let named = |command: &mut Command| {
        command.env("CI", "true").env("UWORK_LEFT_OUT", "chromium,redis-server,one CPU");
    };
    let ending = ending_of(test, named, || {
        left_out("planted", "redis-server is not installed");
        left_out("planted", "this machine has one CPU");
        not_here("planted", "no CPU is isolated");
        assert!(catch_unwind(|| left_out("planted", "openssl is not installed")).is_err());
    });
    let Some((status, said)) = ending else { return };
    assert!(status.success(), "{said}");
    let why = ["redis-server is not installed", "this machine has one CPU", "no CPU is isolated"];
    assert!(why.iter().all(|why| said.contains(&format!("planted: left out, {why}"))), "{said}");
}

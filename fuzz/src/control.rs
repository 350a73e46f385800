//! Fuzzes the control protocol: any request gets an answer of the right form, and changes nothing
//! but attributes.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use uwork::{Queue, control};

/// A queue in the attribute tree.
static QUEUE: OnceLock<Queue> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let queue = QUEUE.get_or_init(|| Queue::builder("fuzzed").sysfs().build().expect("a queue"));
    let Ok(request) = std::str::from_utf8(data) else { return };
    let answer = control::answer(request);
    let (first, rest) = answer.split_once('\n').expect("a line");
    if let Some(length) = first.strip_prefix("ok ") {
        assert_eq!(length.parse(), Ok(rest.len()), "{request:?}: {first:?}");
        assert!(rest.is_empty() || rest.ends_with('\n'), "{request:?}");
    } else {
        assert!(first.starts_with("err ") && rest.is_empty(), "{request:?}: {answer:?}");
    }
    assert!((1..=2048).contains(&queue.max_active()), "{request:?}");
});

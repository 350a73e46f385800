//! The payloads of panics: their texts, and a drop that does not unwind.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::words::sync::assert_nothing_held;

/// The text of a panic: of `panic!` and of all other payloads that are a `&str` or a `String`.
pub fn payload_text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Drops the payload of a panic. Does not unwind, even if the payload's destructor panics.
pub fn drop_payload(payload: Box<dyn Any + Send>) {
    assert_nothing_held("a panic's payload");
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // The destructor's own panic payload may panic in turn when it is dropped: leak it.
        std::mem::forget(again);
    }
}

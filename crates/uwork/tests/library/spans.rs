//! Feature `tracing`: what a subscriber sees of runs and reports.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use uwork::{JoinError, Queue};

use crate::support::child::{alone, alone_with};
use crate::support::until;

/// What the subscriber has seen: a line for each begin and end of a span, and for each event.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The texts of the spans; the identity of a span is its place, counted from 1.
static SPANS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The subscriber panics in this many calls.
static PANICS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The spans that the thread is in.
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

/// Records what uwork says. Calls uwork itself, as a subscriber may.
struct Recorder;

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "uwork"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(span.metadata().name().to_owned());
        span.record(&mut fields);
        let mut spans = SPANS.lock().unwrap();
        spans.push(fields.0);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        SEEN.lock().unwrap().push(fields.0);
    }

    fn enter(&self, span: &Id) {
        if PANICS
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
        {
            panic!("the subscriber panics on purpose");
        }
        let _ = uwork::counters();
        INSIDE.with_borrow_mut(|inside| inside.push(span.into_u64()));
        SEEN.lock().unwrap().push(format!("+{}", span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        assert_eq!(INSIDE.with_borrow_mut(Vec::pop), Some(span.into_u64()), "spans nest");
        SEEN.lock().unwrap().push(format!("-{}", span.into_u64()));
    }
}

fn seen_and_cleared() -> Vec<String> {
    std::mem::take(&mut *SEEN.lock().unwrap())
}

#[test]
fn a_subscriber_sees_a_span_for_each_run_and_an_event_for_each_report() {
    alone("a_subscriber_sees_a_span_for_each_run_and_an_event_for_each_report", || {
        uwork::set_reporter(|_| ()).unwrap();
        let queue = Queue::builder("spans").ordered().build().unwrap();
        drop(queue.spawn(|| ()));
        queue.flush().unwrap();
        tracing::subscriber::set_global_default(Recorder).unwrap();

        // A run inside a run: the second closure runs in the wait of the first.
        let inner = Queue::builder("inner").unbound().build().unwrap();
        let its_queue = inner.clone();
        let outer = queue.spawn(move || its_queue.spawn(|| 7).join());
        assert_eq!(outer.join().unwrap().unwrap(), 7);
        // A join may return before the span of the run ends; a flush returns after it.
        queue.flush().unwrap();
        inner.flush().unwrap();
        let spans = SPANS.lock().unwrap().clone();
        assert_eq!(spans.len(), 2, "{spans:?}: no span for the run before the subscriber");
        for (span, name) in spans.iter().zip(["spans", "inner"]) {
            assert!(span.starts_with(&format!("run queue=\"{name}\" function=\"")), "{span}");
            assert!(span.contains("a_subscriber_sees_a_span"), "the closure's name: {span}");
        }
        let seen = seen_and_cleared();
        let count = |line: &str| seen.iter().filter(|seen| **seen == line).count();
        assert_eq!((seen.len(), ["+1", "+2", "-2", "-1"].map(count)), (4, [1; 4]), "{seen:?}");

        let failed = queue.spawn(|| panic!("on purpose")).join();
        assert!(matches!(failed, Err(JoinError::Panicked(_))), "{failed:?}");
        queue.flush().unwrap();
        let seen = seen_and_cleared();
        assert!(seen.contains(&"-3".to_owned()), "a span ends with a panic: {seen:?}");
    });
}

#[test]
fn a_report_is_a_warning_and_a_panic_is_an_error() {
    let prepare = |command: &mut std::process::Command| _ = command.env("UWORK_WORKERS", "many");
    alone_with("a_report_is_a_warning_and_a_panic_is_an_error", prepare, || {
        uwork::set_reporter(|_| ()).unwrap();
        tracing::subscriber::set_global_default(Recorder).unwrap();
        let queue = Queue::builder("spans").unbound().build().unwrap();
        let seen = |level: &str, text: &str| {
            let seen = SEEN.lock().unwrap();
            seen.iter().any(|line| line.starts_with(level) && line.contains(text))
        };
        until("the report of the variable", || seen("WARN ", "UWORK_WORKERS"));
        let failed = queue.spawn(|| panic!("on purpose")).join();
        assert!(matches!(failed, Err(JoinError::Panicked(_))), "{failed:?}");
        until("the panic", || seen("ERROR ", "on purpose"));
        assert!(!seen("WARN ", "on purpose"), "once, as an error");
    });
}

#[test]
fn a_subscriber_that_panics_does_no_harm() {
    alone("a_subscriber_that_panics_does_no_harm", || {
        tracing::subscriber::set_global_default(Recorder).unwrap();
        let queue = Queue::builder("spans").unbound().build().unwrap();
        PANICS.store(3, Ordering::Relaxed);
        for number in 0..10 {
            assert_eq!(queue.spawn(move || number).join().unwrap(), number);
        }
        queue.flush().unwrap();
        assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    });
}

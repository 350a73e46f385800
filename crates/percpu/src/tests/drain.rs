//! The guarantees of a drain of a bundle, while several threads drain, fill and panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::vec::Drain;

use super::{cpus, modes, on_cpu};
use crate::Bundle;
use uwork_linux::ErrorKind;

/// A sink whose first call signals its start, and counts its items only when it is released.
struct Gate {
    sunk: Arc<AtomicUsize>,
    begun: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
}

fn gate() -> (Gate, impl Fn(Drain<'_, u8>) + Send + Sync + 'static) {
    let sunk = Arc::new(AtomicUsize::new(0));
    let ((has_begun, begun), (go, gone)) = (mpsc::channel(), mpsc::channel::<()>());
    let first = std::sync::Mutex::new(Some((has_begun, gone)));
    let sink = {
        let sunk = sunk.clone();
        move |items: Drain<'_, u8>| {
            let first = first.lock().unwrap().take();
            if let Some((has_begun, gone)) = first {
                has_begun.send(()).unwrap();
                gone.recv().unwrap();
            }
            sunk.fetch_add(items.len(), Ordering::Relaxed);
        }
    };
    (Gate { sunk, begun, go }, sink)
}

/// Starts `drain_all` on a thread while `first`'s sink is blocked. Releases that sink when the
/// draining thread sleeps or has returned. Returns the number of items that the sink had received
/// when the drain returned.
fn sunk_when_drained(bundle: &Bundle<u8>, gate: &Gate, first: impl FnOnce() + Send) -> usize {
    thread::scope(|scope| {
        scope.spawn(first);
        gate.begun.recv().unwrap();
        let (tell, told) = mpsc::channel();
        let sunk = &gate.sunk;
        let second = scope.spawn(move || {
            // SAFETY: no arguments, no errors.
            tell.send(unsafe { libc::gettid() }).unwrap();
            bundle.drain_all().unwrap();
            sunk.load(Ordering::Relaxed)
        });
        let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        let sleeps = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
        while !sleeps() && !second.is_finished() {
            thread::yield_now();
        }
        gate.go.send(()).unwrap();
        second.join().unwrap()
    })
}

#[test]
fn a_drain_waits_for_the_items_of_a_concurrent_drain() {
    for mode in modes() {
        let (gate, sink) = gate();
        let bundle = Bundle::in_mode(mode, 16, sink);
        for cpu in cpus() {
            on_cpu(cpu, || bundle.add(1));
        }
        let first = || assert_eq!(bundle.drain_all().unwrap(), cpus().len());
        assert_eq!(sunk_when_drained(&bundle, &gate, first), cpus().len(), "mode {mode}");
    }
}

#[test]
fn a_drain_waits_for_a_bundle_that_another_thread_has_filled() {
    for mode in modes() {
        let (gate, sink) = gate();
        let bundle = Bundle::in_mode(mode, 4, sink);
        let cpu = cpus()[0];
        on_cpu(cpu, || (0..3).for_each(|_| bundle.add(1)));
        let first = || on_cpu(cpu, || bundle.add(1));
        assert_eq!(sunk_when_drained(&bundle, &gate, first), 4, "mode {mode}");
    }
}

#[test]
fn a_sink_may_add_but_a_drain_in_it_is_an_error() {
    for mode in modes() {
        static REFUSED: AtomicUsize = AtomicUsize::new(0);
        let this = Arc::new(OnceLock::<std::sync::Weak<Bundle<u8>>>::new());
        let refused_before = REFUSED.load(Ordering::Relaxed);
        let sink = {
            let this = this.clone();
            move |items: Drain<'_, u8>| {
                let Some(bundle) = this.get().and_then(std::sync::Weak::upgrade) else { return };
                assert_eq!(bundle.drain_all().unwrap_err().kind(), ErrorKind::WouldDeadlock);
                REFUSED.fetch_add(1, Ordering::Relaxed);
                items.filter(|item| *item > 0).for_each(|item| bundle.add(item - 1));
            }
        };
        let bundle = Arc::new(Bundle::in_mode(mode, 2, sink));
        this.set(Arc::downgrade(&bundle)).unwrap();
        let cpu = cpus()[0];
        // The second add hands on both.
        on_cpu(cpu, || (0..2).for_each(|_| bundle.add(0)));
        assert_eq!(REFUSED.load(Ordering::Relaxed), refused_before + 1, "mode {mode}");
        bundle.add(2);
        for left in [1, 1, 1, 0] {
            assert_eq!(bundle.drain_all().unwrap(), left, "mode {mode}");
        }
        assert_eq!(REFUSED.load(Ordering::Relaxed), refused_before + 4);
    }
}

#[test]
fn a_sink_that_panics_costs_no_other_items() {
    for mode in modes() {
        let (panicked, sunk) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let sink = {
            let (panicked, sunk) = (panicked.clone(), sunk.clone());
            move |items: Drain<'_, u8>| {
                assert!(panicked.swap(true, Ordering::Relaxed), "on purpose");
                sunk.fetch_add(items.len(), Ordering::Relaxed);
            }
        };
        let bundle = Bundle::in_mode(mode, 16, sink);
        let fill = || {
            panicked.store(false, Ordering::Relaxed);
            cpus().iter().for_each(|&cpu| on_cpu(cpu, || (0..5).for_each(|_| bundle.add(1))));
        };
        let others = (cpus().len() - 1) * 5;
        fill();
        let payload = catch_unwind(AssertUnwindSafe(|| bundle.drain_all())).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"), "mode {mode}");
        assert_eq!(sunk.load(Ordering::Relaxed), others);
        assert_eq!(bundle.drain_all().unwrap(), 0);
        fill();
        catch_unwind(AssertUnwindSafe(|| drop(bundle))).unwrap_err();
        assert_eq!(sunk.load(Ordering::Relaxed), 2 * others);
    }
}

/// A drain does not wait for a call that has unwound.
#[test]
fn a_sink_that_panics_in_an_add_is_not_waited_for() {
    for mode in modes() {
        let bundle = Bundle::in_mode(mode, 2, |_: Drain<'_, u8>| panic!("on purpose"));
        let cpu = cpus()[0];
        on_cpu(cpu, || {
            bundle.add(1);
            catch_unwind(AssertUnwindSafe(|| bundle.add(1))).unwrap_err();
        });
        assert_eq!(bundle.drain_all().unwrap(), 0, "mode {mode}");
    }
}

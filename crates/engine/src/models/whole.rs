//! The whole engine.

use std::ptr::NonNull;
use std::sync::Arc;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::topology::Topology;

use super::host::{Event, LoomHost};
use super::{Bounds, explore};
use crate::engine::{Config, Engine};
use crate::queue::{Kind, QueueSpec, Wq};
use crate::submit::Queued;
use crate::sync::{AtomicU32, Ordering};
use crate::work::{Action, Work};

#[repr(C)]
struct Item {
    work: Work,
    runs: AtomicU32,
    done: Event,
}

unsafe fn run(work: NonNull<Work>, _: Action) {
    // SAFETY: every item of this model is the first field of an `Item`.
    let item = unsafe { work.cast::<Item>().as_ref() };
    item.runs.fetch_add(1, Ordering::Relaxed);
    item.done.wake();
}

impl Item {
    fn new() -> Arc<Item> {
        Arc::new(Item { work: Work::new(run), runs: AtomicU32::new(0), done: Event::default() })
    }
    fn work(&self) -> NonNull<Work> {
        NonNull::from(&self.work)
    }
}

fn spec(max_active: u32) -> QueueSpec {
    QueueSpec {
        name: "q".to_owned(),
        kind: Kind::PerCpu,
        highpri: false,
        max_active,
        cpu_intensive: false,
    }
}

#[test]
fn submit_and_wait() {
    explore("submit_and_wait", Bounds { preemptions: Some(4) }, || {
        loom::stop_exploring();
        let config = Config::new(Topology::flat(1), CpuSet::first_n(1));
        let engine = Engine::new(LoomHost::with_spawns(2), config);
        let wq = Wq::new(&engine, spec(2)).unwrap();
        let items = [Item::new(), Item::new()];
        loom::explore();
        let other = items[1].clone();
        let queue = &raw const *wq;
        let queue = queue as usize;
        let submitter = loom::thread::spawn(move || {
            let wq = unsafe { &*(queue as *const Wq<LoomHost>) };
            assert_eq!(unsafe { wq.queue(other.work()) }, Queued::Yes);
        });
        assert_eq!(unsafe { wq.queue(items[0].work()) }, Queued::Yes);
        items[0].done.wait();
        items[1].done.wait();
        submitter.join().unwrap();
        loom::stop_exploring();
        drop(wq);
        engine.retire();
        engine.host().join_all();
        for item in &items {
            assert_eq!(item.runs.load(Ordering::Relaxed), 1);
        }
    });
}

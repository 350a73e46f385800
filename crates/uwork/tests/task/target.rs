//! Items that log, and threads for which they are added.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use uwork::task::{self, Delivery, Notify, TaskHandle, TaskItem, TaskWork};

use crate::support::gate::Log;
use crate::support::within;

/// An item that logs its number.
pub(crate) struct Job {
    pub(crate) work: TaskWork<Job>,
    pub(crate) number: u32,
    log: Log<u32>,
}

uwork::has_task_work!(impl HasTaskWork for Job { work });

impl TaskItem for Job {
    type Pointer = Arc<Job>;

    fn run(this: Arc<Job>) {
        assert!(!this.work.is_pending());
        this.log.push(this.number);
    }
}

pub(crate) fn jobs(log: &Log<u32>, count: u32) -> Vec<Arc<Job>> {
    let job = |number| Arc::new(Job { work: TaskWork::new(), number, log: log.clone() });
    (0..count).map(job).collect()
}

/// A thread that waits for task work until it is ended.
pub(crate) struct Target {
    pub(crate) handle: TaskHandle,
    pub(crate) thread: JoinHandle<()>,
    over: Arc<AtomicBool>,
}

impl Target {
    /// `wait` waits for task work once, in any way.
    pub(crate) fn new(delivery: Delivery, mut wait: impl FnMut() + Send + 'static) -> Target {
        let (send, receive) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = std::thread::spawn(move || {
            task::set_delivery(delivery).unwrap();
            send.send(TaskHandle::current()).unwrap();
            while !ends.load(Ordering::Relaxed) {
                wait();
            }
        });
        Target { handle: receive.recv().unwrap(), thread, over }
    }

    pub(crate) fn end(self) {
        let over = self.over.clone();
        let ends = move || over.store(true, Ordering::Relaxed);
        assert!(self.handle.add_fn(Notify::Signal, ends).is_ok());
        within("the target ends", move || self.thread.join().unwrap());
    }
}

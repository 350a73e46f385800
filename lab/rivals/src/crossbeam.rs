//! The usual hand-written pool: boxed closures, sent through a crossbeam channel to threads that
//! call them.

use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, unbounded};

use crate::jobs::Job;
use crate::load::{Pool, Producer};
use crate::progress::Progress;

/// Threads around one unbounded channel.
pub(crate) struct Crossbeam {
    /// `None` only while dropping: the workers end when all senders are dropped.
    sender: Option<Sender<Job>>,
    workers: Vec<JoinHandle<()>>,
}

impl Crossbeam {
    pub(crate) fn new(workers: usize) -> Self {
        let (sender, receiver) = unbounded::<Job>();
        let workers = (0..workers)
            .map(|_| {
                let receiver = receiver.clone();
                thread::spawn(move || receiver.iter().for_each(|job| job()))
            })
            .collect();
        Self { sender: Some(sender), workers }
    }

    pub(crate) fn sender(&self) -> &Sender<Job> {
        self.sender.as_ref().expect("lives until the drop")
    }
}

impl Drop for Crossbeam {
    fn drop(&mut self) {
        self.sender = None;
        for worker in self.workers.drain(..) {
            worker.join().expect("the load's closures do not panic");
        }
    }
}

/// One producer.
pub(crate) struct Spawner<'a> {
    sender: &'a Sender<Job>,
    progress: &'static Progress,
}

impl Pool for Crossbeam {
    type Producer<'a> = Spawner<'a>;

    fn producer<'a>(&'a self, progress: &'static Progress, _outstanding: usize) -> Spawner<'a> {
        Spawner { sender: self.sender(), progress }
    }
}

impl Producer for Spawner<'_> {
    #[inline]
    unsafe fn submit(&mut self, _index: usize) {
        let progress = self.progress;
        self.sender
            .send(Box::new(move || progress.complete()))
            .expect("the workers hold the receiving end");
    }
}

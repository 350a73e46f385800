//! Pause and resume of one queue.

use std::time::Duration;

use uwork_engine::host::Host;
use uwork_linux::{Error, engine};

use crate::item::nanos;
use crate::queue::{Queue, in_time};

impl Queue {
    /// Starts no more items of this queue, and waits until those that run have ended: afterwards none
    /// of them runs before the matching [`Queue::resume`]. Items that are queued, before or
    /// meanwhile, wait in order. Other queues are not affected.
    ///
    /// Pauses are counted: each needs a `resume`. Items that a worker has taken as a batch count as
    /// running. While the queue is paused, a flush, a drain and a join wait for the resume, delayed
    /// items queue themselves when they are due, and a cancel works as usual. [`Queue::destroy`] and
    /// the drop of the last handle end all pauses. A forked child inherits the pause.
    ///
    /// An item that waits for another item of its own queue runs that one itself, also while the
    /// queue is paused. It cannot where the queue is per-CPU or BH: there the pause waits until the
    /// item stops waiting, and [`Queue::pause_timeout`] bounds that.
    ///
    /// # Errors
    /// The caller is in an item of this queue; nothing is paused.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// static RUNS: AtomicU32 = AtomicU32::new(0);
    /// let queue = uwork::Queue::builder("pausable").build()?;
    /// queue.pause()?;
    /// let kept = queue.spawn(|| RUNS.fetch_add(1, Ordering::Relaxed));
    /// assert_eq!((RUNS.load(Ordering::Relaxed), queue.is_paused()), (0, true));
    /// queue.resume()?;
    /// assert_eq!((kept.join().unwrap(), queue.is_paused()), (0, false));
    /// assert!(queue.resume().is_err());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn pause(&self) -> Result<(), Error> {
        self.0.engine().assert_may_wait();
        Ok(self.0.pause()?)
    }

    /// As [`Queue::pause`], but for `limit` at most.
    ///
    /// # Errors
    /// [`TimedOut`](crate::ErrorKind::TimedOut): items still ran then. Or the caller is in an item of
    /// this queue. In both cases this call has paused nothing, and needs no `resume`.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use uwork::ErrorKind;
    /// let queue = uwork::Queue::builder("pause-timeout").build()?;
    /// let ((began, begun), (done, wait)) = (mpsc::channel(), mpsc::channel::<()>());
    /// let stuck = queue.spawn(move || (began.send(()), wait.recv()).1);
    /// begun.recv().unwrap();
    /// let error = queue.pause_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// drop(done);
    /// queue.pause_timeout(Duration::from_secs(60))?;
    /// queue.resume()?;
    /// # assert!(stuck.join().unwrap().is_err());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn pause_timeout(&self, limit: Duration) -> Result<(), Error> {
        self.0.engine().assert_may_wait();
        let deadline = engine().host().now().saturating_add(nanos(limit));
        in_time(
            self.0.pause_until(deadline),
            "the limit has passed, and some items still run; nothing is paused",
        )
    }

    /// Ends one [`Queue::pause`]. After the last one the queue's items start again. Any thread may
    /// call it, also an item.
    ///
    /// # Errors
    /// The queue is not paused.
    pub fn resume(&self) -> Result<(), Error> {
        Ok(self.0.resume()?)
    }

    /// Whether the queue is paused, or a pause waits for items that run.
    pub fn is_paused(&self) -> bool {
        self.0.is_paused()
    }
}

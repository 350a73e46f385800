//! Calls that wait, from async code.

use std::future::{Future, poll_fn};
use std::pin::pin;

use uwork_linux::engine;

use crate::JoinHandle;
use crate::system;

/// Runs a call that waits on a worker, and returns a future for its result: the asynchronous form of
/// `flush`, `drain`, `destroy`, `pause`, `cancel_sync`, `join` and every other call of this crate that
/// waits.
///
/// The call begins when a worker of [`system::dfl_long`] takes it, so a flush covers everything that
/// was queued before `unblock`. The worker waits in it, and other workers take the queue's other items.
/// A dropped handle lets the call go on.
///
/// Each call that waits occupies a worker until it returns. At most 1024 run at once, the
/// `max_active` of that queue, of which each NUMA node has its share; and never more than the pool
/// may have workers ([`Setup::pool_workers_max`](crate::Setup::pool_workers_max)). Further calls
/// begin when others return. So a call must not wait for what only a later `unblock` does: a chain
/// of so many calls would wait forever.
///
/// In a future that runs on the very queue, it is how to wait for the rest of the queue: between two
/// polls, the future is no item.
///
/// ```
/// # use std::{pin::pin, sync::Arc, task::{Context, Poll, Wake}, thread};
/// # struct Unpark(thread::Thread);
/// # impl Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark() } }
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     let (waker, mut future) = (Arc::new(Unpark(thread::current())).into(), pin!(future));
/// #     loop {
/// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
/// #             Poll::Ready(output) => return output,
/// #             Poll::Pending => thread::park(),
/// #         }
/// #     }
/// # }
/// use std::sync::atomic::{AtomicU32, Ordering};
/// static DONE: AtomicU32 = AtomicU32::new(0);
/// let queue = uwork::Queue::builder("requests").build()?;
/// # block_on(async {
/// for _ in 0..100 {
///     drop(queue.spawn(|| DONE.fetch_add(1, Ordering::Relaxed)));
/// }
/// let flushed = queue.clone();
/// uwork::unblock(move || flushed.flush()).await.unwrap()?;
/// assert_eq!(DONE.load(Ordering::Relaxed), 100);
/// # Ok::<(), uwork::Error>(())
/// # })?;
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn unblock<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    system::dfl_long().spawn(call)
}

/// Runs a future, and has calls of this crate reported that wait for items while it is polled: such a
/// call keeps the executor's thread from its other futures. [`unblock`] is the remedy.
///
/// The report is [`Report::WaitInFuture`](crate::Report::WaitInFuture), once for each thread. A
/// reporter can take the stack, because it is called inside the call. Polls on uwork's own workers are
/// not reported: there another worker takes over.
///
/// No executor tells whether a thread polls futures or runs blocking calls, so the program does it, for
/// example around each request in its tests.
///
/// ```
/// let queue = uwork::Queue::builder("handler").build()?;
/// let handler = uwork::report_waits(async move {
///     // A flush that has to wait is reported here.
///     queue.flush()
/// });
/// # drop(handler);
/// # Ok::<(), uwork::Error>(())
/// ```
pub async fn report_waits<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _polling = Polling::begin();
        future.as_mut().poll(context)
    })
    .await
}

/// While it lives, waits of this thread are reported.
struct Polling {
    before: bool,
}

impl Polling {
    fn begin() -> Polling {
        Polling { before: engine().report_waits(true) }
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        engine().report_waits(self.before);
    }
}

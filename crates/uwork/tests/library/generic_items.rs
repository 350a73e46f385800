//! Items as fields of generic types.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uwork::{DelayedWork, Queue, Work, WorkItem, has_work};

/// Two items of a generic type.
struct Outbox<T: Send + 'static, const LIMIT: usize> {
    send: Work<Outbox<T, LIMIT>>,
    retry: DelayedWork<Outbox<T, LIMIT>, 1>,
    waiting: Mutex<Vec<T>>,
    sent: Mutex<Vec<T>>,
}

has_work!(impl<T: Send + 'static, const LIMIT: usize> HasWork for Outbox<T, LIMIT> { send });
has_work!(impl<T: Send + 'static, const LIMIT: usize> HasDelayedWork<1> for Outbox<T, LIMIT> { retry });

impl<T: Send + 'static, const LIMIT: usize> WorkItem for Outbox<T, LIMIT> {
    type Pointer = Arc<Self>;
    fn run(this: Arc<Self>) {
        let mut waiting = this.waiting.lock().unwrap();
        let count = waiting.len().min(LIMIT);
        this.sent.lock().unwrap().extend(waiting.drain(..count));
    }
}

impl<T: Send + 'static, const LIMIT: usize> WorkItem<1> for Outbox<T, LIMIT> {
    type Pointer = Arc<Self>;
    fn run(this: Arc<Self>) {
        <Self as WorkItem<0>>::run(this);
    }
}

fn outbox<T: Send + 'static, const LIMIT: usize>(waiting: Vec<T>) -> Arc<Outbox<T, LIMIT>> {
    Arc::new(Outbox {
        send: Work::new(),
        retry: DelayedWork::new(),
        waiting: Mutex::new(waiting),
        sent: Mutex::default(),
    })
}

#[test]
fn items_of_a_generic_type_run_with_its_parameters() {
    let queue = Queue::builder("outbox").build().unwrap();
    let numbers = outbox::<u64, 2>(vec![1, 2, 3]);
    let names = outbox::<String, 1>(vec!["a".to_owned(), "b".to_owned()]);
    assert!(queue.enqueue::<_, 0>(numbers.clone()).is_queued());
    assert!(queue.enqueue_delayed::<_, 1>(names.clone(), Duration::from_millis(1)).is_queued());
    numbers.send.flush();
    names.retry.flush();
    assert_eq!(*numbers.sent.lock().unwrap(), [1, 2]);
    assert_eq!(*names.sent.lock().unwrap(), ["a"]);
}

/// A type whose parameters have brackets of their own, single and in pairs.
struct Index<K, F, I>
where
    K: Into<HashMap<u8, Vec<u8>>>,
    F: for<'a> Fn(&'a K) -> Option<usize> + Send + Sync,
    I: IntoIterator<Item = Vec<Vec<u8>>>,
{
    work: Work<Index<K, F, I>>,
    key: K,
    size: F,
    parts: I,
    seen: Mutex<Option<([usize; 2], usize)>>,
}

has_work!(
    impl<
        K: Into<HashMap<u8, Vec<u8>>> + Send + Sync + 'static,
        F: for<'a> Fn(&'a K) -> Option<usize> + Send + Sync + 'static,
        I: IntoIterator<Item = Vec<Vec<u8>>> + Send + Sync + 'static
    > HasWork for Index<K, F, I> { work }
);

impl<K, F, I> WorkItem for Index<K, F, I>
where
    K: Into<HashMap<u8, Vec<u8>>> + Send + Sync + Clone + 'static,
    F: for<'a> Fn(&'a K) -> Option<usize> + Send + Sync + 'static,
    I: IntoIterator<Item = Vec<Vec<u8>>> + Send + Sync + Clone + 'static,
{
    type Pointer = Arc<Self>;
    fn run(this: Arc<Self>) {
        let sizes = [(this.size)(&this.key).unwrap(), this.key.clone().into().len()];
        *this.seen.lock().unwrap() = Some((sizes, this.parts.clone().into_iter().count()));
    }
}

#[test]
fn parameters_may_have_bounds_with_brackets() {
    let queue = Queue::builder("index").build().unwrap();
    let key = HashMap::from([(1, vec![2])]);
    let size = |key: &HashMap<u8, Vec<u8>>| Some(key.len());
    let parts = [vec![vec![3]]];
    let index = Arc::new(Index { work: Work::new(), key, size, parts, seen: Mutex::default() });
    assert!(queue.enqueue(index.clone()).is_queued());
    // The item may have run before the flush begins.
    index.work.flush();
    assert_eq!(*index.seen.lock().unwrap(), Some(([1, 1], 1)));
}

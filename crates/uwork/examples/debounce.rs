//! A debounced, delayed, cancellable item: a file is saved once the user has stopped typing.
//!
//! Each keystroke moves the timer; the item runs when the timer expires. Closing the document
//! cancels a pending save, or waits for one that runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use uwork::{DelayedWork, Queue, WorkItem};

struct Document {
    save: DelayedWork<Document>,
    text: Mutex<String>,
    saved: Mutex<Vec<String>>,
}
uwork::has_work!(impl HasDelayedWork for Document { save });

impl WorkItem for Document {
    type Pointer = Arc<Document>;

    fn run(this: Arc<Document>) {
        let text = this.text.lock().unwrap().clone();
        this.saved.lock().unwrap().push(text);
    }
}

/// Moves the timer to `delay` from now.
fn type_key(queue: &Queue, document: &Arc<Document>, key: char, delay: Duration) {
    document.text.lock().unwrap().push(key);
    // The document comes back if a timer was armed already.
    let _ = queue.mod_delayed(document.clone(), delay);
}

fn main() -> Result<(), uwork::Error> {
    let queue = Queue::builder("editor").numbered().build()?;
    let document = Arc::new(Document {
        save: DelayedWork::new(),
        text: Mutex::default(),
        saved: Mutex::default(),
    });
    let pause = Duration::from_secs(3_600);
    "hello".chars().for_each(|key| type_key(&queue, &document, key, pause));
    assert!(document.saved.lock().unwrap().is_empty(), "the user is still typing");

    // The user stops: the timer is due at once, and one save has the whole text.
    type_key(&queue, &document, '!', Duration::ZERO);
    document.save.flush();
    assert_eq!(*document.saved.lock().unwrap(), ["hello!"]);

    // The document is closed before the next save, which is cancelled.
    type_key(&queue, &document, '?', pause);
    assert!(document.save.cancel_sync().is_ok_and(|it| it.is_some()), "it was pending");
    println!("saved {:?}", document.saved.lock().unwrap());
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}

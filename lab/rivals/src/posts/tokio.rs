//! tokio: a current-thread runtime on each thread, whose task is woken by a channel.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Course, Token, Way};

/// `None` ends a wait.
type Sent = Option<Token>;

/// See the module.
pub struct Tokio {
    senders: Vec<UnboundedSender<Sent>>,
    receivers: Vec<Mutex<Option<UnboundedReceiver<Sent>>>>,
}

thread_local! {
    static OWN: RefCell<Option<(Runtime, UnboundedReceiver<Sent>)>> = const { RefCell::new(None) };
}

impl Tokio {
    /// Channels for `threads` threads.
    pub fn new(threads: usize) -> Tokio {
        let (senders, receivers) = (0..threads).map(|_| unbounded_channel()).unzip();
        let receivers: Vec<UnboundedReceiver<Sent>> = receivers;
        let receivers = receivers.into_iter().map(|receiver| Mutex::new(Some(receiver))).collect();
        Tokio { senders, receivers }
    }
}

impl Way for Tokio {
    type Parcel = Token;

    fn parcel(self: &Arc<Self>, token: Token, _: &Arc<Course>) -> Token {
        token
    }

    fn enter(&self, at: usize) {
        let receiver = self.receivers[at].lock().unwrap_or_else(PoisonError::into_inner).take();
        let runtime = Builder::new_current_thread().build().expect("a runtime needs nothing");
        OWN.set(Some((runtime, receiver.expect("one thread takes it"))));
    }

    fn post(&self, to: usize, token: Token) {
        // Fails only after the course.
        let _ = self.senders[to].send(Some(token));
    }

    fn turn(&self, _: usize, course: &Course) {
        OWN.with_borrow_mut(|own| {
            let (runtime, receiver) = own.as_mut().expect("entered");
            runtime.block_on(async {
                while let Some(Some(mut token)) = receiver.recv().await {
                    if let Some(next) = course.arrive(&mut token) {
                        self.post(next, token);
                    } else if course.is_over() {
                        break;
                    }
                }
            });
        });
    }

    fn call(&self, to: usize) {
        let _ = self.senders[to].send(None);
    }

    fn leave(&self, _: usize) {
        OWN.set(None);
    }
}

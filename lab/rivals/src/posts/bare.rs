//! The usual hand-written solution: a locked list for each thread, and a futex on which the thread
//! sleeps.

use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Course, Token, Way};
use crate::futex;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

#[derive(Default)]
struct Mailbox {
    tokens: Mutex<Vec<Token>>,
    /// ASLEEP while the thread sleeps; the thread that resets it must wake the sleeper.
    state: AtomicU32,
}

/// See the module.
pub struct Bare(Vec<Mailbox>);

impl Bare {
    /// Mailboxes for `threads` threads.
    pub fn new(threads: usize) -> Bare {
        Bare((0..threads).map(|_| Mailbox::default()).collect())
    }

    fn wake(&self, to: usize) {
        let state = &self.0[to].state;
        if state.load(Ordering::SeqCst) == ASLEEP && state.swap(AWAKE, Ordering::SeqCst) == ASLEEP {
            futex::wake(state, 1);
        }
    }
}

impl Way for Bare {
    type Parcel = Token;

    fn parcel(self: &Arc<Self>, token: Token, _: &Arc<Course>) -> Token {
        token
    }

    fn enter(&self, _: usize) {}

    fn post(&self, to: usize, token: Token) {
        self.0[to].tokens.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        self.wake(to);
    }

    fn turn(&self, at: usize, course: &Course) {
        let own = &self.0[at];
        let take = || mem::take(&mut *own.tokens.lock().unwrap_or_else(PoisonError::into_inner));
        let mut tokens = take();
        if tokens.is_empty() {
            own.state.store(ASLEEP, Ordering::SeqCst);
            // Checked before sleeping, because tokens may have arrived without a wake.
            tokens = take();
            while tokens.is_empty()
                && !course.is_over()
                && own.state.load(Ordering::SeqCst) == ASLEEP
            {
                futex::wait(&own.state, ASLEEP);
            }
            own.state.store(AWAKE, Ordering::SeqCst);
        }
        for mut token in tokens {
            if let Some(next) = course.arrive(&mut token) {
                self.post(next, token);
            }
        }
    }

    fn call(&self, to: usize) {
        self.wake(to);
    }
}

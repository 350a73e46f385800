//! Many futures that wake each other.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use crate::support::{queue, watchdog};
use uwork::Queue;

/// A channel with one receiver.
struct Channel<T>(Mutex<(VecDeque<T>, Option<Waker>)>);

impl<T> Channel<T> {
    fn new() -> Arc<Channel<T>> {
        Arc::new(Channel(Mutex::new((VecDeque::new(), None))))
    }

    fn send(&self, value: T) {
        let mut inner = self.0.lock().unwrap();
        inner.0.push_back(value);
        let waker = inner.1.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn receive(&self) -> T {
        poll_fn(|context| {
            let mut inner = self.0.lock().unwrap();
            match inner.0.pop_front() {
                Some(value) => Poll::Ready(value),
                None => {
                    inner.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

const ROUNDS: u64 = 200;

/// Two futures that pass a number back and forth and add one each time.
fn ping_pong(ping_queue: &Queue, pong_queue: &Queue) -> uwork::JoinHandle<u64> {
    let (to, fro) = (Channel::new(), Channel::new());
    let (there, back) = (to.clone(), fro.clone());
    drop(pong_queue.spawn_future(async move {
        for _ in 0..ROUNDS {
            let number: u64 = there.receive().await;
            back.send(number + 1);
        }
    }));
    ping_queue.spawn_future(async move {
        let mut number = 0;
        for _ in 0..ROUNDS {
            to.send(number + 1);
            number = fro.receive().await;
        }
        number
    })
}

fn queues() -> Vec<Queue> {
    let builders = [
        queue("load"),
        queue("load").per_cpu(),
        queue("load").ordered(),
        queue("load").max_active(2),
    ];
    builders.into_iter().map(|builder| builder.build().unwrap()).collect()
}

// Catches: a wake that is lost between two queues, or between a poll and its end.
#[test]
fn many_futures_play_ping_pong() {
    let _watchdog = watchdog();
    let queues = queues();
    let pairs = queues.iter().flat_map(|ping| queues.iter().map(move |pong| (ping, pong)));
    let games: Vec<_> =
        pairs.flat_map(|(ping, pong)| (0..6).map(move |_| ping_pong(ping, pong))).collect();
    for game in games {
        assert_eq!(game.join().unwrap(), 2 * ROUNDS);
    }
}

// Catches: the same, where one channel has many senders.
#[test]
fn many_futures_send_to_one() {
    let _watchdog = watchdog();
    for queue in queues() {
        let channel = Channel::new();
        for sender in 0..50_u64 {
            let channel = channel.clone();
            drop(queue.spawn_future(async move {
                for number in 0..20 {
                    channel.send(sender * 20 + number);
                }
            }));
        }
        let sum = queue.spawn_future(async move {
            let mut sum = 0;
            for _ in 0..1_000 {
                sum += channel.receive().await;
            }
            sum
        });
        assert_eq!(sum.join().unwrap(), 999 * 1_000 / 2);
    }
}

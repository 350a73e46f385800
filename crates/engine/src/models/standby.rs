//! The standby of a CPU, at the moment at which it goes to sleep.
//!
//! **Proves.** An item that begins to wait behind a running worker of a pool in which blocks are
//! expected finds the standby awake, or wakes it, or has the pool examined.
//!
//! **Bounds.** The production worker, queue and standby; a round of the standby and its steps
//! before it sleeps, on a thread of the model; one worker, one item that waits; up to three
//! preemptions: 26 executions each.
//!
//! **Seen to fail** when the standby does not look again after it has published its sleep, and when
//! the word that names the pool is not stored with `SeqCst`.

use loom::thread;
use uwork_policy::standby::State;

use super::world::{Item, World};
use super::{LoomHost, Preemptions, explore};
use crate::engine::Engine;
use crate::queue::submit::Queued;

/// An item is queued behind one that does not end, while the standby takes `steps`.
fn queued_while(name: &str, steps: fn(&Engine<LoomHost>)) {
    explore(name, Preemptions::AtMost(3), move || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        world.settle();
        world.engine.host().detect_by_standbys();
        let (held, gate) = world.hold_a_worker(&queue);
        let item = Item::new();
        world.engine.watch.wake(&world.engine);
        world.engine.expect_blocks(0);
        world.engine.standby_begins();
        world.explored(|| {
            let engine = world.engine.clone();
            let standby = thread::spawn(move || steps(&engine));
            assert_eq!(item.queue(&queue), Queued::Yes);
            standby.join().unwrap();
        });
        let examined = world.engine.take_examination(0);
        assert!(examined || world.engine.standby_is_called(), "the waiting item is known");
        gate.wake();
        held.done.wait();
        item.done.wait();
        drop(queue);
        assert!(world.end().is_empty());
    });
}

/// The parent could not spawn the standby, or lost it, and was to try again later.
#[test]
fn an_absent_standby_is_due_at_once_in_a_forked_child() {
    explore("standby: absent at a fork", Preemptions::AtMost(1), || {
        let world = World::new(1, 1);
        world.engine.standby_fails();
        assert!(!world.engine.is_standby_due());
        world.engine.standbys.forget();
        assert!(world.engine.is_standby_due());
        assert!(world.end().is_empty());
    });
}

#[test]
fn an_item_is_queued_while_the_standby_goes_to_sleep() {
    queued_while("standby: queued while it goes to sleep", Engine::standby_sleeps);
}

#[test]
fn an_item_is_queued_while_the_standby_begins_a_pause() {
    queued_while("standby: queued while it pauses", |engine| {
        engine.standby_begins_sleep(State::Paused);
    });
}

#[test]
fn an_item_is_queued_while_the_standby_gives_up() {
    queued_while("standby: queued while it gives up", |engine| {
        engine.standby_begins_sleep(State::GaveUp);
    });
}

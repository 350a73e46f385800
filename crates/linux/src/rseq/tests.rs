//! Sections on this machine, with the area that glibc or uwork has registered.

use std::ptr::NonNull;

use uwork_engine::percpu::{CpuLock, Place, Sections};

use super::{Rseq, own};

fn sections() -> Option<Rseq> {
    let (rseq, able) = Rseq::new();
    match able {
        Ok(()) => Some(rseq),
        Err(why) => {
            eprintln!("no sections here: {why}");
            None
        }
    }
}

#[test]
fn a_section_takes_the_lock_of_the_cpu_that_the_thread_is_on() {
    let Some(rseq) = sections() else { return };
    let allowed = crate::topology::Machine::read().expect("a machine").allowed;
    let count = allowed.last().expect("a CPU") + 1;
    for cpu in allowed.iter() {
        let pinned = std::thread::spawn(move || {
            super::super::thread::pin(&uwork_policy::cpuset::CpuSet::single(cpu));
            assert!(rseq.has_sections(cpu + 1) && !rseq.has_sections(cpu));
            let locks: Box<[CpuLock]> = (0..count).map(|_| CpuLock::default()).collect();
            let first = NonNull::from(&*locks).cast();
            let place = Place { first, stride: size_of::<CpuLock>(), len: count };
            // SAFETY: the locks are live.
            let claim = |place: Place| unsafe { rseq.claim(&place, rseq.token()) };
            let taken = claim(place).expect("it is free");
            assert_eq!(taken.as_ptr().cast_const(), &raw const locks[cpu as usize]);
            assert!(locks[cpu as usize].is_held_by(rseq.token()));
            assert!(claim(place).is_none(), "it is held");
            // SAFETY: taken above.
            unsafe { locks[cpu as usize].release() };
            assert!(claim(Place { len: cpu, ..place }).is_none(), "its CPU is not in the row");
            assert!(locks.iter().all(|lock| !lock.is_held()));
        });
        pinned.join().expect("no panic");
    }
}

#[test]
fn tokens_of_live_threads_differ() {
    let (rseq, _) = Rseq::new();
    let other = std::thread::scope(|scope| {
        let other = scope.spawn(|| rseq.token().value()).join().expect("no panic");
        assert_ne!(other, rseq.token().value());
        other
    });
    assert_eq!(other & 1, 0);
}

#[test]
fn a_second_area_is_refused_if_glibc_has_registered_one() {
    let Some(rseq) = sections() else { return };
    assert_eq!(own::area().is_null(), rseq.offset != 0);
}

#[test]
fn a_section_succeeds_after_a_restart_of_any_cpu() {
    let Some(rseq) = sections() else { return };
    let allowed = crate::topology::Machine::read().expect("a machine").allowed;
    let count = allowed.last().expect("a CPU") + 1;
    let locks: Box<[CpuLock]> = (0..count).map(|_| CpuLock::default()).collect();
    let first = NonNull::from(&*locks).cast();
    let place = Place { first, stride: size_of::<CpuLock>(), len: count };
    // One CPU that does not exist is among them.
    for cpu in 0..=count {
        rseq.restart(cpu);
        // SAFETY: the locks are live.
        let taken = unsafe { rseq.claim(&place, rseq.token()) }.expect("it is free");
        // SAFETY: taken above, and live.
        unsafe {
            assert!(taken.as_ref().is_held_by(rseq.token()));
            taken.as_ref().release();
        }
    }
}

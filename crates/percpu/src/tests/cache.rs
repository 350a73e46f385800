//! Objects of caches, and the memory that they are in.

use super::{cpus, modes, on_cpu};
use crate::{Cache, Cached};

#[test]
fn objects_and_their_memory_return_from_every_cpu() {
    for mode in modes() {
        let cache = Cache::<[u64; 8]>::in_mode(mode);
        assert_eq!(cache.stats().bytes, 0);
        let objects: Vec<_> = (0..1000).map(|number| cache.alloc([number; 8])).collect();
        assert_eq!(cache.stats().out, 1000);
        assert!(objects.iter().zip(0..).all(|(object, number)| **object == [number; 8]));
        let mut addresses: Vec<_> =
            objects.iter().map(|object| std::ptr::from_ref(&**object).addr()).collect();
        addresses.sort_unstable();
        assert!(addresses.windows(2).all(|two| two[1] - two[0] >= 64), "none overlaps");
        let mut parts: Vec<Vec<_>> = Vec::new();
        parts.resize_with(cpus().len(), Vec::new);
        for (number, object) in objects.into_iter().enumerate() {
            let part = number % parts.len();
            parts[part].push(object);
        }
        for (cpu, part) in cpus().into_iter().zip(parts) {
            on_cpu(cpu, || drop(part));
        }
        assert_eq!(cache.stats().out, 0);
        assert!(cache.stats().in_magazines > 0);
        assert!(cache.flush_all().unwrap() > 0);
        assert_eq!(cache.stats().in_magazines, 0, "mode {mode}");
        let bytes = cache.stats().bytes;
        assert_eq!(cache.shrink().unwrap(), bytes);
        assert_eq!((cache.stats().objects, cache.stats().bytes), (0, 0));
        drop(cache.alloc([0; 8]));
        cache.close().unwrap();
    }
}

#[test]
fn memory_of_allocated_objects_stays() {
    for mode in modes() {
        let cache = Cache::<[u64; 64]>::in_mode(mode);
        let mut objects: Vec<_> = (0..10_000).map(|number| cache.alloc([number; 64])).collect();
        let kept = objects.swap_remove(5_000);
        drop(objects);
        let before = cache.stats().bytes;
        let returned = cache.shrink().unwrap();
        assert!(
            returned > 0 && cache.stats().bytes == before - returned && cache.stats().bytes > 0
        );
        assert_eq!(*kept, [5_000; 64]);
        assert_eq!(cache.stats().out, 1, "mode {mode}");
        // The remaining objects are used again.
        let more: Vec<_> = (0..100).map(|number| cache.alloc([number; 64])).collect();
        assert!(more.iter().zip(0..).all(|(object, number)| **object == [number; 64]));
        let raw = Cached::into_raw(kept);
        drop(more);
        let Err(error) = cache.close() else { panic!("one is out") };
        assert_eq!((error.out, error.to_string().contains("1 object(s)")), (1, true));
        let cache = *error.cache;
        // SAFETY: from `into_raw` above.
        drop(unsafe { Cached::from_raw(&cache, raw) });
        cache.close().unwrap();
    }
}

#[test]
fn objects_of_any_size_and_alignment() {
    #[repr(align(256))]
    struct Aligned(#[allow(dead_code, reason = "for its size")] u8);
    let cache = Cache::<Aligned>::new("aligned");
    let objects: Vec<_> = (0..100).map(|_| cache.alloc(Aligned(1))).collect();
    assert!(objects.iter().all(|object| std::ptr::from_ref(&**object).addr() % 256 == 0));
    let nothing = Cache::<()>::new("nothing");
    drop((nothing.alloc(()), nothing.alloc(())));
    let large = Cache::<[u8; 5 << 20]>::new("large");
    assert!(large.stats().objects == 0);
    let object = large.alloc_raw();
    assert_eq!(large.stats().out, 1);
    // SAFETY: from `alloc_raw`, once.
    unsafe { large.free_raw(object) };
}

#[test]
fn an_object_whose_destructor_panics_is_freed() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let cache = Cache::new("bombs");
    let object = cache.alloc(Bomb);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(object))).is_err());
    assert_eq!(cache.stats().out, 0);
}

//! Which parameters of the public types are invariant, and why. Each row that a wrong marker could
//! break has an example that must not compile.
//!
//! A type is *covariant* in a parameter if a value with a longer lifetime may stand for one with a
//! shorter lifetime, as `&'static str` may for `&'a str`. That is wrong for a type through whose
//! shared reference a value can be stored: the storer shortens the reference, stores a short-lived
//! value, and the taker gets it back as a long-lived one. It is also wrong for a type that selects
//! a function or a state by the type itself.
//!
//! | type | parameter | variance | reason |
//! |---|---|---|---|
//! | `Work`, `DelayedWork`, `RcuWork`, `TaskWork` | `T` | invariant | the item's function is that of `T` |
//! | `Combiner<T, S>` | `T` | invariant | `submit(&self)` stores a `T` that `resume(&self)` takes out |
//! | `Combiner<T, S>` | `S` | invariant | handlers write to it through `&self` |
//! | `Parcels<'a, T>` | `'a` | covariant | a borrow |
//! | `Parcels<'a, T>` | `T` | invariant | `first_mut` gives a `&mut T` |
//! | `recycle::Pool<T>` | `T` | invariant | `put(&self)` and `take(&self)` |
//! | `percpu::Cache<T>`, `CacheInUse<T>` | `T` | invariant | it allocates and frees objects of `T` alone |
//! | `percpu::Cached<'a, T>` | `'a` | covariant | a borrow |
//! | `percpu::Cached<'a, T>` | `T` | invariant | it refers to the cache |
//! | `percpu::PerCpu<T>`, `Bundle<T>` | `T` | invariant | holders of a lock write through `&self` |
//! | `percpu::Guard<'a, T>` | `'a` | covariant | a borrow |
//! | `percpu::Guard<'a, T>` | `T` | invariant | it writes to a shared value |
//! | `threads::Hooks<S>` | `S` | invariant | the state is found by its exact type |
//! | `threads::Thread<'a>` | `'a` | covariant | a shared borrow, nothing else |
//! | `JoinHandle<R>` | `R` | invariant | a trait object; covariance would be sound |
//! | `ScopedJoinHandle<'scope, R>` | `'scope` | covariant | it ends before the scope |
//! | `ScopedJoinHandle<'scope, R>` | `R` | invariant | it shares a mutex with the closure |
//! | `SpawnScope<'scope, 'env>` | both | invariant | `spawn(&self)` stores closures that borrow for them |
//! | all others | all | covariant | they own a value, and share no place with other threads |
//!
//! The others are `Parcel`, `Enqueued`, `EnqueuedAll`, `RejectedError`, `task::Added`,
//! `task::ExitedError` and `LockError`. A marker of a raw pointer, which has no parameter, keeps
//! `Notifier`, `Reactor` and `Guard` on their thread.
//!
//! This compiles, so the examples below do not fail for another reason:
//!
//! ```
//! use uwork::combine::{Combiner, Parcels};
//! use uwork::percpu::{Bundle, Cache, CacheInUse, Cached, Guard, PerCpu};
//! use uwork::rcu::RcuWork;
//! use uwork::task::TaskWork;
//! use uwork::{DelayedWork, JoinHandle, ScopedJoinHandle, SpawnScope, Work};
//! use uwork::{recycle::Pool, threads::Hooks, threads::Thread};
//! type Text<'a> = &'a str;
//! fn work<'a>(it: Work<Text<'a>>) -> Work<Text<'a>> { it }
//! fn delayed<'a>(it: DelayedWork<Text<'a>>) -> DelayedWork<Text<'a>> { it }
//! fn rcu<'a>(it: RcuWork<Text<'a>>) -> RcuWork<Text<'a>> { it }
//! fn task<'a>(it: TaskWork<Text<'a>>) -> TaskWork<Text<'a>> { it }
//! fn parcels<'r, 'a>(it: &'r Combiner<Text<'a>, ()>) -> &'r Combiner<Text<'a>, ()> { it }
//! fn value<'r, 'a>(it: &'r Combiner<(), Text<'a>>) -> &'r Combiner<(), Text<'a>> { it }
//! fn taken<'p, 'a>(it: Parcels<'p, Text<'a>>) -> Parcels<'p, Text<'a>> { it }
//! fn pool<'r, 'a>(it: &'r Pool<Text<'a>>) -> &'r Pool<Text<'a>> { it }
//! fn cache<'r, 'a>(it: &'r Cache<Text<'a>>) -> &'r Cache<Text<'a>> { it }
//! fn in_use<'a>(it: CacheInUse<Text<'a>>) -> CacheInUse<Text<'a>> { it }
//! fn object<'c, 'a>(it: Cached<'c, Text<'a>>) -> Cached<'c, Text<'a>> { it }
//! fn guard<'g, 'a>(it: Guard<'g, Text<'a>>) -> Guard<'g, Text<'a>> { it }
//! fn handle<'s, 'a>(it: ScopedJoinHandle<'s, Text<'a>>) -> ScopedJoinHandle<'s, Text<'a>> { it }
//! fn data<'r, 'a>(it: &'r PerCpu<Text<'a>>) -> &'r PerCpu<Text<'a>> { it }
//! fn bundle<'r, 'a>(it: &'r Bundle<Text<'a>>) -> &'r Bundle<Text<'a>> { it }
//! fn hooks<'a>(it: Hooks<Text<'a>>) -> Hooks<Text<'a>> { it }
//! fn scope<'r, 's, 'e>(it: &'r SpawnScope<'s, 'e>) -> &'r SpawnScope<'s, 'e> { it }
//! // Lifetimes of borrows become shorter where a caller needs it.
//! fn of_parcels<'a>(it: Parcels<'static, u8>) -> Parcels<'a, u8> { it }
//! fn of_object<'a>(it: Cached<'static, u8>) -> Cached<'a, u8> { it }
//! fn of_guard<'a>(it: Guard<'static, u8>) -> Guard<'a, u8> { it }
//! fn of_thread<'a>(it: Thread<'static>) -> Thread<'a> { it }
//! fn of_handle<'a>(it: ScopedJoinHandle<'static, u8>) -> ScopedJoinHandle<'a, u8> { it }
//! ```
//!
//! The parcels of a combiner:
//!
//! ```compile_fail
//! use uwork::combine::Combiner;
//! fn shorter<'r, 'a>(it: &'r Combiner<&'static str, ()>) -> &'r Combiner<&'a str, ()> { it }
//! ```
//! ```compile_fail
//! use uwork::combine::Combiner;
//! fn shorter<'r, 'a>(it: &'r Combiner<(), &'static str>) -> &'r Combiner<(), &'a str> { it }
//! ```
//! ```compile_fail
//! use uwork::combine::Parcels;
//! fn shorter<'p, 'a>(it: Parcels<'p, &'static str>) -> Parcels<'p, &'a str> { it }
//! ```
//! ```compile_fail
//! use uwork::recycle::Pool;
//! fn shorter<'r, 'a>(it: &'r Pool<&'static str>) -> &'r Pool<&'a str> { it }
//! ```
//!
//! Items, in both directions:
//!
//! ```compile_fail
//! use uwork::Work;
//! fn shorter<'a>(it: Work<&'static str>) -> Work<&'a str> { it }
//! ```
//! ```compile_fail
//! use uwork::Work;
//! fn longer<'a>(it: Work<&'a str>) -> Work<&'static str> { it }
//! ```
//! ```compile_fail
//! use uwork::DelayedWork;
//! fn longer<'a>(it: DelayedWork<&'a str>) -> DelayedWork<&'static str> { it }
//! ```
//! ```compile_fail
//! use uwork::rcu::RcuWork;
//! fn longer<'a>(it: RcuWork<&'a str>) -> RcuWork<&'static str> { it }
//! ```
//! ```compile_fail
//! use uwork::task::TaskWork;
//! fn longer<'a>(it: TaskWork<&'a str>) -> TaskWork<&'static str> { it }
//! ```
//!
//! So the field of a type is an item of exactly that type. Here it is one of a related type, with
//! another function:
//!
//! ```compile_fail
//! type Any = for<'a> fn(&'a u8);
//! type Fixed = fn(&'static u8);
//! struct Job<F> { work: uwork::Work<Job<Fixed>>, f: F }
//! uwork::has_work!(impl HasWork for Job<Any> { work });
//! ```
//!
//! Per-CPU data, hooks, scopes:
//!
//! ```compile_fail
//! use uwork::percpu::Cache;
//! fn shorter<'r, 'a>(it: &'r Cache<&'static str>) -> &'r Cache<&'a str> { it }
//! ```
//! ```compile_fail
//! use uwork::percpu::CacheInUse;
//! fn shorter<'a>(it: CacheInUse<&'static str>) -> CacheInUse<&'a str> { it }
//! ```
//! ```compile_fail
//! use uwork::percpu::Cached;
//! fn shorter<'c, 'a>(it: Cached<'c, &'static str>) -> Cached<'c, &'a str> { it }
//! ```
//! ```compile_fail
//! use uwork::percpu::Guard;
//! fn shorter<'g, 'a>(it: Guard<'g, &'static str>) -> Guard<'g, &'a str> { it }
//! ```
//! ```compile_fail
//! use uwork::percpu::PerCpu;
//! fn shorter<'r, 'a>(it: &'r PerCpu<&'static str>) -> &'r PerCpu<&'a str> { it }
//! ```
//! ```compile_fail
//! use uwork::percpu::Bundle;
//! fn shorter<'r, 'a>(it: &'r Bundle<&'static str>) -> &'r Bundle<&'a str> { it }
//! ```
//! ```compile_fail
//! use uwork::threads::Hooks;
//! fn shorter<'a>(it: Hooks<&'static str>) -> Hooks<&'a str> { it }
//! ```
//! ```compile_fail
//! use uwork::SpawnScope;
//! fn shorter<'r, 'a>(it: &'r SpawnScope<'static, 'static>) -> &'r SpawnScope<'a, 'a> { it }
//! ```
//! ```compile_fail
//! use uwork::ScopedJoinHandle;
//! fn shorter<'s, 'a>(it: ScopedJoinHandle<'s, &'static str>) -> ScopedJoinHandle<'s, &'a str> { it }
//! ```

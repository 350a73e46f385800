//! The keyspace compared with a plain map, and its memory compared with the budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use uwork_serve::keyspace::{AddError, Budget, Condition, Expiry, Keyspace, OutOfMemory};

/// A hash with few distinct values, so that keys collide.
fn hash(key: &[u8]) -> u64 {
    key.iter().map(|&byte| u64::from(byte % 3)).sum()
}

fn keyspace(limit: usize) -> (Keyspace, Arc<Budget>) {
    let budget = Arc::new(Budget::new(limit));
    (Keyspace::new(Arc::clone(&budget)), budget)
}

fn set(keys: &mut Keyspace, key: &[u8], value: &[u8]) -> Result<bool, OutOfMemory> {
    keys.set((hash(key), key), value, Expiry::Never, Condition::Always, 0)
}

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<u8>, Vec<u8>, Option<u64>, Condition),
    Get(Vec<u8>),
    Remove(Vec<u8>),
    Add(Vec<u8>, i64),
    Expire(Vec<u8>, Option<u64>),
    Pass(u64),
    Sweep,
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || prop::collection::vec(0_u8..4, 0..3);
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
    ];
    let after = || prop::option::of(0_u64..50);
    let condition = prop::sample::select(vec![
        Condition::Always,
        Condition::Always,
        Condition::Absent,
        Condition::Present,
    ]);
    let step = prop_oneof![
        4 => (key(), value, after(), condition)
            .prop_map(|(key, value, after, condition)| Step::Set(key, value, after, condition)),
        3 => key().prop_map(Step::Get),
        1 => key().prop_map(Step::Remove),
        1 => (key(), -9_i64..9).prop_map(|(key, summand)| Step::Add(key, summand)),
        2 => (key(), after()).prop_map(|(key, after)| Step::Expire(key, after)),
        2 => (0_u64..40).prop_map(Step::Pass),
        1 => Just(Step::Sweep),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(step, 0..200)
}

#[derive(Default)]
struct Model {
    map: BTreeMap<Vec<u8>, (Vec<u8>, Expiry)>,
    now: u64,
}

impl Model {
    fn live(&mut self) -> &mut BTreeMap<Vec<u8>, (Vec<u8>, Expiry)> {
        let now = self.now;
        self.map.retain(|_, (_, expiry)| !matches!(expiry, Expiry::At(time) if *time <= now));
        &mut self.map
    }
}

fn at(now: u64, after: Option<u64>) -> Expiry {
    after.map_or(Expiry::Never, |after| Expiry::At(now + after))
}

fn compare(model: &mut Model, keys: &mut Keyspace, step: Step) {
    let now = model.now;
    match step {
        Step::Set(key, value, after, condition) => {
            let expiry = at(now, after);
            let was = keys.set((hash(&key), &key), &value, expiry, condition, now);
            let present = model.live().contains_key(&key);
            let holds = match condition {
                Condition::Always => true,
                Condition::Absent => !present,
                Condition::Present => present,
            };
            assert_eq!(was, Ok(holds));
            if holds {
                model.live().insert(key, (value, expiry));
            }
        }
        Step::Get(key) => {
            let expected = model.live().get(&key);
            assert_eq!(keys.expiry(hash(&key), &key, now), expected.map(|(_, expiry)| *expiry));
            assert_eq!(keys.get(hash(&key), &key, now), expected.map(|(value, _)| &value[..]));
        }
        Step::Remove(key) => {
            assert_eq!(keys.remove(hash(&key), &key, now), model.live().remove(&key).is_some());
        }
        Step::Add(key, summand) => {
            let was = keys.add((hash(&key), &key), summand, now);
            let never = (b"0".to_vec(), Expiry::Never);
            let (text, expiry) = model.live().get(&key).cloned().unwrap_or(never);
            let text = String::from_utf8(text).unwrap_or_default();
            let expected = match text.parse::<i64>().ok().filter(|n| n.to_string() == text) {
                None => Err(AddError::NotANumber),
                Some(number) => number.checked_add(summand).ok_or(AddError::Overflow),
            };
            assert_eq!(was, expected);
            if let Ok(sum) = expected {
                model.live().insert(key, (sum.to_string().into_bytes(), expiry));
            }
        }
        Step::Expire(key, after) => {
            let was = keys.set_expiry((hash(&key), &key), at(now, after), now);
            let entry = model.live().get_mut(&key);
            assert_eq!(was, entry.is_some());
            if let Some((_, expiry)) = entry {
                *expiry = at(now, after);
            }
        }
        Step::Pass(ms) => model.now += ms,
        Step::Sweep => {
            let next = keys.expire(now, usize::MAX);
            assert_eq!(keys.len(), model.live().len());
            let due = model.live().values().filter_map(|(_, expiry)| match expiry {
                Expiry::At(time) => Some(*time),
                Expiry::Never => None,
            });
            // A stale deadline may come first.
            assert!(next.is_none_or(|next| next > now));
            assert!(due.min().is_none_or(|due| next.is_some_and(|next| next <= due)));
        }
        Step::Clear => {
            drop(keys.clear());
            model.map.clear();
        }
    }
}

proptest! {
    #[test]
    fn it_behaves_like_a_map(steps in steps()) {
        let (mut keys, budget) = keyspace(1 << 20);
        let mut model = Model::default();
        for step in steps {
            compare(&mut model, &mut keys, step);
            let expiring = |(_, expiry): &&(Vec<u8>, Expiry)| *expiry != Expiry::Never;
            prop_assert!(keys.expiring() >= model.live().values().filter(expiring).count());
            prop_assert!(budget.used() <= budget.limit());
        }
        drop(keys);
        prop_assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_full_budget_refuses_new_values_and_keeps_the_old_ones() {
    let (mut keys, budget) = keyspace(64 * 1024);
    let key = |n: u32| n.to_le_bytes();
    let stored = (0..).take_while(|&n| set(&mut keys, &key(n), &[b'v'; 1000]) == Ok(true)).count();
    assert!(stored > 40, "{stored}");
    assert!(budget.used() <= budget.limit());
    assert_eq!(set(&mut keys, &key(0), &[b'w'; 1000]), Ok(true), "no larger than before");
    assert_eq!(set(&mut keys, &key(0), &[b'x'; 60_000]), Err(OutOfMemory));
    assert_eq!(keys.get(hash(&key(0)), &key(0), 0), Some(&[b'w'; 1000][..]));
    assert_eq!(keys.len(), stored);
    assert!(keys.remove(hash(&key(1)), &key(1), 0));
    assert_eq!(set(&mut keys, &key(1), &[b'v'; 1000]), Ok(true));
}

#[test]
fn a_shorter_value_releases_memory() {
    let (mut keys, budget) = keyspace(10 << 20);
    set(&mut keys, b"a", &vec![0; 1 << 20]).unwrap();
    set(&mut keys, b"a", b"short").unwrap();
    assert!(budget.used() < 64 * 1024, "{}", budget.used());
}

#[test]
fn a_key_that_is_set_repeatedly_leaves_few_stale_deadlines() {
    let (mut keys, budget) = keyspace(1 << 20);
    for now in 0..1_000_000 {
        let expiry = Expiry::At(now + 1_000_000);
        keys.set((0, b"a"), b"1", expiry, Condition::Always, now).unwrap();
    }
    assert_eq!(keys.expiring(), 1);
    assert!(budget.used() < 64 * 1024, "{}", budget.used());
}

#[test]
fn cleared_keys_release_their_memory_on_drop() {
    let (mut keys, budget) = keyspace(1 << 20);
    set(&mut keys, b"a", &[0; 1000]).unwrap();
    let old = keys.clear();
    assert!(keys.is_empty() && old.len() == 1);
    assert!(budget.used() > 1000);
    drop(old);
    assert_eq!(budget.used(), 0);
}

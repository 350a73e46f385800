//! A map over a slice on all CPUs, as rayon's `par_iter().map().collect()`: with `scope`, closures
//! borrow the input and the output.

use uwork::Queue;

/// `f` of each element. The pieces are small enough that a CPU that is done early takes more.
fn parallel_map<T, R, F>(queue: &Queue, input: &[T], f: F) -> Vec<R>
where
    T: Sync,
    R: Send,
    F: Fn(&T) -> R + Sync,
{
    let mut output: Vec<Option<R>> = input.iter().map(|_| None).collect();
    let pieces = 4 * queue.cpumask().len();
    let length = input.len().div_ceil(pieces).max(1);
    uwork::scope(queue, |scope| {
        for (from, to) in input.chunks(length).zip(output.chunks_mut(length)) {
            let f = &f;
            scope.spawn(move || {
                from.iter().zip(to).for_each(|(value, result)| *result = Some(f(value)));
            });
        }
    });
    output.into_iter().map(|result| result.expect("the scope has ended")).collect()
}

fn main() -> Result<(), uwork::Error> {
    let queue = Queue::builder("map").numbered().build()?;
    let numbers: Vec<u64> = (1..=100_000).collect();
    let steps = |&start: &u64| {
        let next = |n: &u64| Some(if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 });
        std::iter::successors(Some(start), next).take_while(|&n| n != 1).count()
    };
    let lengths = parallel_map(&queue, &numbers, steps);
    assert_eq!(lengths, numbers.iter().map(steps).collect::<Vec<_>>());
    assert!(parallel_map(&queue, &[], steps).is_empty());
    println!("the longest sequence has {} steps", lengths.iter().max().unwrap());
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}

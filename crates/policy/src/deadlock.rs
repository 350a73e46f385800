//! Which runs of items wait for each other, and which of them can never continue.
//!
//! The nodes are runs of items, by index. Each node either can continue by itself, as far as is
//! known, or waits until one of several others has ended. Example: an item that waits for a permit
//! of a queue gets it from the permit holder that ends first.

/// Which nodes can never continue. `waits[n]` lists the nodes of which one must end before `n`
/// continues. An empty list means that `n` continues by itself.
/// ```
/// use uwork_policy::deadlock::stuck;
/// // 0 and 1 wait for each other, 2 for one of them; 3 waits for 4, which goes on.
/// let waits = [vec![1], vec![0], vec![0, 1], vec![4], vec![]];
/// assert_eq!(stuck(&waits), [true, true, true, false, false]);
/// // One way out is enough.
/// assert_eq!(stuck(&[vec![1], vec![0, 2], vec![]]), [false; 3]);
/// ```
///
/// # Panics
/// If `waits` names a node that does not exist.
pub fn stuck(waits: &[Vec<usize>]) -> Vec<bool> {
    let mut waiters = vec![Vec::new(); waits.len()];
    for (node, ways) in waits.iter().enumerate() {
        ways.iter().for_each(|&way| waiters[way].push(node));
    }
    let mut stuck = vec![true; waits.len()];
    let mut ending: Vec<usize> = (0..waits.len()).filter(|&node| waits[node].is_empty()).collect();
    while let Some(node) = ending.pop() {
        if std::mem::replace(&mut stuck[node], false) {
            ending.extend(waiters[node].iter().filter(|&&waiter| stuck[waiter]));
        }
    }
    stuck
}

/// The cycle of nodes that `node` waits for, or belongs to, if it can never continue. Each node
/// waits for the next one, and the last for the first. The cycle begins with its lowest node.
/// ```
/// use uwork_policy::deadlock::cycle;
/// let waits = [vec![1], vec![2], vec![1], vec![]];
/// assert_eq!(cycle(&waits, 0), Some(vec![1, 2]));
/// assert_eq!(cycle(&waits, 3), None);
/// ```
///
/// # Panics
/// If `waits` names a node that does not exist.
pub fn cycle(waits: &[Vec<usize>], node: usize) -> Option<Vec<usize>> {
    if !stuck(waits)[node] {
        return None;
    }
    // A stuck node waits for stuck nodes only, so following the first of them ends in a cycle.
    let (mut path, mut at) = (Vec::new(), node);
    let begin = loop {
        if let Some(begin) = path.iter().position(|&seen| seen == at) {
            break begin;
        }
        path.push(at);
        at = *waits[at].first()?;
    };
    let mut cycle = path.split_off(begin);
    let lowest = (0..cycle.len()).min_by_key(|&at| cycle[at])?;
    cycle.rotate_left(lowest);
    Some(cycle)
}

/// The nodes that `node` waits for, those that these wait for, and so on. `ways` is called once for
/// each of them. The lists of all other nodes stay empty.
/// ```
/// use uwork_policy::deadlock::{behind, is_waited_for};
/// let waits = [vec![1], vec![2], vec![1], vec![0]];
/// let found = behind(4, 0, |node| waits[node].clone());
/// assert_eq!(found, [vec![1], vec![2], vec![1], vec![]]);
/// assert!(!is_waited_for(&found, 0));
/// assert!(is_waited_for(&behind(4, 1, |node| waits[node].clone()), 1));
/// ```
///
/// # Panics
/// If `ways` returns a node that does not exist.
pub fn behind(
    nodes: usize,
    node: usize,
    mut ways: impl FnMut(usize) -> Vec<usize>,
) -> Vec<Vec<usize>> {
    let (mut waits, mut seen) = (vec![Vec::new(); nodes], vec![false; nodes]);
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut seen[node], true) {
            waits[node] = ways(node);
            open.extend(&waits[node]);
        }
    }
    waits
}

/// Whether any of these nodes waits for `node`. Applied to the result of [`behind`] for the same
/// node, it tells whether the node may wait for itself.
pub fn is_waited_for(waits: &[Vec<usize>], node: usize) -> bool {
    waits.iter().any(|ways| ways.contains(&node))
}

//! Who waits for whom, and who of them waits for ever.
//!
//! The nodes are runs of items, by their indices. Each either goes on by itself, as far as is known, or
//! waits until one of several others has ended: an item that waits for a place in a queue is served by
//! whichever of those who have one ends first.

/// Which nodes can never go on. `waits[n]` are the nodes of which one must end before `n` goes on; none:
/// it goes on by itself.
///
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
/// If a node is named that is not there.
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

/// The cycle of nodes that `node` waits for, or is in, if it can never go on: each waits for the next
/// one, and the last for the first. It begins with its lowest node.
///
/// ```
/// use uwork_policy::deadlock::cycle;
/// let waits = [vec![1], vec![2], vec![1], vec![]];
/// assert_eq!(cycle(&waits, 0), Some(vec![1, 2]));
/// assert_eq!(cycle(&waits, 3), None);
/// ```
///
/// # Panics
/// If a node is named that is not there.
pub fn cycle(waits: &[Vec<usize>], node: usize) -> Option<Vec<usize>> {
    if !stuck(waits)[node] {
        return None;
    }
    // Whoever is stuck has ways only to others that are.
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

/// What `node` waits for, and what those wait for, and so on: `ways` is asked once for each of them. Nothing is
/// said of the other nodes.
///
/// ```
/// use uwork_policy::deadlock::{behind, is_among};
/// let waits = [vec![1], vec![2], vec![1], vec![0]];
/// let found = behind(4, 0, |node| waits[node].clone());
/// assert_eq!(found, [vec![1], vec![2], vec![1], vec![]]);
/// assert!(!is_among(&found, 0));
/// assert!(is_among(&behind(4, 1, |node| waits[node].clone()), 1));
/// ```
///
/// # Panics
/// If a node is named that is not there.
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

/// Whether `node` is among what any of these wait for. Of what [`behind`] has found for it: whether it may wait
/// for itself.
pub fn is_among(waits: &[Vec<usize>], node: usize) -> bool {
    waits.iter().any(|ways| ways.contains(&node))
}

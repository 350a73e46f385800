//! Shrinks a script that fails.

use crate::script::{Script, Step};

/// The smallest script that was found for which `fails` is still true, after at most `tries` trials.
///
/// It removes halves, quarters and so on of the threads, the steps and the items, sets faults to
/// zero, and repeats until nothing more can go.
pub fn shrink(script: &Script, tries: usize, mut fails: impl FnMut(&Script) -> bool) -> Script {
    let mut search = Search { best: script.clone(), left: tries, fails: &mut fails };
    loop {
        let before = search.best.clone();
        search.faults();
        search.threads();
        let unused = without_unused(&search.best);
        search.attempt(unused);
        search.steps_of_items();
        if search.best == before || search.left == 0 {
            return search.best;
        }
    }
}

/// A search for a smaller script.
struct Search<'a> {
    /// The smallest script so far that fails.
    best: Script,
    /// Trials that are left.
    left: usize,
    fails: &'a mut dyn FnMut(&Script) -> bool,
}

impl Search<'_> {
    /// Tries the best script with a change. Returns whether it still fails; then it is the best.
    fn change(&mut self, change: impl FnOnce(&mut Script)) -> bool {
        let mut candidate = self.best.clone();
        change(&mut candidate);
        self.attempt(candidate)
    }

    fn attempt(&mut self, candidate: Script) -> bool {
        if self.left == 0 || candidate == self.best {
            return false;
        }
        self.left -= 1;
        let found = (self.fails)(&candidate);
        if found {
            self.best = candidate;
        }
        found
    }

    fn faults(&mut self) {
        let names: Vec<&str> = self.best.faults.all().iter().map(|fault| fault.0).collect();
        for name in names {
            self.change(|script| {
                script.faults.set(name, 0);
            });
        }
    }

    fn threads(&mut self) {
        for thread in (0..self.best.threads.len()).rev() {
            self.change(|script| {
                script.threads.remove(thread);
            });
        }
        for thread in 0..self.best.threads.len() {
            let mut size = self.best.threads[thread].len();
            while size > 0 {
                let mut at = 0;
                while at < self.best.threads[thread].len() {
                    let shorter = self.change(|script| {
                        let steps = &mut script.threads[thread];
                        let _ = steps.drain(at..(at + size).min(steps.len()));
                    });
                    if !shorter {
                        at += size;
                    }
                }
                size /= 2;
            }
        }
    }

    fn steps_of_items(&mut self) {
        for item in 0..self.best.items.len() {
            for step in (0..self.best.items[item].steps.len()).rev() {
                self.change(|script| {
                    let _ = script.items[item].steps.remove(step);
                });
            }
        }
    }
}

/// The script without the items and queues that no step can reach.
fn without_unused(script: &Script) -> Script {
    let mut used = vec![false; script.items.len()];
    let mut open: Vec<usize> = script.threads.iter().flatten().filter_map(Step::item).collect();
    while let Some(item) = open.pop() {
        if !std::mem::replace(&mut used[item], true) {
            open.extend(script.items[item].steps.iter().filter_map(Step::item));
        }
    }
    let mut queues = vec![false; script.queues.len()];
    let kept = |&item: &usize| used[item];
    (0..used.len()).filter(kept).for_each(|item| queues[script.items[item].queue] = true);
    let rank = |kept: &[bool], at: usize| kept[..at].iter().filter(|&&kept| kept).count();
    let mut result = script.clone();
    let mut keep = used.iter();
    result.items.retain(|_| *keep.next().expect("as many"));
    let mut keep = queues.iter();
    result.queues.retain(|_| *keep.next().expect("as many"));
    for item in &mut result.items {
        item.queue = rank(&queues, item.queue);
    }
    let items = result.items.iter_mut().map(|item| &mut item.steps);
    for step in items.chain(&mut result.threads).flatten() {
        match step {
            Step::Queue(item, _)
            | Step::Arm(item, _)
            | Step::Fork(item, _)
            | Step::Flush(item)
            | Step::Cancel(item)
            | Step::CancelSync(item) => *item = rank(&used, *item),
            _ => {}
        }
    }
    result
}

/// The script as a test of the engine.
#[must_use]
pub fn as_test(script: &Script, name: &str) -> String {
    let text: String = script.to_string().lines().map(|line| format!("        {line}\n")).collect();
    format!(
        "#[test]\nfn {name}() {{\n    uwork_sim::assert_holds(\n        \"\\\n{text}        \",\n    );\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::parse;

    #[test]
    fn a_script_shrinks_to_the_step_that_fails() {
        let text = "fault preempt 40\nqueue p percpu\nqueue u unbound\nitem a p: burn 1us\n\
            item b u: burn 1us; panic; sleep 1us\nitem c u: burn 2us\n\
            thread: queue a; queue c; queue b; flush b\nthread: queue a; doze 5us\n";
        let script = parse(text).unwrap();
        let fails = |script: &Script| {
            let panics = |item: usize| script.items[item].steps.contains(&Step::Panic);
            let mut steps = script.threads.iter().flatten();
            steps.any(|step| matches!(step, Step::Queue(item, _) if panics(*item)))
        };
        let small = shrink(&script, 1_000, fails).to_string();
        assert_eq!(
            small,
            "machine core:4\nseed 0\nqueue u unbound\nitem b u: panic\nthread: queue b\n"
        );
    }

    #[test]
    fn the_test_that_is_printed_reads_as_the_same_script() {
        let script = parse("queue p percpu\nitem a p: burn 1us\nthread: queue a\n").unwrap();
        let test = as_test(&script, "seed_0");
        let text = test.split('"').nth(1).unwrap().trim_start_matches('\\');
        assert_eq!(parse(text).unwrap(), script);
    }
}

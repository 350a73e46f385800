//! Reads scripts. Items may be named before their line, so the names are resolved at the end.

use std::fmt;
use std::str::FromStr;

use uwork_policy::cpuset::{CpuSet, MAX_CPUS};
use uwork_policy::flags::Flags;

use super::print::{FLAGS, KINDS};
use super::{BOUND_NS, Faults, ItemLine, QueueKind, QueueLine, Script, Step, TIME_NS_MAX};
use crate::machines;

/// The limit of counts in a script.
const COUNT_MAX: u64 = 100_000;

/// A script has an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ScriptError {}

/// The steps of a line, which begin in the line of that number.
type Raw<'a> = (usize, &'a str);

#[derive(Default)]
struct Reader<'a> {
    machine: Option<(usize, String)>,
    seed: u64,
    bound_ns: Option<u64>,
    faults: Faults,
    queues: Vec<QueueLine>,
    items: Vec<(String, usize, Raw<'a>)>,
    threads: Vec<Raw<'a>>,
}

/// Reads a script.
///
/// # Errors
/// The first line that is wrong, and why.
///
/// ```
/// let script = uwork_sim::script::parse("queue q percpu\nitem a q: burn 5us\nthread: queue a\n");
/// assert_eq!(script.unwrap().items[0].name, "a");
/// let error = uwork_sim::script::parse("queue q percpu\nthread: queue b\n").unwrap_err();
/// assert_eq!(error.line, 2);
/// ```
pub fn parse(text: &str) -> Result<Script, ScriptError> {
    let mut reader = Reader::default();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let wrong = |message| ScriptError { line: at + 1, message };
            reader.read(at + 1, line).map_err(wrong)?;
        }
    }
    reader.finish()
}

fn number<T: FromStr>(what: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is no {what}: a number is wanted"))
}

fn count(what: &str, text: &str) -> Result<u64, String> {
    match number(what, text)? {
        count @ 1..=COUNT_MAX => Ok(count),
        other => Err(format!("{what}: {other} (allowed: 1 to {COUNT_MAX})")),
    }
}

fn time(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no time (such as 250ns, 5us, 10ms, 1s; at most 3600s)");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let unit = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let ns = text[..digits].parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    ns.filter(|&ns| ns <= TIME_NS_MAX).ok_or_else(wrong)
}

fn cpu(text: &str) -> Result<u32, String> {
    match number("CPU", text)? {
        cpu @ 0..MAX_CPUS => Ok(cpu),
        other => Err(format!("CPU {other} (allowed: 0 to {})", MAX_CPUS - 1)),
    }
}

fn cpu_set(text: &str) -> Result<CpuSet, String> {
    let cpus: CpuSet = text.parse().map_err(|error| format!("cpus '{text}': {error}"))?;
    if cpus.is_empty() { Err("cpus: no CPU is named".to_owned()) } else { Ok(cpus) }
}

impl<'a> Reader<'a> {
    fn read(&mut self, at: usize, line: &'a str) -> Result<(), String> {
        let (word, rest) = line.split_once([' ', ':']).unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "machine" => {
                machines::machine(rest).map_err(|error| error.to_string())?;
                self.machine = Some((at, rest.to_owned()));
            }
            "seed" => self.seed = number("seed", rest)?,
            "bound" => match time(rest)? {
                0 => return Err("bound: 0 (allowed: from 1ns to 3600s)".to_owned()),
                ns => self.bound_ns = Some(ns),
            },
            "fault" => self.fault(rest)?,
            "queue" => self.queue(rest)?,
            "item" => self.item(at, rest)?,
            "thread" => self.threads.push((at, rest)),
            _ => {
                return Err(format!(
                    "'{word}' (allowed: machine, seed, bound, fault, queue, item, thread)"
                ));
            }
        }
        Ok(())
    }

    fn fault(&mut self, rest: &str) -> Result<(), String> {
        let (name, value) = rest.split_once(' ').ok_or("fault: a name and a value are wanted")?;
        let value = number("value of a fault", value.trim())?;
        let Some(allowed) = Faults::values(name) else {
            let names: Vec<&str> = Faults::NAMES.iter().map(|known| known.0).collect();
            return Err(format!("fault '{name}' (allowed: {})", names.join(", ")));
        };
        if value != 0 && !allowed.contains(&value) {
            let (least, most) = (allowed.start(), allowed.end());
            return Err(format!("fault {name}: {value} (allowed: 0, and {least} to {most})"));
        }
        self.faults.set(name, value);
        Ok(())
    }

    fn queue(&mut self, rest: &str) -> Result<(), String> {
        let mut words = rest.split_whitespace();
        let (Some(name), Some(kind)) = (words.next(), words.next()) else {
            return Err("queue: a name and a kind are wanted".to_owned());
        };
        if self.queues.iter().any(|queue| queue.name == name) {
            return Err(format!("queue '{name}' exists already"));
        }
        let Some(&(_, kind)) = KINDS.iter().find(|known| known.0 == kind) else {
            let kinds: Vec<&str> = KINDS.iter().map(|known| known.0).collect();
            return Err(format!("queue kind '{kind}' (allowed: {})", kinds.join(", ")));
        };
        let mut queue = QueueLine {
            name: name.to_owned(),
            kind,
            flags: Flags::empty(),
            max_active: None,
            scope: None,
            strict: false,
            cpus: None,
        };
        for word in words {
            attribute(&mut queue, word)?;
        }
        self.queues.push(queue);
        Ok(())
    }

    fn item(&mut self, at: usize, rest: &'a str) -> Result<(), String> {
        let (head, steps) = rest.split_once(':').ok_or("item: ':' and the steps are missing")?;
        let mut words = head.split_whitespace();
        let (Some(name), Some(queue), None) = (words.next(), words.next(), words.next()) else {
            return Err("item: a name, a queue and ':' are wanted".to_owned());
        };
        if self.items.iter().any(|item| item.0 == name) {
            return Err(format!("item '{name}' exists already"));
        }
        let queue = self.queues.iter().position(|known| known.name == queue);
        let queue = queue.ok_or_else(|| format!("item '{name}': its queue has no line above"))?;
        self.items.push((name.to_owned(), queue, (at, steps)));
        Ok(())
    }

    fn steps(&self, (line, text): Raw<'_>, queue: Option<usize>) -> Result<Vec<Step>, ScriptError> {
        let texts = text.split(';').map(str::trim).filter(|step| !step.is_empty());
        let steps = texts.map(|text| self.step(text, queue));
        steps.collect::<Result<_, _>>().map_err(|message| ScriptError { line, message })
    }

    /// A step of an item of that queue, or of a thread.
    fn step(&self, text: &str, queue: Option<usize>) -> Result<Step, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let item = |name: &str| {
            let at = self.items.iter().position(|item| item.0 == name);
            at.ok_or_else(|| format!("'{text}': there is no item '{name}'"))
        };
        let step = match words[..] {
            ["burn", ns] => Step::Burn(time(ns)?),
            ["sleep", ns] => Step::Sleep(time(ns)?),
            ["doze", ns] => Step::Doze(time(ns)?),
            ["lock", name, ns] => Step::Lock(name.to_owned(), time(ns)?),
            ["queue", name] => Step::Queue(item(name)?, None),
            ["queue", name, on] => Step::Queue(item(name)?, Some(cpu(on)?)),
            ["arm", name, ns] => Step::Arm(item(name)?, time(ns)?),
            ["requeue", times] => Step::Requeue(count("requeue", times)?),
            ["fork", name, copies] => Step::Fork(item(name)?, count("fork", copies)?),
            ["flush", name] => Step::Flush(item(name)?),
            ["cancel", name] => Step::Cancel(item(name)?),
            ["cancel_sync", name] => Step::CancelSync(item(name)?),
            ["free"] => Step::Free,
            ["panic"] => Step::Panic,
            ["cpus", "all"] => Step::Cpus(None),
            ["cpus", cpus] => Step::Cpus(Some(cpu_set(cpus)?)),
            _ => {
                return Err(format!(
                    "step '{text}' (allowed: burn, sleep, doze TIME; lock NAME TIME; \
                     queue ITEM [CPU]; arm ITEM TIME; requeue TIMES; fork ITEM COPIES; \
                     flush, cancel, cancel_sync ITEM; free; panic; cpus LIST|all)"
                ));
            }
        };
        let for_items = matches!(step, Step::Requeue(_) | Step::Free | Step::Panic);
        match queue {
            None if for_items => Err(format!("step '{text}' is for items, not for threads")),
            Some(_) if matches!(step, Step::Cpus(_)) => {
                Err(format!("step '{text}' is for threads, not for items"))
            }
            Some(queue) if self.queues[queue].kind == QueueKind::Bh && step.may_block() => {
                Err(format!("step '{text}': items of a BH queue must not wait"))
            }
            _ => Ok(step),
        }
    }

    fn finish(self) -> Result<Script, ScriptError> {
        let mut items = Vec::new();
        for (name, queue, raw) in &self.items {
            let steps = self.steps(*raw, Some(*queue))?;
            items.push(ItemLine { name: name.clone(), queue: *queue, steps });
        }
        let threads: Result<_, _> = self.threads.iter().map(|raw| self.steps(*raw, None)).collect();
        let machine = self.machine.map_or_else(|| "core:4".to_owned(), |(_, machine)| machine);
        Ok(Script {
            machine,
            seed: self.seed,
            bound_ns: self.bound_ns.unwrap_or(BOUND_NS),
            faults: self.faults,
            queues: self.queues,
            items,
            threads: threads?,
        })
    }
}

fn attribute(queue: &mut QueueLine, word: &str) -> Result<(), String> {
    let unbound = queue.kind == QueueKind::Unbound;
    let only_for = |allowed: bool, kinds: &str| {
        if allowed { Ok(()) } else { Err(format!("'{word}' is for {kinds} queues")) }
    };
    if let Some((_, flag)) = FLAGS.iter().find(|known| known.0 == word) {
        only_for(queue.kind == QueueKind::PerCpu || (unbound && word == "reclaim"), "per-CPU")?;
        queue.flags |= *flag;
        return Ok(());
    }
    match word.split_once('=') {
        Some(("max_active", max)) => {
            only_for(unbound || queue.kind == QueueKind::PerCpu, "per-CPU and unbound")?;
            queue.max_active = Some(match number("max_active", max)? {
                max @ 1..=uwork_engine::MAX_ACTIVE_LIMIT => max,
                other => {
                    let limit = uwork_engine::MAX_ACTIVE_LIMIT;
                    return Err(format!("max_active: {other} (allowed: 1 to {limit})"));
                }
            });
        }
        Some(("scope", scope)) => {
            only_for(unbound, "unbound")?;
            let parsed = scope.parse().map_err(|error| format!("scope '{scope}': {error}"))?;
            queue.scope = Some(parsed);
        }
        Some(("cpus", cpus)) => {
            only_for(unbound, "unbound")?;
            queue.cpus = Some(cpu_set(cpus)?);
        }
        None if word == "strict" => {
            only_for(unbound, "unbound")?;
            queue.strict = true;
        }
        _ => {
            return Err(format!(
                "'{word}' (allowed: highpri, intensive, reclaim, max_active=N, scope=S, strict, cpus=LIST)"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "machine llc:2 core:2\nseed 7\nbound 2s\nfault preempt 40\n\
        queue p percpu highpri max_active=2\nqueue u unbound scope=cache strict cpus=0-1\n\
        queue b bh\nitem a p: burn 5us; queue c 1; requeue 2; fork c 3\n\
        item c u: lock l 10us; sleep 1ms; doze 250ns; free\nitem d b: burn 1us\n\
        thread: queue a; arm c 1ms; flush a; cancel c; cancel_sync a; cpus 0; cpus all\n";

    #[test]
    fn a_script_survives_printing_and_reading() {
        let script = parse(TEXT).unwrap();
        assert_eq!(script.to_string(), TEXT);
        assert_eq!(parse(&script.to_string()).unwrap(), script);
    }

    #[test]
    fn an_error_names_its_line_and_what_is_allowed() {
        let cases = [
            ("queue q percpu\n\nitem a q: burn 5", 3, "no time"),
            ("queue q round", 1, "allowed: percpu, unbound"),
            ("# text\nmachine core:0", 2, "core:0"),
            ("queue q bh\nitem a q: sleep 1us", 2, "must not wait"),
            ("queue q percpu\nthread: queue a", 2, "no item 'a'"),
            ("queue q percpu scope=cache", 1, "is for unbound queues"),
            ("queue q percpu max_active=0", 1, "allowed: 1 to"),
            ("thread: requeue 2", 1, "for items"),
            ("fault rain 3", 1, "allowed: order"),
            ("fault preempt 1", 1, "allowed: 0, and 2 to"),
            ("fault order 2", 1, "allowed: 0, and 1 to 1"),
            ("seed 1\nfault wake_ns 18446744073709551615", 2, "to 3600000000000"),
            ("bound 0s", 1, "from 1ns"),
            ("machine this", 1, "presets: desktop12"),
            ("queue q percpu\nitem a q:\nthread: queue a 99999", 3, "CPU 99999 (allowed: 0 to"),
            ("item a q: burn 1us", 1, "no line above"),
            ("queue q percpu\nitem a q: requeue 0", 2, "allowed: 1 to"),
            ("hello", 1, "allowed: machine"),
        ];
        for (text, line, part) in cases {
            let error = parse(text).expect_err(text);
            assert_eq!(error.line, line, "{text}");
            assert!(error.message.contains(part), "{text}: {error}");
        }
    }
}

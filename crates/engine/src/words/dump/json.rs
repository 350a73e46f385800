//! A dump as JSON: the fields of its structures.

use std::fmt::{Display, Write as _};

use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use super::{
    ArmedItem, BlockingDump, Dump, Function, Gate, ItemDump, Items, MachineDump, NodeDump,
    PoolDump, PwqDump, QueueDump, RescuerDump, RunningInfo, ScopeDump, WorkerDump, WorkerState,
};

impl Dump {
    /// The dump as a JSON object, without a newline. Fields have the names of these structures; sets
    /// of CPUs, flags, scopes and states are strings, as the text has them. The histograms of a pwq
    /// are left out.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }
}

/// A value that can be written as JSON.
trait Json {
    fn write(&self, out: &mut String);
}

/// Implements [`Json`] for structures, as objects. Every field is named, in the one list or in the
/// other, so a new field does not compile until it is in one of them.
macro_rules! objects {
    ($($type:ident { $first:ident $(, $field:ident)* } without { $($hidden:ident),* })*) => {$(
        impl Json for $type {
            fn write(&self, out: &mut String) {
                let $type { $first, $($field,)* $($hidden: _,)* } = self;
                out.push_str(concat!("{\"", stringify!($first), "\":"));
                $first.write(out);
                $(
                    out.push_str(concat!(",\"", stringify!($field), "\":"));
                    $field.write(out);
                )*
                out.push('}');
            }
        }
    )*};
}

objects! {
    Dump { at_ns, machine, blocking, scopes, pools, helpers, queues } without {}
    MachineDump { allowed, unbound, isolated, default_scope } without {}
    BlockingDump { tier, reason } without {}
    ScopeDump { scope, nr_pods, pod_cpus, cpu_pod, pod_node } without {}
    PoolDump {
        id, cpus, nice, actual_nice, target, nr_workers, workers_max, nr_running, nr_idle, waking,
        retired, displaced, nr_ready, ready, next_timer_ns, nr_armed, armed, workers
    } without {}
    WorkerDump { thread, thread_id, slot, state, sleeps, running, scheduled, deferred } without {}
    RunningInfo { run, batch_began_ns, pwq, queue, item, function, description } without {}
    Function { address, name } without {}
    Items { total, first } without {}
    ItemDump { address, function } without {}
    ArmedItem { item, deadline_ns, cpu, queue } without {}
    QueueDump {
        name, flags, kind, nice, strict, scope, cpus, max_active, min_active, nodes, rescuer, frozen,
        paused, gate, flushers, pwqs, slots
    } without {}
    NodeDump { node, nr, max, waiting } without {}
    RescuerDump { slot, thread_id, running } without {}
    PwqDump {
        id, pool, nr_active, max_active, ready, saturated, pending, in_flight, colour, awaited,
        item_ns, started, ran, busy_ns, cpu_ns, hogs, replaced, stolen, maydays, rescued
    } without { runs, waits }
}

/// Implements [`Json`] for values whose text is JSON.
macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Json for $type {
            fn write(&self, out: &mut String) {
                // Writing to a string does not fail.
                let _ = write!(out, "{self}");
            }
        }
    )*};
}

plain!(bool, i32, u32, u64, usize);

/// Implements [`Json`] for values that are strings in JSON.
macro_rules! strings {
    ($($type:ty),*) => {$(
        impl Json for $type {
            fn write(&self, out: &mut String) {
                string(self, out);
            }
        }
    )*};
}

strings!(String, &str, CpuSet, AffinityScope, Tier, Flags, WorkerState);

fn string(value: &impl Display, out: &mut String) {
    out.push('"');
    for c in value.to_string().chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
}

impl Json for Gate {
    fn write(&self, out: &mut String) {
        string(&format!("{self:?}").to_lowercase(), out);
    }
}

impl<T: Json> Json for Option<T> {
    fn write(&self, out: &mut String) {
        match self {
            Some(value) => value.write(out),
            None => out.push_str("null"),
        }
    }
}

impl<T: Json> Json for Vec<T> {
    fn write(&self, out: &mut String) {
        out.push('[');
        for (place, value) in self.iter().enumerate() {
            if place > 0 {
                out.push(',');
            }
            value.write(out);
        }
        out.push(']');
    }
}

impl<A: Json, B: Json> Json for (A, B) {
    fn write(&self, out: &mut String) {
        out.push('[');
        self.0.write(out);
        out.push(',');
        self.1.write(out);
        out.push(']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &impl Json) -> String {
        let mut out = String::new();
        value.write(&mut out);
        out
    }

    #[test]
    fn names_with_quotes_and_control_characters_are_escaped() {
        assert_eq!(json(&"a\"b\\c\n\u{1b}\u{9b}é"), "\"a\\\"b\\\\c\\u000a\\u001b\\u009bé\"");
    }

    #[test]
    fn lists_and_missing_values_have_their_forms() {
        assert_eq!(json(&vec![(1_u32, 2_usize), (3, 4)]), "[[1,2],[3,4]]");
        assert_eq!(json(&vec![Some(1_u32), None]), "[1,null]");
        assert_eq!(json(&Vec::<u32>::new()), "[]");
        let function = Function { address: 16, name: None };
        assert_eq!(json(&function), r#"{"address":16,"name":null}"#);
    }
}

//! What is known of an attribute: one definition each, from which paths, values, checks, errors and
//! descriptions come.

use uwork_engine::QueueError;

/// The type of an attribute's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueType {
    /// 0 and 1, or `N` and `Y` as the kernel has it for that attribute.
    Switch,
    /// A decimal number.
    Number,
    /// A number of seconds, with up to nine decimals.
    Seconds,
    /// A set of CPUs, hexadecimal.
    CpuMask,
    /// The name of an affinity scope.
    Scope,
}

impl ValueType {
    /// Its name in the output of [`describe`](super::describe).
    pub(super) fn name(self) -> &'static str {
        match self {
            ValueType::Switch => "switch",
            ValueType::Number => "number",
            ValueType::Seconds => "seconds",
            ValueType::CpuMask => "cpumask",
            ValueType::Scope => "scope",
        }
    }
}

/// The outcome of a write. `Err(None)`: the text is not a value of the attribute.
pub(super) type Written = Result<(), Option<QueueError>>;

/// An attribute of a `T`.
pub(super) struct Definition<T: 'static> {
    /// The folder of the tree, for attributes that belong to no queue.
    pub(super) folder: &'static str,
    pub(super) name: &'static str,
    pub(super) value_type: ValueType,
    /// The unit of its values; empty for plain ones.
    pub(super) unit: &'static str,
    /// What it does, in one sentence.
    pub(super) doc: &'static str,
    /// The permitted values.
    pub(super) allowed: fn() -> String,
    /// The value. None if this `T` does not have the attribute.
    pub(super) get: fn(&T) -> Option<String>,
    /// Changes the value. None if it can only be read.
    pub(super) set: Option<fn(&T, &str) -> Written>,
}

//! The affinity scope as a value on the command line: help and completions list the names.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

/// Parses `default`, or the name of a scope.
pub(crate) fn parser() -> impl TypedValueParser<Value = AffinityScopeChoice> {
    let names = std::iter::once("default").chain(AffinityScope::ALL.map(AffinityScope::name));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<AffinityScopeChoice>())
}

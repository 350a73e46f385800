//! The pods of the affinity scopes: a table of all scopes, or the list of one scope.

use std::fmt::Write as _;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice, Pods};

use super::View;
use super::draw::shortened;

/// If a scope has more pods than this, the table leaves out the middle ones.
const MAX_PODS: usize = 8;

/// All scopes, finest first, and the scope that `default` resolves to.
pub(super) fn table(view: &View) -> String {
    let mut text = format!("{:<13}{:>5}  {:<10}pods\n", "scope", "pods", "CPUs each");
    for scope in AffinityScope::ALL {
        let pods = Pods::of(view.source.topology(), scope, view.shard_size);
        let lists = pods.pods().iter().map(CpuSet::to_string).collect();
        let count = pods.pods().len();
        let _ = writeln!(
            text,
            "{scope:<13}{count:>5}  {:<10}{}",
            sizes(&pods),
            shortened(lists, MAX_PODS)
        );
    }
    let _ = write!(
        text,
        "\nA queue that names no scope uses: {}",
        view.effective(AffinityScopeChoice::Default)
    );
    text
}

fn sizes(pods: &Pods) -> String {
    let sizes = pods.pods().iter().map(CpuSet::len);
    match (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0)) {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least}-{most}"),
    }
}

/// Every pod of one scope, and the part of it that unbound queues use if that is not the whole pod.
pub(super) fn one(view: &View, choice: AffinityScopeChoice) -> String {
    let effective = view.effective(choice);
    let pods = Pods::of(view.source.topology(), effective.effective, view.shard_size);
    let count = pods.pods().len();
    let mut text = format!("{effective}: {count} pod{}\n", if count == 1 { "" } else { "s" });
    for (index, pod) in pods.pods().iter().enumerate() {
        let used = pod.and(&view.unbound);
        let remark = match (used.is_empty(), used == *pod) {
            (true, _) => "  (not used)".to_owned(),
            (_, true) => String::new(),
            _ => format!("  (used: {used})"),
        };
        let _ = writeln!(text, "{index:>5}  {pod}{remark}");
    }
    text
}

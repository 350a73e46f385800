//! Control groups of the tests. A test is skipped where the system refuses them.

use std::fs;
use std::path::{Path, PathBuf};

use super::until;

/// A control group below the root, removed on drop.
pub(crate) struct Group(pub(crate) PathBuf);

impl Group {
    pub(crate) fn new(controller: &str) -> Result<Group, String> {
        let root = Path::new("/sys/fs/cgroup");
        let version1 = root.join(controller);
        let enabled = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
        let parent = match () {
            () if version1.join("cgroup.procs").exists() => version1,
            () if enabled.split_whitespace().any(|name| name == controller) => root.to_owned(),
            () => return Err(format!("no {controller} controller for groups below {root:?}")),
        };
        let group = parent.join(format!("uwork-test-{}-{controller}", std::process::id()));
        fs::create_dir(&group).map_err(|error| format!("{group:?}: {error}"))?;
        Ok(Group(group))
    }

    /// A group in this one, for the controller `cpu`.
    pub(crate) fn nested(&self) -> Result<Group, String> {
        if self.0.join("cgroup.subtree_control").exists() {
            self.set(&["cgroup.subtree_control"], "+cpu")?;
        }
        let group = self.0.join("nested");
        fs::create_dir(&group).map_err(|error| format!("{group:?}: {error}"))?;
        Ok(Group(group))
    }

    /// Writes the first of these files that exists.
    pub(crate) fn set(&self, names: &[&str], value: &str) -> Result<(), String> {
        let there = names.iter().map(|name| self.0.join(name)).find(|path| path.exists());
        let path = there.ok_or_else(|| format!("{names:?}: not in {:?}", self.0))?;
        fs::write(&path, value).map_err(|error| format!("{path:?} = {value:?}: {error}"))
    }

    pub(crate) fn add(&self, pid: u32) -> Result<(), String> {
        self.set(&["cgroup.procs"], &pid.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The caller may be in the group itself. Other processes in it have been waited for; their
        // last thread may still be exiting.
        let parent = self.0.parent().expect("a group below the root");
        let own = format!("/proc/{}/cgroup", std::process::id());
        let name = self.0.file_name().and_then(|name| name.to_str()).expect("a name");
        if fs::read_to_string(own).is_ok_and(|groups| groups.contains(name)) {
            let _ = fs::write(parent.join("cgroup.procs"), std::process::id().to_string());
        }
        until("the group is empty", || fs::remove_dir(&self.0).is_ok());
    }
}

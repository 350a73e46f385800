//! The limits that control groups, version 1, version 2 or both, set for this process: CPUs, CPU
//! time and threads.

use uwork_policy::cpuset::CpuSet;

use super::files::Files;
use super::quota::Quota;

#[derive(Default)]
pub(super) struct Groups {
    pub(super) cpuset: Option<CpuSet>,
    pub(super) quota: Option<Quota>,
    /// CPUs of isolated partitions.
    pub(super) isolated: CpuSet,
    /// The files with that information.
    pub(super) files: Vec<String>,
    /// The maximum number of threads in the group.
    pub(super) pids_max: Option<u64>,
}

pub(super) fn read(files: &mut Files<'_>) -> Groups {
    let mut groups = Groups::default();
    let Some(memberships) = own(files, "cgroup") else {
        return groups;
    };
    let mounts = own(files, "mountinfo").unwrap_or_default();
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    let _ = files.take_consulted();
    let mut with_pids = Vec::new();
    let mut cpuset_folders = Vec::new();
    for membership in memberships.lines().filter_map(Membership::parse) {
        // A hierarchy may be mounted several times; a mount that shows the group itself is
        // preferred.
        let serving: Vec<&Mount> =
            mounts.iter().filter(|mount| mount.serves(&membership)).collect();
        let showing = serving.iter().find(|mount| mount.below(membership.path).is_some());
        let Some(mount) = showing.or(serving.first()) else {
            continue;
        };
        let folders = mount.folders(membership.path);
        if membership.has("cpuset") {
            // Not the intersection: a partition's CPUs are taken out of its parent's effective
            // set, so only the nearest group that has the file is accurate.
            let names = match mount.version2 {
                true => &["cpuset.cpus.effective"][..],
                false => &["cpuset.effective_cpus", "cpuset.cpus"],
            };
            let paths = folders
                .iter()
                .flat_map(|folder| names.iter().map(move |name| format!("{folder}/{name}")));
            let nearest = paths.filter_map(|path| files.cpus(&path)).find(|cpus| !cpus.is_empty());
            groups.cpuset = match (groups.cpuset.take(), nearest) {
                (Some(a), Some(b)) if a.intersects(&b) => Some(a.and(&b)),
                (known, nearest) => known.or(nearest),
            };
            if mount.version2 {
                cpuset_folders = folders.clone();
            }
        }
        if membership.has("cpu") {
            // Every ancestor's limit holds: the tightest one decides.
            let limits = folders.iter().filter_map(|folder| quota(files, folder, mount.version2));
            groups.quota = limits.chain(groups.quota).min_by(Quota::cmp_cpus);
        }
        if membership.has("pids") {
            with_pids.extend(folders);
        }
    }
    groups.files = files.take_consulted();
    // "max" does not parse as a number: no limit.
    let limit = |folder| files.text(&format!("{folder}/pids.max"))?.parse().ok();
    groups.pids_max = with_pids.iter().filter_map(limit).min();
    groups.isolated = isolated(files, &cpuset_folders, groups.cpuset.as_ref());
    groups
}

/// A file of the calling thread: that of the process is the main thread's, which may have ended, and then
/// shows no mounts and another group. A copy of another machine's files may have that alone.
fn own(files: &Files<'_>, name: &str) -> Option<String> {
    let of = |thread: &str| files.text(&format!("/proc/{thread}/{name}"));
    of("thread-self").or_else(|| of("self"))
}

/// CPUs of isolated partitions, as far as the folders of a group and its ancestors show them: all
/// of them if the root is visible (Linux 6.7), else those of the partition that the group is in.
fn isolated(files: &mut Files<'_>, folders: &[String], cpuset: Option<&CpuSet>) -> CpuSet {
    let kind = |folder| files.text(&format!("{folder}/cpuset.cpus.partition"));
    // A member belongs to the partition of its parent.
    let partition = folders.iter().filter_map(kind).find(|kind| kind != "member");
    // For an invalid partition, more words follow the kind, so that it does not match.
    let own = match partition.as_deref() {
        Some("isolated") => cpuset.cloned().unwrap_or_default(),
        _ => CpuSet::new(),
    };
    let all = folders.last().and_then(|root| files.cpus(&format!("{root}/cpuset.cpus.isolated")));
    own.or(&all.unwrap_or_default())
}

fn quota(files: &Files<'_>, folder: &str, version2: bool) -> Option<Quota> {
    let (quota, period) = match version2 {
        true => {
            let limit = files.text(&format!("{folder}/cpu.max"))?;
            let (quota, period) = limit.split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
        false => (
            files.text(&format!("{folder}/cpu.cfs_quota_us"))?,
            files.text(&format!("{folder}/cpu.cfs_period_us"))?,
        ),
    };
    // "max" in version 2 and -1 in version 1 do not parse as numbers: no limit.
    Quota::new(quota.parse().ok()?, period.parse().ok()?)
}

/// A line of `cgroup` of a process: `ID:CONTROLLERS:PATH`.
struct Membership<'a> {
    /// Empty for version 2, which has every controller that is not in a version 1 hierarchy.
    controllers: &'a str,
    path: &'a str,
}

impl<'a> Membership<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        Some(Self { controllers, path })
    }

    fn has(&self, controller: &str) -> bool {
        self.controllers.is_empty() || self.controllers.split(',').any(|name| name == controller)
    }
}

/// A line of `mountinfo` of a process about a control group hierarchy.
struct Mount {
    /// The group that the mount point shows.
    root: String,
    point: String,
    version2: bool,
    options: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        // ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [FIELD..] - TYPE SOURCE SUPER_OPTIONS
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let version2 = match kind.next()? {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        let options = kind.nth(1).unwrap_or_default().to_owned();
        Some(Self { root: unescape(root), point: unescape(point), version2, options })
    }

    fn serves(&self, membership: &Membership<'_>) -> bool {
        let mut controllers = membership.controllers.split(',');
        match membership.controllers.is_empty() {
            true => self.version2,
            false => {
                !self.version2
                    && controllers.all(|name| self.options.split(',').any(|option| option == name))
            }
        }
    }

    /// A group's path below what the mount shows; `None` if it lies elsewhere.
    fn below<'a>(&self, group: &'a str) -> Option<&'a str> {
        let below = group.strip_prefix(self.root.trim_end_matches('/'))?;
        let inside = (below.is_empty() || below.starts_with('/'))
            && !below.split('/').any(|part| part == "..");
        inside.then(|| below.trim_end_matches('/'))
    }

    /// The folders of a group and its ancestors as far as the mount shows them, nearest first.
    fn folders(&self, group: &str) -> Vec<String> {
        // If the mount does not show the group, the mount point is the nearest visible group.
        let mut below = self.below(group).unwrap_or_default();
        let mut folders = Vec::new();
        while let Some((parent, _)) = below.rsplit_once('/') {
            folders.push(format!("{}{below}", self.point));
            below = parent;
        }
        folders.push(self.point.clone());
        folders
    }
}

/// Decodes the octal escapes, such as `\040` for a space, in paths of mountinfo.
fn unescape(text: &str) -> String {
    let mut plain = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        match (byte, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                plain.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            _ => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

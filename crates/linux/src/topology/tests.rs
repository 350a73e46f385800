//! Constructed file trees, and the machines that the reader gets from them.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::topology::{Cpu, Topology};

use super::{Machine, Quota, TopologyReadError};
use crate::bounded::status_of;

struct Tree {
    folder: TempDir,
}

impl Tree {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    /// The files that Linux would have on this machine.
    fn of(notation: &str) -> Self {
        let machine: Topology = notation.parse().unwrap();
        let tree = Self::new();
        let offline = machine.possible().and_not(machine.online());
        for (name, cpus) in [
            ("possible", machine.possible()),
            ("online", machine.online()),
            ("offline", &offline),
            ("isolated", machine.isolated()),
        ] {
            tree.cpu_file(name, &cpus.to_string());
        }
        for cpu in machine.cpus().iter().filter(|cpu| cpu.online) {
            tree.write_cpu(&machine, cpu);
        }
        for node in machine.nodes() {
            let online = machine.node_cpus(node).and(machine.online());
            tree.write(&format!("sys/devices/system/node/node{node}/cpulist"), &online.to_string());
        }
        tree
    }

    fn write_cpu(&self, machine: &Topology, cpu: &Cpu) {
        let sharing = |group: fn(&Cpu) -> u32| -> String {
            let all =
                machine.cpus().iter().filter(|other| other.online && group(other) == group(cpu));
            all.map(|other| other.id).collect::<CpuSet>().to_string()
        };
        let folder = format!("cpu{}", cpu.id);
        self.cpu_file(&format!("{folder}/topology/core_cpus_list"), &sharing(|cpu| cpu.core));
        self.cpu_file(&format!("{folder}/topology/cluster_cpus_list"), &sharing(|cpu| cpu.cluster));
        // Packages are often not numbered from 0 upwards.
        let package = cpu.package * 4 + 1;
        self.cpu_file(&format!("{folder}/topology/physical_package_id"), &package.to_string());
        self.cpu_file(&format!("{folder}/cpu_capacity"), &cpu.capacity.to_string());
        // In an order that differs from the levels'.
        for (index, level, kind, cpus) in [
            (0, 3, "Unified", sharing(|cpu| cpu.llc)),
            (1, 1, "Data", sharing(|cpu| cpu.core)),
            (2, 4, "Instruction", sharing(|cpu| cpu.package)),
            (10, 2, "Unified", sharing(|cpu| cpu.cluster)),
        ] {
            let cache = format!("{folder}/cache/index{index}");
            self.cpu_file(&format!("{cache}/level"), &level.to_string());
            self.cpu_file(&format!("{cache}/type"), kind);
            self.cpu_file(&format!("{cache}/shared_cpu_list"), &cpus);
        }
    }

    fn cpu_file(&self, name: &str, text: &str) {
        self.write(&format!("sys/devices/system/cpu/{name}"), text);
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.folder.path().join(path);
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }

    /// One line of `/proc/self/mountinfo` per mount: type, root, mount point, super options.
    fn groups(self, memberships: &str, mounts: &[(&str, &str, &str, &str)]) -> Self {
        self.write("proc/self/cgroup", memberships);
        let lines = mounts.iter().map(|(kind, root, point, options)| {
            format!("31 23 0:28 {root} {point} rw,relatime shared:9 - {kind} {kind} rw,{options}")
        });
        let other = "22 1 8:1 / / rw,relatime - ext4 /dev/root rw".to_owned();
        let lines: Vec<String> = std::iter::once(other).chain(lines).collect();
        self.write("proc/self/mountinfo", &lines.join("\n"));
        self
    }

    fn with(self, path: &str, text: &str) -> Self {
        self.write(path, text);
        self
    }

    fn read_as(&self, affinity: &str) -> Machine {
        Machine::read_from(self.folder.path(), &affinity.parse().unwrap()).unwrap()
    }

    fn read(&self) -> Machine {
        self.read_as("0-1023")
    }
}

const V2: &[(&str, &str, &str, &str)] = &[("cgroup2", "/", "/sys/fs/cgroup", "nsdelegate")];

#[test]
fn reads_back_the_machine_that_the_files_describe() {
    for notation in [
        "core:12",
        "core:24",
        "package:2 node:2 llc:2 core:4 smt:2 numbering:threads-last",
        "cluster:1 core:4 capacity:446 + cluster:1 core:4",
        "cluster:2 smt:2 + cluster:1 core:4 capacity:600 isolated:3-5",
    ] {
        let machine = Tree::of(notation).read();
        assert_eq!(machine.topology, notation.parse().unwrap(), "{notation}");
        assert_eq!(machine.notes, Vec::<String>::new(), "{notation}");
    }
}

#[test]
fn a_cache_may_span_nodes() {
    let cpus = (0..4).map(|id| Cpu { node: id / 2 + 3, ..Cpu::alone(id) });
    let machine = Topology::new(cpus.collect()).unwrap();
    assert_eq!(Tree::of(&machine.to_string()).read().topology, machine);
}

#[test]
fn an_offline_cpu_adds_no_cache() {
    let machine = Tree::of("core:4 offline:2").read();
    assert_eq!(machine.topology, "core:4 offline:2".parse().unwrap());
    assert_eq!(machine.allowed.to_string(), "0-1,3");
    assert_eq!(machine.notes, ["offline CPUs 2: counted to the first cache, node and package"]);
}

#[test]
fn without_caches_the_package_is_the_last_level_cache() {
    let tree = Tree::of("package:2 llc:2 core:2");
    for cpu in 0..8 {
        tree.remove(&format!("sys/devices/system/cpu/cpu{cpu}/cache"));
    }
    assert_eq!(tree.read().topology, "package:2 core:4".parse().unwrap());
}

#[test]
fn without_clusters_a_core_is_its_own_and_old_kernels_name_siblings_differently() {
    let tree = Tree::of("cluster:2 core:2 smt:2");
    for cpu in 0..8 {
        tree.remove(&format!("sys/devices/system/cpu/cpu{cpu}/topology/cluster_cpus_list"));
        tree.remove(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"));
        let first = cpu / 2 * 2;
        tree.cpu_file(
            &format!("cpu{cpu}/topology/thread_siblings_list"),
            &format!("{first}-{}", first + 1),
        );
    }
    assert_eq!(tree.read().topology, "core:4 smt:2".parse().unwrap());
}

#[test]
fn tickless_cpus_count_as_isolated() {
    let machine =
        Tree::of("core:8 isolated:5").with("sys/devices/system/cpu/nohz_full", "6-7").read();
    assert_eq!(
        (machine.nohz_full.to_string().as_str(), machine.topology.isolated().to_string().as_str()),
        ("6-7", "5-7")
    );
    let machine = Tree::of("core:2").with("sys/devices/system/cpu/nohz_full", "(null)").read();
    assert!(machine.nohz_full.is_empty() && machine.notes.is_empty());
}

#[test]
fn garbage_in_every_file_still_gives_a_machine() {
    for garbage in ["", "x", "-1", "99999999999", "3-1", "\u{0}\u{ff}", "0-8192"] {
        let tree = Tree::of("package:2 core:2 smt:2").groups("0::/a", V2);
        let cpu = "sys/devices/system/cpu";
        for name in ["possible", "online", "isolated", "nohz_full"] {
            tree.write(&format!("{cpu}/{name}"), garbage);
        }
        for name in [
            "topology/core_cpus_list",
            "topology/cluster_cpus_list",
            "topology/physical_package_id",
            "cpu_capacity",
            "cache/index0/level",
            "cache/index0/shared_cpu_list",
            "cache/index10/shared_cpu_list",
        ] {
            tree.write(&format!("{cpu}/cpu1/{name}"), garbage);
        }
        for path in [
            "sys/fs/cgroup/a/cpu.max",
            "sys/fs/cgroup/a/cpuset.cpus.effective",
            "sys/devices/system/node/node0/cpulist",
        ] {
            tree.write(path, garbage);
        }
        let machine = tree.read_as("0-7");
        assert_eq!(machine.topology.possible().to_string(), "0-7", "{garbage:?}");
        assert_eq!(machine.allowed.to_string(), "0-7", "{garbage:?}");
        assert_eq!(machine.quota, None, "{garbage:?}");
        assert!(machine.notes.iter().all(|note| note.lines().count() == 1), "{:?}", machine.notes);
    }
}

#[test]
fn contradictory_sibling_lists_do_not_split_a_core() {
    let tree = Tree::of("llc:2 core:1 smt:2");
    tree.cpu_file("cpu1/cache/index0/shared_cpu_list", "1-3");
    tree.cpu_file("cpu1/topology/physical_package_id", "7");
    assert_eq!(tree.read().topology, "llc:2 core:1 smt:2".parse().unwrap());
}

#[test]
fn a_list_that_omits_its_own_cpu_is_ignored() {
    let tree = Tree::of("core:4");
    tree.cpu_file("cpu3/topology/core_cpus_list", "0-1");
    tree.cpu_file("cpu3/topology/cluster_cpus_list", "0-1");
    assert_eq!(tree.read().topology, "core:4".parse().unwrap());
}

#[test]
fn without_files_the_mask_is_used_and_without_a_mask_the_read_fails() {
    let machine = Tree::new().read_as("2-3");
    assert_eq!(
        (machine.topology.possible().to_string().as_str(), machine.allowed.to_string().as_str()),
        ("2-3", "2-3")
    );
    let error: TopologyReadError =
        Machine::read_from(Path::new("/nonexistent"), &CpuSet::new()).unwrap_err();
    assert_eq!(error.to_string().lines().count(), 1);
}

#[test]
fn the_affinity_mask_and_the_cpuset_both_hold() {
    let tree = Tree::of("core:8").groups("0::/user/job", V2);
    tree.write("sys/fs/cgroup/user/job/cpuset.cpus.effective", "2-5");
    let machine = tree.read_as("4-7");
    assert_eq!(machine.allowed.to_string(), "4-5");
    assert_eq!(machine.cgroup_cpuset, Some("2-5".parse().unwrap()));
}

#[test]
fn a_mask_that_leaves_no_cpu_is_ignored_with_a_note() {
    let tree =
        Tree::of("core:4").groups("0::/", V2).with("sys/fs/cgroup/cpuset.cpus.effective", "2-3");
    let machine = tree.read_as("0-1");
    assert_eq!(machine.allowed.to_string(), "0-1");
    assert_eq!(machine.notes, ["the cgroup cpuset 2-3 has no CPU of 0-1; ignored"]);
}

#[test]
fn the_nearest_group_with_a_cpuset_decides() {
    // A partition, whose CPUs are removed from its parent.
    let tree = Tree::of("core:8")
        .groups("0::/slice/part/leaf", V2)
        .with("sys/fs/cgroup/slice/cpuset.cpus.effective", "0-5")
        .with("sys/fs/cgroup/slice/part/cpuset.cpus.effective", "6-7");
    assert_eq!(tree.read().allowed.to_string(), "6-7");
}

#[test]
fn isolated_cpus_in_view_are_those_of_the_boot_line_and_of_partitions() {
    let root = "sys/fs/cgroup";
    let tree = || Tree::of("core:8").groups("0::/slice/part/leaf", V2);
    assert_eq!(tree().read().isolated, CpuSet::new());
    // The affinity mask usually excludes isolated CPUs.
    let booted = tree().with("sys/devices/system/cpu/isolated", "6-7");
    assert_eq!(booted.read_as("0-5").isolated.to_string(), "6-7");
    let elsewhere = booted.with(&format!("{root}/slice/cpuset.cpus.effective"), "0-6");
    assert_eq!(elsewhere.read().isolated.to_string(), "6");
    // With the root invisible: only the group's own partition.
    let part = |kind| {
        tree()
            .with(&format!("{root}/slice/part/cpuset.cpus.effective"), "2-3")
            .with(&format!("{root}/slice/part/cpuset.cpus.partition"), kind)
            .with(&format!("{root}/slice/part/leaf/cpuset.cpus.partition"), "member")
    };
    assert_eq!(part("isolated").read().isolated.to_string(), "2-3");
    for kind in ["root", "member", "isolated invalid (Cpu list in cpuset.cpus not exclusive)"] {
        assert_eq!(part(kind).read().isolated, CpuSet::new(), "{kind}");
    }
    // With the root visible: those of all partitions, restricted to the own cpuset.
    let all = tree().with(&format!("{root}/cpuset.cpus.isolated"), "4-5");
    assert_eq!(all.read().isolated.to_string(), "4-5");
}

#[test]
fn the_tightest_quota_of_all_ancestors_decides() {
    let tree = Tree::of("core:8")
        .groups("0::/a/b/c", V2)
        .with("sys/fs/cgroup/a/cpu.max", "150000 100000")
        .with("sys/fs/cgroup/a/b/cpu.max", "max 100000")
        .with("sys/fs/cgroup/a/b/c/cpu.max", "80000 50000");
    assert_eq!(tree.read().quota, Quota::new(150_000, 100_000));
}

#[test]
fn no_limit_is_no_quota() {
    let tree = Tree::of("core:2").groups("0::/a", V2).with("sys/fs/cgroup/a/cpu.max", "max 100000");
    assert_eq!(tree.read().quota, None);
    assert_eq!(Tree::of("core:2").read().quota, None);
}

#[test]
fn version_1_hierarchies_are_found_by_their_controllers() {
    let mounts = [
        ("cgroup", "/", "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"),
        ("cgroup", "/", "/sys/fs/cgroup/cpuset", "cpuset"),
    ];
    let tree = Tree::of("core:8")
        .groups("4:cpu,cpuacct:/box\n3:cpuset:/box", &mounts)
        .with("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "50000")
        .with("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000")
        .with("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1")
        .with("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000")
        .with("sys/fs/cgroup/cpuset/box/cpuset.cpus", "1-3")
        .with("sys/fs/cgroup/cpuset/box/cpuset.effective_cpus", "1-2");
    let machine = tree.read();
    assert_eq!(
        (machine.allowed.to_string().as_str(), machine.quota),
        ("1-2", Quota::new(50_000, 100_000))
    );
}

#[test]
fn in_a_hybrid_setup_both_versions_count() {
    let mounts = [
        ("cgroup", "/", "/sys/fs/cgroup/cpuset", "cpuset"),
        ("cgroup2", "/", "/sys/fs/cgroup/unified", "nsdelegate"),
    ];
    let tree = Tree::of("core:4")
        .groups("3:cpuset:/v1\n0::/v2", &mounts)
        .with("sys/fs/cgroup/cpuset/v1/cpuset.cpus", "0-1")
        .with("sys/fs/cgroup/unified/v2/cpu.max", "200000 100000");
    let machine = tree.read();
    assert_eq!(
        (machine.allowed.to_string().as_str(), machine.quota),
        ("0-1", Quota::new(200_000, 100_000))
    );
}

#[test]
fn a_container_sees_its_group_at_the_mount_point() {
    // The group's path as on the host, with a mount that shows only that group.
    let mounts = [("cgroup2", "/docker/one", "/sys/fs/cgroup", "nsdelegate")];
    let tree = Tree::of("core:4")
        .groups("0::/docker/one/inner", &mounts)
        .with("sys/fs/cgroup/cpu.max", "300000 100000")
        .with("sys/fs/cgroupself/inner/cpu.max", "1000 100000")
        .with("sys/fs/cgroup/inner/cpu.max", "100000 100000");
    assert_eq!(tree.read().quota, Quota::new(100_000, 100_000));
    // A group outside the mount, and a name of which the mounted group is only a prefix.
    for elsewhere in ["0::/../two", "0::/docker/oneself/inner", "0::/docker/one/../inner"] {
        tree.write("proc/self/cgroup", elsewhere);
        assert_eq!(tree.read().quota, Quota::new(300_000, 100_000), "{elsewhere}");
    }
}

// Catches: limits that are lost, or those of another group, once the main thread has ended.
#[test]
fn the_groups_are_those_of_the_calling_thread() {
    let tree =
        Tree::of("core:4").groups("0::/a", V2).with("sys/fs/cgroup/a/cpu.max", "40000 20000");
    let proc = tree.folder.path().join("proc");
    fs::rename(proc.join("self"), proc.join("thread-self")).unwrap();
    let tree = tree.with("proc/self/cgroup", "0::/").with("proc/self/mountinfo", "");
    assert_eq!(tree.read().quota, Quota::new(40_000, 20_000));
}

#[test]
fn a_process_whose_main_thread_has_ended_has_the_same_limits() {
    let limits = || {
        let Machine { allowed, cgroup_cpuset, quota, threads_max, .. } = Machine::read().unwrap();
        (allowed, cgroup_cpuset, quota, threads_max)
    };
    let before = limits();
    // SAFETY: the child takes no lock that another thread may have held.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let reads = move || {
            while fs::read("/proc/self/mountinfo").is_ok() {
                std::thread::yield_now();
            }
            let is_same = limits() == before;
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_same)) }
        };
        drop(std::thread::spawn(reads));
        // SAFETY: ends the main thread alone.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    assert_eq!(status_of(child), 0);
}

#[test]
fn the_mount_that_shows_the_group_is_preferred() {
    let mounts = [
        ("cgroup2", "/elsewhere", "/mnt/other", "nsdelegate"),
        ("cgroup2", "/", "/mnt/with\\040space", "nsdelegate"),
    ];
    let tree =
        Tree::of("core:4").groups("0::/a", &mounts).with("mnt/with space/a/cpu.max", "40000 20000");
    assert_eq!(tree.read().quota, Quota::new(40_000, 20_000));
}

#[test]
fn notes_are_limited_on_a_machine_with_many_anomalies() {
    let tree = Tree::of("core:20");
    for cpu in 0..20 {
        tree.cpu_file(&format!("cpu{cpu}/topology/core_cpus_list"), "odd");
    }
    let notes = tree.read().notes;
    assert_eq!((notes.len(), notes.last().map(String::as_str)), (17, Some("4 more like these")));
}

#[test]
fn the_tightest_limit_of_threads_counts() {
    let limits = |soft: &str| {
        let rows = format!(
            "Max file size   unlimited   unlimited   bytes\nMax processes   {soft}   unlimited   processes"
        );
        Tree::of("core:2").with("proc/self/limits", &rows)
    };
    assert_eq!(Tree::of("core:2").read().threads_max, None, "nothing is in sight");
    assert_eq!(limits("unlimited").read().threads_max, None);
    assert_eq!(limits("500").read().threads_max, Some(500));
    let tree = limits("500").with("proc/sys/kernel/threads-max", "400");
    assert_eq!(tree.read().threads_max, Some(400));
    let group = |name: &str, value: &str| {
        let tree = limits("500").with("proc/sys/kernel/threads-max", "400");
        let tree =
            tree.groups("0::/a/b", V2).with(&format!("sys/fs/cgroup/{name}/pids.max"), value);
        tree.read().threads_max
    };
    assert_eq!(group("a/b", "max"), Some(400));
    assert_eq!(group("a/b", "30"), Some(30));
    assert_eq!(group("a", "20"), Some(20), "an ancestor's limit holds as well");
    assert_eq!(group("c", "20"), Some(400), "and that of others does not");
    let first = &[("cgroup", "/", "/sys/fs/cgroup/pids", "pids")];
    let tree = Tree::of("core:2").groups("8:pids:/a\n4:cpu:/", first);
    let tree = tree.with("sys/fs/cgroup/pids/a/pids.max", "64");
    assert_eq!(tree.read().threads_max, Some(64), "version 1");
    let odd = Tree::of("core:2")
        .with("proc/self/limits", "Max processes")
        .with("proc/sys/kernel/threads-max", "many");
    assert_eq!(odd.read().threads_max, None);
}

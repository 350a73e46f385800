//! `uwork bridge` with a redis-server of the test's own.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// In the place of a flag's value: a port that is free when the server starts.
const FREE_PORT: &str = "FREE_PORT";
/// Far above the duration of any test.
const IN_VAIN: Duration = Duration::from_secs(60);

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until a condition holds. A test that waits in vain fails with the words for it.
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < IN_VAIN, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// A redis-server on a free port, killed on drop.
struct Redis {
    child: Child,
    url: String,
    flags: Vec<String>,
}

impl Redis {
    fn start(name: &str, flags: &[&str]) -> Option<Redis> {
        let found = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        if found.is_err() {
            eprintln!("{name}: left out, redis-server is not installed (ci/deps.sh)");
            return None;
        }
        // A port that is free now may be taken a moment later: the server then ends at once.
        for _ in 0..20 {
            let value = |&flag: &&str| match flag {
                FREE_PORT => free_port().to_string(),
                flag => flag.to_owned(),
            };
            let flags: Vec<String> = flags.iter().map(value).collect();
            let port = free_port();
            let mut command = Command::new("redis-server");
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
            command.args(["--save", "", "--dir", "/"]).args(&flags);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
            let mut redis = Redis { child, url: format!("redis://127.0.0.1:{port}"), flags };
            let mut is_up = false;
            wait_until("redis-server listens or has ended", || {
                is_up = TcpStream::connect(("127.0.0.1", port)).is_ok();
                is_up || redis.child.try_wait().unwrap().is_some()
            });
            if is_up {
                return Some(redis);
            }
        }
        panic!("redis-server does not start");
    }

    /// The value of a flag that the server was started with.
    fn flag(&self, name: &str) -> &str {
        let at = self.flags.iter().position(|flag| flag == name).unwrap();
        &self.flags[at + 1]
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
        command.arg("bridge").args(args).env("UWORK_BRIDGE_SERVER", &self.url);
        command
    }

    fn text(&self, args: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn jobs_are_pushed_run_and_shown() {
    let Some(redis) = Redis::start("jobs_are_pushed_run_and_shown", &[]) else { return };
    let mut lines = redis.command(&["push", "--stream", "jobs", "--lines"]);
    let mut lines = lines.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    lines.stdin.take().unwrap().write_all(b"1\n2\n3\n").unwrap();
    assert_eq!(lines.wait_with_output().unwrap().stdout, b"3 jobs\n");
    let push = ["push", "--stream", "jobs", "--id", "7", "four"];
    assert!(redis.text(&push).contains('-'));
    assert_eq!(redis.text(&push), "duplicate\n");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let script = format!("cat >>{}; echo >>{0}", out.display());
    let run = ["run", "--stream", "jobs", "--max-active", "1", "--exec", "sh", "-c", &script];
    let run = redis.command(&run).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("all jobs are done", || {
        let metrics = redis.text(&["stat", "--stream", "jobs", "--openmetrics"]);
        metrics.contains("uwork_bridge_done_total{stream=\"jobs\"} 4\n")
    });
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = run.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{said}");
    assert!(
        said.ends_with("4 done, 0 retried, 0 dead, 0 handed back, 0 killed, 0 left to others\n")
    );
    let mut seen: Vec<String> =
        std::fs::read_to_string(out).unwrap().split_whitespace().map(str::to_owned).collect();
    seen.sort();
    assert_eq!(seen, ["1", "2", "3", "four"]);
    let table = redis.text(&["stat", "--stream", "jobs"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["jobs", "0", "0", "0", "0", "4", "0", "0", "0", "0"], "{table}");
}

#[test]
fn a_signal_kills_what_does_not_end_within_the_limit_and_hands_it_back() {
    let name = "a_signal_kills_what_does_not_end";
    let Some(redis) = Redis::start(name, &[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    redis.text(&["push", "--stream", "jobs", out.to_str().unwrap()]);
    let script =
        "read -r file; sleep 1000 & echo $! >\"$file.new\"; mv \"$file.new\" \"$file\"; wait";
    let run = ["run", "--stream", "jobs", "--stop-limit", "0", "--exec", "sh", "-c", script];
    let run = redis.command(&run).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the job runs", || out.exists());
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = run.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    let expected = "0 done, 0 retried, 0 dead, 1 handed back, 1 killed, 0 left to others\n";
    assert!(ended.status.success() && said.ends_with(expected), "{said}");
    // A zombie waits for the reaper of orphans, which may be slow or missing in a container.
    let state = format!("/proc/{}/stat", std::fs::read_to_string(out).unwrap().trim());
    wait_until("the job's process has ended", || {
        std::fs::read_to_string(&state).map_or(true, |stat| stat.contains(") Z "))
    });
    let table = redis.text(&["stat", "--stream", "jobs"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[2], "1", "the job waits for another consumer: {table}");
}

#[test]
fn bad_settings_are_refused_in_one_line() {
    let refused = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
        let output = command.arg("bridge").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let line = refused(&["push", "--server", "http://x", "--stream", "jobs", "x"]);
    assert!(line.contains("redis://[USER:PASSWORD@]HOST[:PORT][/DB]") && line.lines().count() == 1);
    let run = ["run", "--stream", "jobs", "--max-active", "0", "--exec", "true"];
    assert_eq!(refused(&run), "uwork: max_active 0: allowed are 1 to 2048\n");
    assert!(refused(&["run", "--stream", "jobs"]).contains("--exec"));
    let limit = ["run", "--stream", "jobs", "--limit", "soon", "--exec", "true"];
    assert!(refused(&limit).contains("allowed are seconds"));
}

#[test]
fn a_password_comes_from_a_file_or_the_environment() {
    let name = "a_password_comes_from_a_file_or_the_environment";
    let Some(redis) = Redis::start(name, &["--requirepass", "right"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "right\n").unwrap();
    let file = file.to_str().unwrap();
    let push = ["push", "--stream", "jobs", "x"];
    let missing = redis.command(&push).output().unwrap();
    assert!(String::from_utf8(missing.stderr).unwrap().contains("NOAUTH"));
    assert!(redis.text(&["push", "--password-file", file, "--stream", "jobs", "x"]).contains('-'));
    let from_environment = redis.command(&push).env("UWORK_BRIDGE_PASSWORD", "right").output();
    assert!(from_environment.unwrap().status.success());
    let wrong = redis.command(&push).env("UWORK_BRIDGE_PASSWORD", "left").output().unwrap();
    let line = String::from_utf8(wrong.stderr).unwrap();
    assert!(line.contains("check user and password") && !line.contains("left"), "{line}");
}

fn openssl(folder: &Path, words: &str) {
    let mut command = Command::new("openssl");
    command.args(words.split(' ')).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success(), "openssl {words}");
}

#[test]
fn options_for_tls_check_the_server_and_show_the_clients_certificate() {
    if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
        return eprintln!("options_for_tls: left out, openssl is not installed (ci/deps.sh)");
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let new = "req -x509 -newkey rsa:2048 -nodes -days 2";
    openssl(folder, &format!("{new} -subj /CN=ca -keyout ca.key -out ca.crt"));
    let signed = "-CA ca.crt -CAkey ca.key -addext subjectAltName=IP:127.0.0.1";
    let signed = format!("{new} {signed} -addext basicConstraints=critical,CA:FALSE");
    openssl(folder, &format!("{signed} -subj /CN=peer -keyout peer.key -out peer.crt"));
    let path = |name: &str| folder.join(name).display().to_string();
    let (ca, cert, key) = (path("ca.crt"), path("peer.crt"), path("peer.key"));
    let mut flags = vec!["--tls-port", FREE_PORT, "--tls-ca-cert-file", &ca];
    flags.extend(["--tls-cert-file", &cert, "--tls-key-file", &key]);
    let Some(redis) = Redis::start("options_for_tls", &flags) else { return };
    let server = format!("rediss://127.0.0.1:{}", redis.flag("--tls-port"));
    let push = |options: &[&str]| {
        let mut command = redis.command(&["push", "--stream", "jobs", "--server"]);
        let output = command.args(options).arg("x").output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (ok, line) = push(&[&server, "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key]);
    assert!(ok, "{line}");
    let refused = |options: &[&str], words: &str| {
        let (ok, line) = push(options);
        assert!(!ok && line.contains(words) && line.lines().count() == 1, "{options:?}: {line}");
    };
    refused(&[&server], "certificate");
    refused(&[&server, "--tls-ca", &ca], "ertificate");
    refused(&[&server, "--tls-ca", &ca, "--tls-cert", &cert], "are given together");
    refused(&[&server, "--tls-ca", "/no/such/file"], "/no/such/file: No such file");
    refused(&[&server, "--tls-ca", &key], "not in PEM: -----BEGIN CERTIFICATE-----");
    refused(&[&format!("{server}#insecure")], "#insecure is refused");
    refused(&[&redis.url, "--tls-ca", &ca], "begin with rediss://");
}

//! TLS: the server's certificate is checked, and the client's is shown.

use std::path::Path;
use std::process::{Command, Stdio};

use uwork_bridge::{Bridge, ErrorKind, Producer, Push, Stat};

use crate::support::count::{Count, LONG, config};
use crate::support::left_out::left_out;
use crate::support::owned::Folder;
use crate::support::server::{RESERVED_PORT, Redis, server_at};

fn openssl(folder: &Path, words: &str) {
    let mut command = Command::new("openssl");
    command.args(words.split(' ')).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success(), "openssl {words}");
}

/// `NAME.crt`, signed by `ca.crt`, and `NAME.key`.
fn certificate(folder: &Path, name: &str) {
    std::fs::write(folder.join("ext"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let request = format!("req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key");
    openssl(folder, &format!("{request} -out {name}.csr"));
    let signed = "-CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile ext";
    openssl(folder, &format!("x509 -req -in {name}.csr {signed} -out {name}.crt"));
}

#[test]
fn a_server_with_tls_is_checked_and_demands_the_clients_certificate() {
    if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
        return left_out("a_server_with_tls", "openssl is not installed");
    }
    let folder = Folder::new();
    let folder = folder.path();
    openssl(
        folder,
        "req -x509 -newkey rsa:2048 -nodes -subj /CN=ca -days 2 -keyout ca.key -out ca.crt",
    );
    certificate(folder, "server");
    certificate(folder, "client");
    let path = |name: &str| folder.join(name).display().to_string();
    let (ca, cert, key) = (path("ca.crt"), path("server.crt"), path("server.key"));
    let mut flags =
        vec!["--tls-port", RESERVED_PORT, "--tls-ca-cert-file", &ca, "--tls-cert-file", &cert];
    flags.extend(["--tls-key-file", &key, "--requirepass", "secret"]);
    let Some(redis) = Redis::start("a_server_with_tls", &flags) else { return };
    let port = redis.flag("--tls-port");
    let at = || server_at(&format!("rediss://:secret@127.0.0.1:{port}"));
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let client = || Some((read("client.crt"), read("client.key")));

    let unknown = Stat::read(at(), "jobs", "uwork").unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unreachable, "{unknown}");
    assert!(!unknown.to_string().contains("secret"), "{unknown}");
    let anonymous = at().certificates(Some(read("ca.crt")), None).unwrap();
    let refused = Stat::read(anonymous, "jobs", "uwork").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused}");
    let garbage = at().certificates(Some(b"no certificate".to_vec()), client());
    assert_eq!(garbage.unwrap_err().kind(), ErrorKind::Config);

    let known = at().certificates(Some(read("ca.crt")), client()).unwrap();
    let mut producer = Producer::new(vec![known.clone()], "jobs", 1).unwrap();
    producer.push(Push::new("job")).unwrap();
    let count = Count::default();
    let bridge = Bridge::start(config(known, "jobs"), count.handlers(), |_| {}).unwrap();
    count.wait_for("job", 1);
    assert_eq!(bridge.stop(LONG).counters.done, 1);
}

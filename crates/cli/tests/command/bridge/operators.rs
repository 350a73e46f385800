//! Commands for operators where a server, a key or a right is missing: the rest is shown.

use super::both;
use super::server::Redis;

#[test]
fn a_server_that_is_down_hides_nothing_of_another() {
    let Some(redis) = Redis::start("a_server_that_is_down", &[]) else { return };
    redis.ask("XADD cut.{0} * p x");
    redis.ask("XADD cut.{0}:dead 7-0 p x n 1 e why");
    // Port 1 has no listener.
    let url = redis.url();
    let of =
        ["--stream", "cut", "--shards", "2", "--server", &url, "--server", "redis://127.0.0.1:1"];
    for (command, options, shows) in [
        (&["stat"][..], &[][..], "cut.{0} "),
        (&["stat"], &["--json"], "\"cut.{0}\""),
        (&["stat"], &["--openmetrics"], "uwork_bridge_lag{stream=\"cut.{0}\"} 1"),
        (&["consumers"], &[], ""),
        (&["dead", "list"], &[], "7-0"),
        (&["dead", "show"], &["7-0"], "7-0"),
        (&["dead", "replay"], &["--all"], "cut.{0}: 1 replayed"),
    ] {
        let (code, shown, said) = both(&redis, &[command, &of, options].concat());
        assert_eq!(code, Some(2), "{command:?} {options:?}: {said}");
        assert!(said.contains("uwork: cut.{1}: 127.0.0.1:1: "), "{command:?} {options:?}: {said}");
        assert!(shown.contains(shows), "{command:?} {options:?}: {shown}");
    }
}

#[test]
fn a_key_of_another_type_and_a_missing_right_hide_nothing_else() {
    let Some(redis) = Redis::start("a_key_of_another_type_and_a_missing_right", &[]) else {
        return;
    };
    redis.text(&["push", "--stream", "jobs", "job"]);
    redis.ask("XADD {jobs}:dead 7-0 p x n 1 e why");
    redis.ask("SET {jobs}:stats text");
    for (command, options, shows) in [
        (&["stat"][..], &["--json"][..], "\"unread\":[\"{jobs}:stats\"]"),
        (&["consumers"], &[], ""),
        (&["dead", "list"], &[], "7-0"),
        (&["dead", "replay"], &["7-0"], "jobs: 1 replayed"),
    ] {
        let (code, shown, said) = both(&redis, &[command, &["--stream", "jobs"], options].concat());
        assert_eq!(code, Some(2), "{command:?}: {said}");
        let names = said.contains("uwork: {jobs}:stats: ") && said.contains("WRONGTYPE");
        assert!(names && said.contains(":stats or :results"), "{command:?}: {said}");
        assert!(shown.contains(shows), "{command:?}: {shown}");
    }
    redis.ask("ACL SETUSER poor on >secret ~* +@all -xinfo");
    let poor = format!("redis://poor:secret@127.0.0.1:{}", redis.port());
    let stat = ["stat", "--stream", "jobs", "--json", "--server", &poor];
    let (code, shown, said) = both(&redis, &stat);
    assert!(code == Some(2) && said.contains("uwork: jobs: ") && said.contains("NOPERM"), "{said}");
    assert!(!said.contains("there is no"), "{said}");
    assert!(shown.contains("\"exists\":true"), "{shown}");
}

#[test]
fn a_stream_given_twice_counts_once_and_a_letter_that_fails_hides_no_other() {
    let Some(redis) = Redis::start("a_stream_given_twice", &[]) else { return };
    redis.ask("XADD {jobs}:dead 7-0 p x n 1 e why");
    let twice = ["--stream", "jobs", "--stream", "jobs"];
    let replay = [&["dead", "replay"][..], &twice, &["7-0", "no-number"]].concat();
    let (code, shown, said) = both(&redis, &replay);
    assert_eq!((code, &*shown), (Some(2), "jobs: 1 replayed\n"), "{said}");
    assert!(said.contains("\"no-number\" is no number of a dead letter"), "{said}");
}

#[test]
fn a_replay_that_fails_counts_the_letters_that_it_has_moved() {
    let Some(redis) = Redis::start("a_replay_that_fails_counts", &[]) else { return };
    for id in 0..20 {
        redis.ask(&format!("XADD cut.{{0}}:dead * p x i {id} n 1 e why"));
    }
    // The home of some of the ids is the shard of a server that is down.
    let url = redis.url();
    let of =
        ["--stream", "cut", "--shards", "2", "--server", &url, "--server", "redis://127.0.0.1:1"];
    let (code, shown, said) = both(&redis, &[&["dead", "replay", "--all"][..], &of].concat());
    assert_eq!((code, &*shown), (Some(2), "cut.{0}: 20 replayed\n"), "{said}");
    assert!(said.contains("20 letters were settled, but not all other shards know"), "{said}");
    assert_eq!(redis.number("XLEN cut.{0}"), 20);
}

// Catches: entries in quarantine that seem to have a consumer, alive or dead.
#[test]
fn entries_that_no_process_has_are_held_by_no_consumer_that_lives_or_has_died() {
    let Some(redis) = Redis::start("entries_that_no_process_has", &[]) else { return };
    redis.ask("XADD jobs * p x");
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork quarantine STREAMS jobs >");
    redis.ask("XGROUP CREATECONSUMER jobs uwork released");
    redis.ask("XGROUP CREATECONSUMER jobs uwork w:1:f");
    let text = redis.text(&["consumers", "--stream", "jobs", "--heartbeat", "1000"]);
    assert!(
        text.contains("quarantine of jobs: 1 held, until they are replayed or dropped\n"),
        "{text}"
    );
    assert!(text.contains("released of jobs: 0 held, until a consumer takes them\n"), "{text}");
    assert!(text.contains("w:1:f of jobs: alive, last seen "), "{text}");
    let json = redis.text(&["consumers", "--stream", "jobs", "--heartbeat", "1000", "--json"]);
    let alive = |value: &str| json.matches(&format!("\"alive\":{value}")).count();
    assert_eq!([alive("null"), alive("true"), alive("false")], [2, 1, 0], "{json}");
    let stat = redis.text(&["stat", "--stream", "jobs"]);
    assert!(
        stat.contains("  quarantine of jobs: 1 held, until they are replayed or dropped\n"),
        "{stat}"
    );
}

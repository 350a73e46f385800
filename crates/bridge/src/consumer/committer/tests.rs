//! Tests of the committer without a server.

use super::*;
use crate::config::Config;
use crate::handler::{Handlers, Reply};
use crate::job::{Entry, Fields};
use crate::policy::Deliveries;
use crate::report::Reporter;
use crate::server::Server;

/// A committer that has not connected.
fn committer() -> Committer {
    committer_of("redis://127.0.0.1:1")
}

fn committer_of(url: &str) -> Committer {
    // A server that works is slow on a busy machine.
    let server = Server::new(url).unwrap().patience(360);
    let config = Config::new(server.clone(), "jobs");
    let name = format!("committer-{:x}", fastrand::u64(..));
    let queue = uwork::Queue::builder(name).build().unwrap();
    let reporter = Reporter::new(|_| {});
    let shared = Shared::new(config, Handlers::new(), queue, "me".to_owned(), reporter);
    Committer::new(Link::new(Arc::new(shared), &["jobs".to_owned()]), Wire::new(server))
}

#[test]
fn after_an_outage_nothing_is_taken_over_until_all_have_given_a_heartbeat() {
    let mut committer = committer();
    let is_taking = |committer: &mut Committer| {
        committer.next.reclaim.fill(Instant::now());
        let (commands, sent) = committer.commands();
        let at = sent.iter().position(|sent| sent.purpose() == Purpose::Reclaim(0));
        let words = at.map(|at| commands[at].get_packed_command());
        let of_bytes = |words: &[u8]| words.windows(9).any(|word| word == b"\n4194304\r");
        assert!(words.as_deref().is_none_or(of_bytes), "no heartbeat is given meanwhile");
        at.is_some()
    };
    let answer = |committer: &mut Committer, at_ms| {
        let none = || Value::Array(Vec::new());
        let reply = Value::Array(vec![none(), none(), Value::Int(at_ms)]);
        committer.read(vec![reply], vec![Sent::Beat(0)], HashMap::new());
    };
    assert!(!is_taking(&mut committer), "it has just started, perhaps when the server came back");
    answer(&mut committer, 0);
    assert!(!is_taking(&mut committer), "the others may not be back");
    let (now, heartbeat) = (Instant::now(), committer.link.shared.config.heartbeat);
    let beaten = |at: Instant| {
        let mut next = Schedule::new(at, heartbeat, 1);
        next.has_beaten(at, 0);
        next
    };
    committer.next = beaten(now - heartbeat / 3);
    answer(&mut committer, 1);
    assert!(is_taking(&mut committer), "no heartbeat was late");
    committer.next = beaten(now - heartbeat);
    committer.link.set_orphans_first(true);
    committer.first.fill(true);
    assert!(!is_taking(&mut committer), "the server was away for a heartbeat");
    assert!(!committer.link.orphans_first(), "and new entries are fetched");
    answer(&mut committer, 1);
    assert!(!is_taking(&mut committer), "it is back: the others may not be");
}

#[test]
fn the_newest_of_the_jobs_that_were_lost_are_remembered() {
    let mut committer = committer();
    let lost = |ms| Lost { place: (0, EntryId(ms, 0)), first: String::new() };
    committer.lost.extend((0..15_000).map(lost));
    // The server has refused the last one.
    committer.next.spare = Instant::now() + Duration::from_secs(3_600);
    committer.commands();
    let kept: Vec<u64> = committer.lost.iter().map(|lost| lost.place.1.0).collect();
    assert_eq!((kept.len(), kept[0]), (LOST_MAX, 5_000));
}

#[test]
fn an_exchange_ends_with_the_outcome_that_reaches_its_bytes() {
    let mut committer = committer();
    let outcome = |ms| {
        let end = End::Done(Reply::done().effect([vec![0; BATCH_BYTES_MAX / 2]]));
        let place = (0, EntryId(ms, 0));
        Outcome { place, id: None, attempt: 1, twice: Twice::IfMissing, end }
    };
    committer.backlog.extend((1..=5).map(outcome));
    let of = |committer: &mut Committer| {
        let (_, sent) = committer.commands();
        sent.iter().filter(|sent| sent.purpose() == Purpose::Outcomes).count()
    };
    assert_eq!([(); 4].map(|()| of(&mut committer)), [2, 2, 1, 0]);
}

// Catches: outcomes in one exchange whose searches for letters take longer than a heartbeat.
#[test]
fn scripts_that_are_sent_again_are_divided_among_exchanges() {
    let all = |word: &str, twice| {
        let mut committer = committer();
        let outcome = |ms| {
            let end = End::Done(Reply::done().effect([word, "return", "0"]));
            Outcome { place: (0, EntryId(ms, 0)), id: None, attempt: 1, twice, end }
        };
        committer.backlog.extend((1..=1_000).map(outcome));
        let (_, sent) = committer.commands();
        sent.iter().filter(|sent| sent.purpose() == Purpose::Outcomes).count()
    };
    assert_eq!((all("EVAL", Twice::IfMissing), all("EVAL", Twice::Yes)), (1_000, 1_000));
    assert_eq!((all("EVAL", Twice::Repeated), all("eval", Twice::YesRepeated)), (64, 64));
    assert_eq!(all("GET", Twice::Repeated), 1_000);
}

#[test]
fn heartbeats_go_before_outcomes_and_leave_out_what_may_be_over() {
    let mut committer = committer();
    committer.next.beat = Instant::now();
    let of = Deliveries::read(1);
    let entry = |ms| {
        let fields = Some(Fields::default());
        Entry { id: EntryId(ms, 0), of, fields, bytes: 0 }
    };
    let entries = (1..=4).map(entry).collect();
    let delivered = Delivered::with(&committer.link.shared, entries);
    committer.link.admit(0, delivered);
    let outcome = |ms, twice, end| {
        let place = (0, EntryId(ms, 0));
        Outcome { place, id: None, attempt: 1, twice, end }
    };
    committer.backlog.push(outcome(1, Twice::IfMissing, End::HandBack));
    // Its reply was lost. Its outcome says whether it was executed.
    committer.backlog.push(outcome(2, Twice::Repeated, End::Done(Reply::done())));
    // It is pending for sure.
    committer.backlog.push(outcome(3, Twice::IfMissing, End::Done(Reply::done())));
    let (commands, sent) = committer.commands();
    let position = |purpose| sent.iter().position(|sent| sent.purpose() == purpose).unwrap();
    assert!(position(Purpose::Beats) < position(Purpose::Outcomes));
    let beat = commands[position(Purpose::Beats)].get_packed_command();
    let beat = String::from_utf8_lossy(&beat);
    let beaten = ["1-0", "2-0", "3-0", "4-0"].map(|id| beat.contains(id));
    assert_eq!(beaten, [false, false, true, true], "{beat}");
}

// Catches: a server that is away while the end of a lone run is on its way, and all shards wait.
#[test]
fn a_lone_run_whose_server_is_away_delays_no_other_shard_for_longer_than_a_heartbeat() {
    let mut committer = committer();
    let (now, shared) = (Instant::now(), committer.link.shared.clone());
    let (heartbeat, place) = (shared.config.heartbeat, (0, EntryId(7, 0)));
    // Without a payload its attempt is decided at once.
    let (of, fields) = (Deliveries::read(1), Some(Fields::default()));
    let entry = Entry { id: place.1, of, fields, bytes: 0 };
    committer.link.admit(0, Delivered::with(&shared, vec![entry]));
    let mut alone = Alone::new(now, place, heartbeat, 0);
    alone.begins(now);
    committer.alone = Some(alone);
    assert!(shared.begin_alone() && committer.link.is_settled(&place));
    committer.watch_alone(now);
    committer.watch_alone(now + heartbeat - Duration::from_millis(1));
    assert!(shared.is_alone() && shared.places() == 0);
    committer.watch_alone(now + heartbeat);
    assert!(!shared.is_alone() && shared.places() > 0);
    // Now a job of another shard runs alone.
    assert!(shared.begin_alone());
    committer.link.release([place]);
    committer.watch_alone(now + 2 * heartbeat);
    assert!(shared.is_alone() && committer.alone.is_none());
}

#[test]
fn a_reply_that_is_malformed_counts_nothing() {
    let ids = |count: u64| {
        let id = |ms| Value::BulkString(format!("{ms}-0").into_bytes());
        Value::Array((0..count).map(id).collect())
    };
    let replies =
        [ids(3), Value::Okay, Value::Nil, Value::Array(vec![Value::Nil; 3]), Value::Int(-7)];
    for reply in replies {
        let mut committer = committer();
        let place = (0, EntryId(7, 0));
        let (twice, end) = (Twice::IfMissing, End::Done(Reply::done()));
        let outcome = Outcome { place, id: None, attempt: 1, twice, end };
        let sent = vec![
            Sent::HandBack(vec![place]),
            Sent::Complete(vec![place], Twice::IfMissing),
            Sent::Effects(outcome),
            Sent::Beat(0),
            Sent::Reclaim(0),
            Sent::Promote(0),
            Sent::Skip(vec![(place, "mail".to_owned())]),
            Sent::Spare(0, Vec::new()),
        ];
        let count = sent.len();
        committer.read(vec![reply; count], sent, HashMap::new());
        let counters = committer.link.shared.tally.read(0);
        assert!(counters.handed_back <= 1 && counters.done <= 2, "{counters:?}");
    }
}

// Catches: a server that begins to hang while its shard waits for a place, and keeps that from others.
#[test]
fn a_shard_whose_server_is_silent_leaves_its_place_to_others() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let mut committer = committer_of(&format!("redis://127.0.0.1:{port}"));
    let shared = committer.link.shared.clone();
    let other = Link::new(shared.clone(), &["other".to_owned()]);
    shared.stand_in_line(&committer.link);
    assert_eq!(shared.kept_from(&other), 1);
    let thread = thread::spawn(move || committer.wire.ask(&[redis::cmd("PING")]).is_err());
    let connection = silent.accept().unwrap();
    while shared.kept_from(&other) > 0 {
        thread::yield_now();
    }
    assert!(!thread.is_finished(), "it waits for the server still");
    drop((connection, silent));
    assert!(thread.join().unwrap());
}

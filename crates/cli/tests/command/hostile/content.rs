//! The content of the answers of an adversary: of the form that its request has, more or less.

use super::elf;
use crate::random::Random;

/// Parts of the text of an adversary. Sequences that a terminal would obey have final bytes, or
/// introducers, that no command uses by itself.
const TEXTS: [&[u8]; 32] = [
    b"log",
    b"events_unbound",
    b"\x1b[21t",
    b"\x1b]0;pwned\x07",
    b"\x1bPq\x1b\\",
    b"\x1b[6n\x1b[5i",
    b"\r",
    b"\x00\x01\x08\x7f",
    b"\xc2\x9b21t",
    b"\xc2\x85\xc2\x90",
    "\u{202e}gpj.exe\u{2066}".as_bytes(),
    "\u{200b}\u{feff}\u{ad}\u{2028}\u{2029}".as_bytes(),
    "\u{e0041}\u{e000}\u{fffe}\u{fff9}".as_bytes(),
    "e\u{301}\u{301}\u{301}".as_bytes(),
    "\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}".as_bytes(),
    "\u{fe0f}\u{34f}\u{115f}\u{1160}\u{3164}\u{ffa0}\u{180b}\u{e0100}".as_bytes(),
    "日本語".as_bytes(),
    b"\xff\xfe\xc3",
    b"\xed\xa0\x80\xf4\x90\x80\x80",
    b"\t",
    b"\n",
    b"\n\n",
    b"0",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-1",
    b"NaN",
    b"0-8191",
    b"a/b c",
    b"..",
    b"default (cache -> cpu)",
    b"",
];

const QUEUES: &str = "name\tkind\tflags\tstarted\tin_flight\tpending\tran\trun_us\trunning\tmax_active\t\
    saturated\tscope\tgate\trun_p50_ns\trun_p99_ns\tcpu_us\tcpu_intensive\treplaced\tstolen\tmaydays\t\
    rescued\twait_p50_ns\twait_p99_ns\twaits\twait_us";
const POOLS: &str = "id\tcpus\tnice\ttarget\tworkers\tworkers_max\trunning\tidle\tready\tarmed";
const WORKERS: &str = "pool\tslot\tname\tthread\tstate\tqueue\tfunction\tfor_us\tscheduled";
const FACTS: [&str; 14] = [
    "pid",
    "version",
    "protocol",
    "allowed_cpus",
    "cpu_limit",
    "blocking_tier",
    "blocking_reason",
    "fences",
    "queues",
    "pools",
    "workers",
    "panics",
    "rescues",
    "rseq",
];

/// Content of the form of an answer to the request.
pub(super) fn content(random: &mut Random, request: &str) -> Vec<u8> {
    let request = request.strip_prefix("raw ").unwrap_or(request);
    let verb = request.split(' ').next().unwrap_or_default();
    match verb {
        _ if random.one_in(12) => flood(random),
        "status" => {
            let mut text = Vec::new();
            for fact in FACTS {
                text.extend([fact.as_bytes(), b"\t", &value(random), b"\n"].concat());
            }
            text
        }
        "queues" => table(random, QUEUES),
        "pools" => [table(random, POOLS), b"\n".to_vec(), table(random, WORKERS)].concat(),
        "list" => {
            let mut text = Vec::new();
            for _ in 0..random.below(6) {
                let kind = random.pick(&["rw\t", "ro\t", "dir\t", "\x1b[21t\t"]);
                text.extend([kind.as_bytes(), &value(random), b"\n"].concat());
            }
            text
        }
        "trace" => {
            let mut text = Vec::new();
            for _ in 0..random.below(40) {
                let kinds =
                    ["lost", "more", "function", "queue", "queued", "started", "ended", "?"];
                text.extend(random.pick(&kinds).as_bytes());
                for _ in 0..random.below(8) {
                    text.extend([b"\t", &value(random)[..]].concat());
                }
                text.push(b'\n');
            }
            text
        }
        "dump" if request.ends_with(" json") => dump_in_json(random),
        "dump" | "stacks" => (0..random.below(40)).flat_map(|_| line(random)).collect(),
        _ => (0..random.below(40)).flat_map(|_| [value(random), b"\n".to_vec()].concat()).collect(),
    }
}

/// A function: of this process, whose files are read then, of a file of the adversary's, or of none.
fn address(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => u64::MAX - random.below(4),
        1 => random.below(2),
        2 | 3 => elf::address(random),
        _ => line as *const () as u64 + random.below(1 << 16),
    }
}

/// A line of a dump, or of stacks.
fn line(random: &mut Random) -> Vec<u8> {
    let (address, text) = (address(random), value(random));
    let form = match random.below(8) {
        0 => "  queue 0  unbound".to_owned(),
        1 => format!("      pending  item 0x5  function {address:#x}"),
        2 => format!("  uw/0 (thread 7, slot 1), asleep, in function {address:#x} of queue \"0\""),
        3 => "  deadlock: item function 0x7 0x1 (slot 0) of queue \"0\" waits".to_owned(),
        _ => format!("      {} {address:#x}", random.below(3)),
    };
    // Most are as they should be.
    let text = if random.one_in(4) { text } else { Vec::new() };
    [form.as_bytes(), &text, b"\n"].concat()
}

fn dump_in_json(random: &mut Random) -> Vec<u8> {
    let spaces = ["", " ", "\r", "\n\t "];
    let mut text = format!("{}{{\"functions\":[", random.pick(&spaces)).into_bytes();
    for _ in 0..random.below(20) {
        let function = format!(r#"{{"function":{{"address":{},"name":null}}}},"#, address(random));
        text.extend(function.bytes().chain(random.pick(&spaces).bytes()));
        if random.one_in(8) {
            text.extend(value(random));
        }
    }
    // Most are an object.
    [
        &text[..],
        random.pick(&["null]}", "null]}", "null]}", "null]", "null]}\n7"]).as_bytes(),
        b"\n",
    ]
    .concat()
}

/// One or a few parts of text, or a number.
pub(super) fn value(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => random.below(5).to_string().into_bytes(),
        1 => (0..random.below(5)).flat_map(|_| random.pick(&TEXTS).to_vec()).collect(),
        _ => random.pick(&TEXTS).to_vec(),
    }
}

fn table(random: &mut Random, head: &str) -> Vec<u8> {
    let mut text = if random.one_in(8) { value(random) } else { head.as_bytes().to_vec() };
    for row in 0..random.below(8) {
        text.extend(format!("\n{row}").bytes());
        let is_plain_row = random.one_in(2);
        for column in head.split('\t') {
            let plain = is_plain_row || random.one_in(2);
            let cell = match column {
                // A queue that does not move, or in which an item runs on.
                "name" if plain => Vec::new(),
                "queue" if plain => b"0".to_vec(),
                "started" | "ran" | "in_flight" | "running" if plain => b"1".to_vec(),
                "for_us" | "run_p99_ns" if plain => b"41000000".to_vec(),
                "gate" if plain => random.pick(&["open", "frozen", "paused"]).as_bytes().to_vec(),
                "kind" if plain => b"unbound".to_vec(),
                _ => value(random),
            };
            text.extend([&cell[..], b"\t"].concat());
        }
    }
    text.push(b'\n');
    text
}

/// A long answer of one kind of text.
fn flood(random: &mut Random) -> Vec<u8> {
    let parts: [&[u8]; 10] = [
        b"\t",
        b"\n",
        b"a\n",
        b"dir\ta\n",
        b"x",
        b"\x1b[21t",
        b"more\t1\n",
        b"1\t2\t3\n",
        "\u{301}".as_bytes(),
        b"function 0x1 ",
    ];
    let length = *random.pick(&[70_000, 1 << 20, 8 << 20]);
    let part = *random.pick(&parts);
    let head: &[u8] = if random.one_in(2) { QUEUES.as_bytes() } else { b"" };
    [head, b"\n", &part.repeat(length / part.len())].concat()
}

#[test]
fn raw_requests_have_answers_of_their_form() {
    for (request, part) in [
        ("raw pools", WORKERS),
        ("raw dump json", r#""name":null}},"#),
        ("raw dump", "\n      pending  item 0x5  function 0x"),
        ("raw stacks 100 0", "), asleep, in function 0x"),
    ] {
        let has_part = |seed| {
            let text = content(&mut Random::new(seed), request);
            text.windows(part.len()).any(|window| window == part.as_bytes())
        };
        assert!(super::SEEDS.filter(|&seed| has_part(seed)).count() > 20, "{request}");
    }
}

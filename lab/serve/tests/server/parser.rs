//! The parser with input cut at every position, with every length and every byte.

use proptest::prelude::*;
use uwork_serve::resp::{Limits, Parsed, Parser, ProtocolError};

const LIMITS: Limits = Limits { bulk_max: 1 << 20, request_max: 2 << 20 };

/// The parse of a byte stream: its requests, and how it ends.
#[derive(Debug, PartialEq)]
struct Read {
    requests: Vec<Vec<Vec<u8>>>,
    end: Result<usize, ProtocolError>,
}

/// Parses a stream that arrives in pieces; the pieces end at the positions in `cuts`.
fn read(stream: &[u8], cuts: impl IntoIterator<Item = usize>) -> Read {
    let mut parser = Parser::new(LIMITS);
    let (mut requests, mut at) = (Vec::new(), 0);
    for end in cuts.into_iter().chain([stream.len()]) {
        loop {
            let input = &stream[at..end.max(at)];
            match parser.parse(input) {
                Ok(Parsed::Request(len)) => {
                    requests.push(parser.args(input).iter().map(<[u8]>::to_vec).collect());
                    at += len;
                }
                Ok(Parsed::Nothing(len)) => at += len,
                Ok(Parsed::Incomplete) => break,
                Err(error) => return Read { requests, end: Err(error) },
            }
        }
    }
    Read { requests, end: Ok(stream.len() - at) }
}

fn error_of(stream: &[u8]) -> String {
    read(stream, []).end.expect_err("this is not RESP").to_string()
}

fn written(request: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = format!("*{}\r\n", request.len()).into_bytes();
    for arg in request {
        stream.extend(format!("${}\r\n", arg.len()).bytes());
        stream.extend(arg);
        stream.extend(b"\r\n");
    }
    stream
}

#[test]
fn every_prefix_of_requests_is_incomplete_and_every_cut_reads_the_same() {
    let stream = [
        written(&[b"SET".to_vec(), b"key\r\n\0\xff".to_vec(), b"".to_vec()]),
        b"PING \"a b\"\r\n\r\n*0\r\n*-1\r\n".to_vec(),
        written(&[b"GET".to_vec(), b"*1\r\n$4".to_vec()]),
    ]
    .concat();
    let whole = read(&stream, []);
    assert_eq!(whole.requests.len(), 3);
    assert_eq!(whole.end, Ok(0));
    for cut in 0..stream.len() {
        assert_eq!(read(&stream, [cut]), whole, "cut at {cut}");
        let prefix = read(&stream[..cut], []);
        assert!(prefix.end.is_ok() && whole.requests.starts_with(&prefix.requests));
    }
    assert_eq!(read(&stream, 0..stream.len()), whole, "byte by byte");
}

#[test]
fn errors_are_worded_as_in_redis() {
    for (stream, error) in [
        (&b"*x\r\n"[..], "Protocol error: invalid multibulk length"),
        (b"*9223372036854775808\r\n", "Protocol error: invalid multibulk length"),
        (b"*2147483648\r\n", "Protocol error: invalid multibulk length"),
        (b"*01\r\n", "Protocol error: invalid multibulk length"),
        (b"*1\r\n$-2\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$9223372036854775808\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$1048577\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n*1\r\n$1\r\na\r\n", "Protocol error: expected '$', got '*'"),
        (b"*1\r\nxyz\r\n", "Protocol error: expected '$', got 'x'"),
        (b"*1\r\n\r\n", "Protocol error: expected '$', got ' '"),
        (b"GET \"a\r\n", "Protocol error: unbalanced quotes in request"),
        (b"GET \"a\"b\r\n", "Protocol error: unbalanced quotes in request"),
    ] {
        assert_eq!(error_of(stream), error, "{}", stream.escape_ascii());
    }
}

#[test]
fn lines_without_an_end_are_refused_at_64_kib() {
    let long = vec![b'1'; 64 * 1024 + 1];
    let with = |start: &[u8]| [start, &long].concat();
    assert_eq!(error_of(&with(b"")), "Protocol error: too big inline request");
    assert_eq!(error_of(&with(b"*")), "Protocol error: too big mbulk count string");
    assert_eq!(error_of(&with(b"*1\r\n$")), "Protocol error: too big bulk count string");
    let inline = [&vec![b'a'; 64 << 20][..], b"\r\n"].concat();
    assert_eq!(error_of(&inline), "Protocol error: too big inline request");
}

#[test]
fn a_request_is_refused_as_soon_as_it_is_known_to_be_too_large() {
    let arg = vec![b'a'; 1 << 20];
    let most = written(std::slice::from_ref(&arg));
    assert_eq!(read(&most, []).requests.len(), 1);
    let more = [&b"*3\r\n"[..], &most[4..], b"$1048576\r\n"].concat();
    assert_eq!(read(&more, []).end, Err(ProtocolError::RequestTooBig));
}

#[test]
fn empty_requests_are_skipped() {
    for stream in [&b"\r\n"[..], b"\n", b"  \r\n", b"*0\r\n", b"*-1\r\n", b"*-2\r\n"] {
        assert_eq!(read(stream, []), Read { requests: Vec::new(), end: Ok(0) });
    }
}

#[test]
fn nested_arrays_are_refused_at_the_second_level() {
    let nested = b"*1\r\n".repeat(1_000_000);
    assert_eq!(error_of(&nested), "Protocol error: expected '$', got '*'");
}

#[test]
fn a_count_alone_takes_no_memory() {
    let mut parser = Parser::new(LIMITS);
    assert_eq!(parser.parse(b"*2147483647\r\n$1\r\na\r\n"), Ok(Parsed::Incomplete));
    assert!(parser.allocated() < 1024);
}

#[test]
fn room_is_requested_for_expected_bytes_and_not_for_consumed_ones() {
    let mut parser = Parser::new(LIMITS);
    let arg = vec![b'a'; 100_000];
    let request = written(&[b"SET".to_vec(), b"key".to_vec(), arg]);
    assert_eq!(parser.parse(&request[..100]), Ok(Parsed::Incomplete));
    assert_eq!(parser.expected(), request.len());
    assert_eq!(parser.parse(&request), Ok(Parsed::Request(request.len())));
    assert_eq!(parser.expected(), 0);
    assert_eq!(parser.parse(b"*2\r\n$3\r\nGET\r\n$"), Ok(Parsed::Incomplete));
    assert_eq!(parser.expected(), 13);
}

fn requests() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let arg = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::vec(prop::collection::vec(arg, 1..6), 0..6)
}

proptest! {
    #[test]
    fn a_request_parses_the_same_however_it_is_cut(
        requests in requests(),
        mut cuts in prop::collection::vec(0_usize..1500, 0..8),
    ) {
        let stream: Vec<u8> = requests.iter().flat_map(|request| written(request)).collect();
        cuts.retain(|&cut| cut < stream.len());
        cuts.sort_unstable();
        prop_assert_eq!(read(&stream, cuts), Read { requests, end: Ok(0) });
    }

    #[test]
    fn any_bytes_parse_the_same_however_they_are_cut(
        stream in prop::collection::vec(
            prop_oneof![any::<u8>(), prop::sample::select(b"*$-0123456789\r\n\r\n \"'\\x".to_vec())],
            0..200,
        ),
        cut in 0_usize..200,
    ) {
        let whole = read(&stream, []);
        prop_assert_eq!(&read(&stream, [cut.min(stream.len())]), &whole);
        prop_assert_eq!(&read(&stream, 0..stream.len()), &whole);
    }
}

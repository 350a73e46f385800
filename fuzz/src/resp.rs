//! Fuzzes the RESP parser: any input must parse the same in any number of pieces, with bounded
//! memory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uwork_serve::resp::{Limits, Parsed, Parser, ProtocolError};

const LIMITS: Limits = Limits { bulk_max: 1 << 16, request_max: 1 << 18 };

/// The requests, and how the stream ends.
type Read = (Vec<Vec<Vec<u8>>>, Result<usize, ProtocolError>);

fn read(stream: &[u8], piece: usize) -> Read {
    let mut parser = Parser::new(LIMITS);
    let (mut requests, mut at, mut end) = (Vec::new(), 0, 0);
    while end < stream.len() {
        end = (end + piece).min(stream.len());
        loop {
            let input = &stream[at..end];
            match parser.parse(input) {
                Ok(Parsed::Request(len)) => {
                    let args = parser.args(input);
                    assert!(!args.is_empty() && len <= input.len());
                    requests.push(args.iter().map(<[u8]>::to_vec).collect());
                    at += len;
                }
                Ok(Parsed::Nothing(len)) => {
                    assert!(0 < len && len <= input.len());
                    at += len;
                }
                Ok(Parsed::Incomplete) => break,
                Err(error) => return (requests, Err(error)),
            }
        }
        // The parser's memory depends on the input that it has received, not on announced lengths.
        assert!(parser.allocated() <= 64 + 16 * stream.len());
    }
    (requests, Ok(stream.len() - at))
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, stream)) = data.split_first() else { return };
    let whole = read(stream, usize::MAX / 2);
    assert_eq!(read(stream, usize::from(piece) + 1), whole);
});

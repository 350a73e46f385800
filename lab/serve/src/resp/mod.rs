//! RESP2 and RESP3, the protocol of Redis: requests in, replies out.

pub mod number;
mod parser;
mod quotes;
pub mod reply;

pub use parser::{Args, Limits, Parsed, Parser, ProtocolError, Span};

//! Checks a request's command name and argument count before any key is looked up.

use super::table::{self, Command, row_of};
use crate::resp::Args;
use crate::resp::reply;

/// Why a request is refused, in the words of Redis.
#[derive(Clone, Copy)]
pub(crate) enum Refusal<'a> {
    Unknown(Args<'a>),
    Arguments(Command),
    /// The argument does not name a subcommand of the command.
    Subcommand(Command, &'a [u8]),
    /// As `Arguments`, for a subcommand.
    SubcommandArguments(Command, &'static str),
}

/// Number of bytes of an unknown request that the reply quotes, as in Redis.
pub(crate) const SHOWN_MAX: usize = 128;

impl Refusal<'_> {
    /// Writes the error reply.
    pub(crate) fn reply(self, out: &mut Vec<u8>) {
        match self {
            Self::Unknown(args) => {
                let mut pieces: Vec<&[u8]> = vec![
                    b"ERR unknown command '",
                    cut(args.at(0), SHOWN_MAX),
                    b"', with args beginning with: ",
                ];
                let mut left = SHOWN_MAX;
                for arg in args.from(1).iter() {
                    if left == 0 {
                        break;
                    }
                    let arg = cut(arg, left);
                    pieces.extend([&b"'"[..], arg, b"' "]);
                    left = left.saturating_sub(arg.len() + 3);
                }
                reply::error_of(out, &pieces);
            }
            Self::Arguments(command) => {
                let name = row_of(command).name;
                reply::error(
                    out,
                    format_args!("ERR wrong number of arguments for '{name}' command"),
                );
            }
            Self::Subcommand(command, name) => {
                let of = row_of(command).name.to_uppercase();
                let (name, of) = (cut(name, SHOWN_MAX), of.as_bytes());
                let start = b"ERR unknown subcommand '";
                reply::error_of(out, &[start, name, b"'. Try ", of, b" HELP."]);
            }
            Self::SubcommandArguments(command, name) => {
                let of = row_of(command).name;
                let wrong = format_args!("ERR wrong number of arguments for '{of}|{name}' command");
                reply::error(out, wrong);
            }
        }
    }
}

/// At most the first `most` bytes, up to the first NUL: the part that Redis quotes.
pub(crate) fn cut(text: &[u8], most: usize) -> &[u8] {
    let end = text.iter().take(most).position(|&byte| byte == 0);
    &text[..end.unwrap_or(text.len().min(most))]
}

/// The request's command, if a command of that name exists and takes that number of arguments.
#[inline]
pub(crate) fn check(args: Args<'_>) -> Result<Command, Refusal<'_>> {
    let command = table::find(args.at(0)).ok_or(Refusal::Unknown(args))?;
    // A request has at most 2^31 arguments.
    let (count, arity) = (args.len() as i64, row_of(command).arity);
    let fits = if arity < 0 { count >= -arity } else { count == arity };
    let fits = fits
        && match command {
            Command::Ping => count <= 2,
            // Keys and values come in pairs.
            Command::Mset => count % 2 == 1,
            _ => true,
        };
    if fits { Ok(command) } else { Err(Refusal::Arguments(command)) }
}

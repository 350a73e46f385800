//! What is wrong with a request before anything is looked up.

use std::fmt::{self, Display};

use super::table::{self, Command, row_of};
use crate::resp::Args;
use crate::resp::reply::shown;

/// Why a request is not carried out, as Redis says it.
#[derive(Clone, Copy)]
pub(crate) enum Refusal<'a> {
    Unknown(Args<'a>),
    Arguments(Command),
    /// The argument is not the name of one of the command's own commands.
    Subcommand(Command, &'a [u8]),
    /// As `Arguments`, of a command's own command.
    SubcommandArguments(Command, &'static str),
}

/// Bytes of an unknown request that are shown, as in Redis.
pub(crate) const SHOWN_MAX: usize = 128;

impl Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(args) => {
                let name = cut(args.at(0), SHOWN_MAX);
                write!(f, "ERR unknown command '{}', with args beginning with: ", shown(name))?;
                let mut left = SHOWN_MAX;
                for arg in args.from(1).iter() {
                    if left == 0 {
                        break;
                    }
                    let arg = cut(arg, left);
                    write!(f, "'{}' ", shown(arg))?;
                    left = left.saturating_sub(arg.len() + 3);
                }
                Ok(())
            }
            Self::Arguments(command) => {
                let name = row_of(*command).name;
                write!(f, "ERR wrong number of arguments for '{name}' command")
            }
            Self::Subcommand(command, name) => {
                let of = row_of(*command).name.to_uppercase();
                let name = shown(cut(name, SHOWN_MAX));
                write!(f, "ERR unknown subcommand '{name}'. Try {of} HELP.")
            }
            Self::SubcommandArguments(command, name) => {
                let of = row_of(*command).name;
                write!(f, "ERR wrong number of arguments for '{of}|{name}' command")
            }
        }
    }
}

/// The first so many bytes.
pub(crate) fn cut(text: &[u8], most: usize) -> &[u8] {
    &text[..text.len().min(most)]
}

/// The request's command, if there is one of that name that takes so many arguments.
#[inline]
pub(crate) fn check(args: Args<'_>) -> Result<Command, Refusal<'_>> {
    let command = table::find(args.at(0)).ok_or(Refusal::Unknown(args))?;
    // A request has no more than 2^31 arguments.
    let (count, arity) = (args.len() as i64, row_of(command).arity);
    let fits = if arity < 0 { count >= -arity } else { count == arity };
    let fits = fits
        && match command {
            Command::Ping | Command::Flushall => count <= 2,
            // Keys and values.
            Command::Mset => count % 2 == 1,
            _ => true,
        };
    if fits { Ok(command) } else { Err(Refusal::Arguments(command)) }
}

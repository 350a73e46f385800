//! A redis-server of the test's own, a proxy that cuts connections, and consumers that count.

pub(crate) mod count;
#[path = "../../../../uwork/tests/support/left_out.rs"]
pub(crate) mod left_out;
pub(crate) mod proxy;
pub(crate) mod server;
pub(crate) mod until;

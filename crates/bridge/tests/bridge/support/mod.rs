//! A redis-server of the test's own, a proxy that cuts connections, and consumers that count.

#[path = "../../../../uwork/tests/support/address.rs"]
pub(crate) mod address;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod count;
#[path = "../../../../uwork/tests/support/guard.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
pub(crate) mod guard;
#[path = "../../../../uwork/tests/support/left_out.rs"]
pub(crate) mod left_out;
#[path = "../../../../uwork/tests/support/owned.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
pub(crate) mod owned;
#[path = "../../../../uwork/tests/support/patience.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
pub(crate) mod patience;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod server;

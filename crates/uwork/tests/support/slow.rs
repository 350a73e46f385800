//! How slow the machine is that the tests are built for: a virtual one, say, whose processor is a program.

/// So many times slower than others, as `UWORK_TEST_SLOW` said when the tests were built: waits may take that much
/// longer, and what is done over and over is done less often by that.
pub(crate) const SLOW: u64 = match option_env!("UWORK_TEST_SLOW") {
    None => 1,
    Some(number) => match u64::from_str_radix(number, 10) {
        Ok(number) if number > 0 => number,
        _ => panic!("UWORK_TEST_SLOW is a number, 1 or more"),
    },
};

/// How often to do here what is done so often elsewhere. Not 0.
pub(crate) const fn times(elsewhere: u64) -> u64 {
    if elsewhere < SLOW { 1 } else { elsewhere / SLOW }
}

//! The slowness of the machine for which the tests are built, for example of an emulated one.

/// The factor by which it is slower than others, from `UWORK_TEST_SLOW` at build time. Waits may
/// take this many times longer, and repeated steps are repeated this many times less.
pub(crate) const SLOW: u64 = match option_env!("UWORK_TEST_SLOW") {
    None => 1,
    Some(number) => match u64::from_str_radix(number, 10) {
        Ok(number) if number > 0 => number,
        _ => panic!("UWORK_TEST_SLOW is a number, 1 or more"),
    },
};

/// How often to repeat a step that is repeated `elsewhere` times on other machines. Not 0.
pub(crate) const fn times(elsewhere: u64) -> u64 {
    if elsewhere < SLOW { 1 } else { elsewhere / SLOW }
}

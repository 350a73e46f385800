//! CPU sets: the two text formats and set algebra.

use std::collections::BTreeSet;

use proptest::prelude::*;
use uwork_policy::cpuset::{CpuSet, CpuSetError, MAX_CPUS};

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn list_error(list: &str) -> String {
    list.parse::<CpuSet>().unwrap_err().to_string()
}

#[test]
fn reads_the_kernels_list_format() {
    assert_eq!(set("0-3,8,10-11\n").iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8, 10, 11]);
    assert_eq!(set("5,4-6,5").to_string(), "4-6");
    assert_eq!(set("0-7:2/4").to_string(), "0-1,4-5");
    assert_eq!(set(" \n"), CpuSet::new());
}

#[test]
fn a_wrong_list_says_which_part_and_what_is_allowed() {
    assert!(list_error("0,,2").starts_with("'' is not a CPU number (allowed: "));
    assert!(list_error("0-").starts_with("'' is not a CPU number"));
    assert!(list_error("-1").starts_with("'' is not a CPU number"));
    assert!(list_error("+1").starts_with("'+1' is not a CPU number"));
    assert_eq!(list_error("8192"), "CPU 8192 is out of range (allowed: 0 to 8191)");
    assert_eq!(
        list_error("0-99999999999999999999"),
        "CPU 99999999999999999999 is out of range (allowed: 0 to 8191)"
    );
    assert_eq!(list_error("3-1"), "the range '3-1' runs backwards (allowed: LOW-HIGH)");
    for stride in ["0-7:2", "0-7:0/4", "0-7:5/4", "0-7:1/0", "0-7:a/b"] {
        assert_eq!(stride.parse::<CpuSet>(), Err(CpuSetError::BadStride(stride.to_owned())));
    }
}

#[test]
fn reads_the_hexadecimal_mask_format() {
    assert_eq!(CpuSet::parse_mask("ff\n").unwrap(), set("0-7"));
    assert_eq!(CpuSet::parse_mask("0x80000001,00000000").unwrap(), set("32,63"));
    assert_eq!(CpuSet::parse_mask("0").unwrap(), CpuSet::new());
    for wrong in ["", "0x", "g", "+f", "1,,2", "123456789"] {
        assert!(matches!(CpuSet::parse_mask(wrong), Err(CpuSetError::NotHex(_))), "{wrong:?}");
    }
    let too_wide = format!("1{}", ",00000000".repeat(MAX_CPUS as usize / 32));
    assert_eq!(CpuSet::parse_mask(&too_wide), Err(CpuSetError::OutOfRange("8192".to_owned())));
}

#[test]
fn sets_that_hold_the_same_cpus_are_equal_whatever_was_taken_out() {
    let mut shrunk = set("1,200");
    assert!(shrunk.remove(200));
    assert!(!shrunk.remove(200));
    assert_eq!(shrunk, CpuSet::single(1));
    assert_eq!(shrunk.last(), Some(1));
    assert_eq!(set("0,500").and(&set("0-63")), CpuSet::single(0));
    assert_eq!(set("0,500").and_not(&set("400-600")), CpuSet::single(0));
}

#[test]
#[should_panic(expected = "CPU numbers are below 8192")]
fn a_number_that_no_machine_has_is_refused() {
    CpuSet::new().insert(MAX_CPUS);
}

fn any_cpus() -> impl Strategy<Value = BTreeSet<u32>> {
    prop::collection::btree_set(prop_oneof![0..200u32, 0..MAX_CPUS], 0..40)
}

proptest! {
    #[test]
    fn printing_and_reading_back_changes_nothing(cpus in any_cpus()) {
        let set: CpuSet = cpus.iter().copied().collect();
        prop_assert_eq!(set.to_string().parse(), Ok(set));
    }

    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in "[-0-9,:/a-f x]{0,24}") {
        if let Err(error) = text.parse::<CpuSet>() {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
        let _ = CpuSet::parse_mask(&text);
    }

    #[test]
    fn set_algebra_agrees_with_a_plain_set(a in any_cpus(), b in any_cpus()) {
        let (x, y): (CpuSet, CpuSet) = (a.iter().copied().collect(), b.iter().copied().collect());
        prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
        prop_assert_eq!(x.and(&y).iter().collect::<BTreeSet<_>>(), &a & &b);
        prop_assert_eq!(x.or(&y).iter().collect::<BTreeSet<_>>(), &a | &b);
        prop_assert_eq!(x.and_not(&y).iter().collect::<BTreeSet<_>>(), &a - &b);
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        prop_assert_eq!(x.intersects(&y), !a.is_disjoint(&b));
        prop_assert_eq!((x.len(), x.is_empty()), (a.len(), a.is_empty()));
        prop_assert_eq!((x.first(), x.last()), (a.first().copied(), a.last().copied()));
        prop_assert_eq!(x == y, a == b);
    }
}

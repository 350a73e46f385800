//! Which mode of per-CPU locks a process gets.

use uwork_policy::percpu::{Mode, Wishes, choose};

fn wishes<'a>(variable: Option<&'a str>, program: Option<Mode>, isolated: &str) -> Wishes<'a> {
    Wishes {
        variable: variable.map(|text| ("UWORK_PWLOCKS", text)),
        program,
        isolated: isolated.parse().unwrap(),
        sections_refused: None,
    }
}

#[test]
fn the_environment_comes_first_then_the_program_then_isolation() {
    use Mode::{Asymmetric, Local, Remote};
    for (variable, program, isolated, mode, is_invalid) in [
        (None, None, "", Local, false),
        (None, None, "1", Remote, false),
        (None, Some(Asymmetric), "1", Asymmetric, false),
        (None, Some(Local), "1", Local, false),
        (Some("0"), Some(Asymmetric), "1", Local, false),
        (Some("1"), None, "", Remote, false),
        (Some("2"), Some(Local), "", Asymmetric, false),
        (Some("3"), Some(Asymmetric), "", Asymmetric, true),
        (Some(""), None, "", Local, false),
        (Some(""), None, "1", Remote, false),
        (Some("on"), None, "", Local, true),
        (Some(" 1"), None, "", Local, true),
        (Some("01"), None, "", Local, true),
    ] {
        let choice = choose(&wishes(variable, program, isolated));
        assert_eq!(
            (choice.mode, choice.is_invalid),
            (mode, is_invalid),
            "{variable:?} {program:?}"
        );
    }
}

#[test]
fn a_bad_variable_is_reported_with_the_allowed_values() {
    let choice = choose(&wishes(Some("yes"), None, ""));
    let allowed = "0 (local), 1 (remote), 2 (asymmetric)";
    let told = format!("UWORK_PWLOCKS=\"yes\" is not one of {allowed}; no CPU is isolated");
    assert_eq!(choice.reason, told);
}

// Catches: a name that a report prints and the variable does not accept.
#[test]
fn a_mode_is_accepted_by_number_and_by_name() {
    for mode in Mode::ALL {
        assert_eq!(mode.name().parse(), Ok(mode));
        assert_eq!(mode.number().to_string().parse(), Ok(mode));
    }
    assert!("Local".parse::<Mode>().is_err() && "0 (local)".parse::<Mode>().is_err());
}

#[test]
fn without_sections_the_spinlock_is_chosen_and_the_reason_given() {
    for mode in Mode::ALL {
        let sections_refused = Some("rseq(2) is missing".to_owned());
        let choice = choose(&Wishes { sections_refused, ..wishes(None, Some(mode), "") });
        assert_eq!(choice.mode, Mode::Remote);
        assert_eq!(choice.is_invalid, mode != Mode::Remote);
        assert_eq!(choice.reason.contains("rseq(2) is missing"), mode != Mode::Remote);
    }
}

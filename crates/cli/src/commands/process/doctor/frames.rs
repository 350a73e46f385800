//! Frames of a printed stack that say nothing: functions of the standard library and of the system
//! whose only purpose is to call the next one. A Rust item has several between any two of its own.

use std::fmt::Write as _;

/// The text without these frames. A line at the end of each stack has their number. The innermost frame
/// stays, and the others keep their numbers.
pub(in super::super) fn without_callers(text: &str) -> String {
    let mut out = String::new();
    let mut left_out = 0;
    // Not `lines`, which takes a carriage return away.
    for line in text.split_terminator('\n') {
        let call = call(line);
        if call.is_none() {
            end_stack(&mut out, &mut left_out);
        }
        match call {
            Some((number, call)) if number > 0 && only_calls(call) => left_out += 1,
            _ => _ = writeln!(out, "{line}"),
        }
    }
    end_stack(&mut out, &mut left_out);
    out
}

fn end_stack(out: &mut String, left_out: &mut usize) {
    match std::mem::take(left_out) {
        0 => {}
        1 => out.push_str("        (1 frame that only calls the next is left out)\n"),
        count => _ = writeln!(out, "        ({count} frames that only call the next are left out)"),
    }
}

/// The number of a frame, and what stands behind its address. None for other lines.
fn call(line: &str) -> Option<(usize, &str)> {
    let (number, rest) = line.strip_prefix("    ")?.trim_start().split_once(" 0x")?;
    let (_, call) = rest.split_once(' ')?;
    Some((number.parse().ok()?, call))
}

/// Whether the function of `NAME (FILE:LINE)` only calls the next. The file decides, if it is known: debug
/// information without paths has the last part of a name alone.
fn only_calls(call: &str) -> bool {
    let file_begins = [" (/", " (library/", " (./", " (../"];
    let at = file_begins.iter().filter_map(|begin| call.find(begin)).min();
    let (name, file) = at.map_or((call, ""), |at| call.split_at(at));
    // As in `<T as Trait>::function`.
    let of_trait = name.starts_with('<').then(|| name.rsplit_once(" as ")).flatten();
    let path = of_trait.map_or(name, |(_, of_trait)| of_trait);
    let is_of = |paths: &[&str], files: &[&str]| match file {
        "" => paths.iter().any(|begin| path.starts_with(begin)),
        _ => files.iter().any(|part| file.contains(part)),
    };
    let is_std = || {
        let files = ["library/std/src/", "library/core/src/", "library/alloc/src/"];
        is_of(&["std::", "core::", "alloc::"], &files)
    };
    match last_part(name).as_str() {
        "start_thread" | "clone" | "clone3" | "__clone3" | "_start" => {
            !name.contains("::") && is_of(&[name], &["nptl/", "sysdeps/", "csu/"])
        }
        // Not that of `Once`, in which a thread may wait.
        "call_once" | "call_mut" | "call" => is_of(
            &["core::ops::function::Fn"],
            &[
                "library/core/src/ops/function.rs",
                "library/core/src/panic/unwind_safe.rs",
                "library/alloc/src/boxed.rs",
            ],
        ),
        "__rust_try" => file.is_empty() || is_std(),
        "catch_unwind" | "do_call" | "try" | "r#try" | "__rust_begin_short_backtrace" => is_std(),
        "lang_start" | "lang_start_internal" | "thread_start" => is_std(),
        "{{closure}}" | "{closure#0}" | "{closure#1}" => {
            of_trait.is_none()
                && is_of(
                    &["std::thread::", "std::rt::"],
                    &["library/std/src/thread/", "library/std/src/rt.rs"],
                )
        }
        _ => false,
    }
}

/// The last part of a path, without generic arguments.
fn last_part(name: &str) -> String {
    let (mut part, mut depth, mut before) = (String::new(), 0_usize, ' ');
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            // That of `->` closes nothing.
            '>' if before != '-' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => part.clear(),
            _ if depth == 0 => part.push(c),
            _ => {}
        }
        before = c;
    }
    part.trim_end_matches("{{vtable.shim}}").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: &str = r#"stacks of 2 workers
  uw/u0 (thread 7, slot 0), asleep, in app::{{closure}} of queue "q", for at most 3.6 s
      0 0x1 core::ops::function::FnOnce::call_once (library/core/src/ops/function.rs:250)
      1 0x2 std::sync::poison::once::Once::call_once (library/std/src/sync/poison/once.rs:1)
      2 0x3 app::waits (/a (b)/src/main.rs:5)
      3 0x3 call_once<fn() -> app::A<u8>, ()> (/rustc/5/library/core/src/ops/function.rs:250)
      4 0x4 <core::panic::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once
      5 0x5 std::panicking::catch_unwind::do_call (library/std/src/panicking.rs:581)
      6 0x6 __rust_try
      7 0x7 catch_unwind<(), app::B<app::{closure_env#0}>> (library/std/src/panicking.rs:544)
      8 0x8 std::panic::catch_unwind (library/std/src/panic.rs:359)
      9 0x9 <alloc::boxed::Box<dyn core::ops::function::FnOnce<()>> as core::ops::function::FnOnce<()>>::call_once
     10 0xa app::catch_unwind (/src/lib.rs:1)
     11 0xb uwork::join::closure::Task<F,R>::perform (/src/closure.rs:89)
     12 0xc std::sys::thread::unix::Thread::new::thread_start (library/std/src/sys/thread/unix.rs:9)
     13 0xd core::ops::function::FnOnce::call_once{{vtable.shim}} (library/core/src/ops/function.rs:250)
     14 0xe start_thread (./nptl/pthread_create.c:442)
     15 0xf clone3 (../sysdeps/unix/sysv/linux/x86_64/clone3.S:81)
     16 0x1 <app::Config as core::clone::Clone>::clone (/src/config.rs:7)
     17 0x1 <app::Config as core::clone::Clone>::clone
     18 0x1 app::Pool::start_thread
     19 0x1 start_thread (/src/app.c:7)
     20 0x1 call<alloc::boxed::Box<dyn core::ops::function::FnOnce<()>>> (/src/app.rs:5)
     21 0x1 std::sync::poison::once::Once::call_once<dyn core::ops::function::FnOnce<()>>
     22 0x1 catch_unwind (/src/app-core/src/x.rs:5)
     23 0x1 <std::thread::Thread as app::T>::f::{{closure}}
  uw/u1 (thread 8, slot 1), asleep, in app::call of queue "q", for at most 3.6 s
      0 0x7f63a4229827
      1 0x7f63a4229828 clone3
        (the same stack as another)
  deadlock: item app::call 0x1 (slot 1) of queue "q"
"#;

    // Catches: a frame of the program, or of a wait in the standard library, that is left out; a count
    // at another stack.
    #[test]
    fn only_frames_that_call_the_next_are_left_out() {
        let text = without_callers(STACK);
        let kept: Vec<&str> =
            text.lines().map(|line| line.trim_start().split(' ').next().unwrap()).collect();
        let expected =
            "stacks uw/u0 0 1 2 10 11 16 17 18 19 20 21 22 23 (11 uw/u1 0 (1 (the deadlock:";
        assert_eq!(kept.join(" "), expected, "{text}");
        assert!(
            text.contains("\n        (11 frames that only call the next are left out)\n  uw/u1")
        );
        assert!(
            text.contains("\n        (1 frame that only calls the next is left out)\n        (the")
        );
        assert_eq!(without_callers(&text), text);
    }
}

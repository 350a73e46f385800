#!/usr/bin/env bash
# The tests of the kernel-compatible headers against a built library. Arguments: the folder of the library, and the
# parts to run: headers, missing, flags, own, modules, documented, plain, debug, address, thread.
set -euo pipefail
cd "$(dirname "$0")"
suite=kernel
source ../../crates/capi/tests/harness.sh

programs() {
    local how=$1 rounds=$2 test name mode tests=() started=$SECONDS
    shift 2
    for test in *.c; do
        name=${test%.c}
        case "$how $name" in
            *' pwlocks' | *' pwforks') ;;
            # The thread sanitizer does not model fences.
            'thread waiting') ;;
            # The messages of its panics are printed by the Rust runtime, which waits with futexes.
            'thread refused' | 'thread hooks') ;;
            *) tests+=("$name") ;;
        esac
    done
    for test in contract/*.c; do
        start_link "$how/contract-$(basename "$test" .c)" "$test" -std=c11 "$@"
    done
    for test in "${tests[@]}" pwlocks pwforks; do
        start_link "$how/$test" "$test.c" -std=gnu11 "$@"
    done
    finish_links

    for test in contract/*.c; do
        name=contract-$(basename "$test" .c)
        run "$how/$name" "$out/$name" rounds="$rounds"
    done
    for test in "${tests[@]}"; do
        local arguments=()
        [ "$test" != environment ] ||
            arguments=(numbers=1,0x2,-3 "text=some words" flag large=0x10000000000)
        [ "$test" != values ] || arguments=(level=5 count=0x10 called=-7 names=a,b quiet)
        run "$how/$test" "$out/$test" "${arguments[@]}"
    done
    for mode in $modes; do
        UWORK_PWLOCKS=$mode run "$how/pwlocks-$mode" "$out/pwlocks" rounds="$rounds"
        # For the same reason as forks.c.
        case "$how" in plain*) UWORK_PWLOCKS=$mode run "$how/pwforks-$mode" "$out/pwforks" ;; esac
    done
    say "$how" "$(ls contract/*.c | wc -l) contracts, the environment and per-CPU data (modes $modes) with $cc: ran ($((SECONDS - started)) s)"
}

# Each header alone, with each compiler and language.
headers_part() {
    local compiler plus header name count=0
    "$kernel/atomics/generate.sh" --check
    for compiler in "${compilers[@]}"; do
        plus=$(plus_of "$compiler")
        for header in $(cd "$kernel/include/uwork/kernel" && find linux asm -name '*.h'); do
            ! grep -q '^#error' "$kernel/include/uwork/kernel/$header" || continue # the part `missing`
            printf '#include <%s>\nextern int nothing;\n' "$header" >"$out/alone.c"
            cp "$out/alone.c" "$out/alone.cpp"
            "$compiler" -std=c11 "${strict[@]}" "${includes[@]}" -fsyntax-only "$out/alone.c"
            "$plus" -std=c++17 "${strict[@]}" "${includes[@]}" -fsyntax-only "$out/alone.cpp"
            # The manual page must list it.
            name=${header##*/}
            grep -q "\b${name%.h}\b" "$kernel/man/uwork-kernel.7" || failed kernel/headers "$header is in no manual page"
            count=$((count + 1))
        done
    done
    # Behind the C library's header, which declares less in ISO C mode.
    printf '%s\n' '#include <string.h>' '#include <linux/string.h>' 'int use(char *text);' 'int use(char *text)' \
        '{ return strcasecmp(text, strsep(&text, stpcpy(text, "a"))) + strncasecmp(text, "a", strnlen(text, 1)); }' >"$out/behind.c"
    for compiler in "${compilers[@]}"; do
        "$compiler" -std=c11 "${strict[@]}" "${includes[@]}" -fsyntax-only "$out/behind.c"
    done
    # Behind and before the system's header, whose newer versions have this macro, too.
    local system theirs both own='#include <linux/compiler.h>'
    for compiler in "${compilers[@]}"; do
        system=$(echo '#include <linux/stddef.h>' | "$compiler" -xc -M - | grep -o '/[^ ]*/linux/stddef\.h')
        theirs=$(printf '%s\n' "#include \"$system\"" '#ifndef __counted_by' '#define __counted_by(m)' '#endif')
        for both in "$theirs"$'\n'"$own" "$own"$'\n'"$theirs"; do
            printf '%s\n' "$both" 'struct data { int nr; int values[] __counted_by(nr); };' >"$out/system.c"
            "$compiler" -std=gnu11 -Wall -Wextra -Werror "${includes[@]}" -fsyntax-only "$out/system.c"
        done
    done
    # The compiler checks formats, and accepts the kernel's own.
    local call
    for call in 'pr_info("%s\n", 3)' 'pr_warn("%d\n")' 'printk("%d\n", "x")' 'alloc_workqueue("%s", 0, 0, 3)' \
        'kthread_run(f, NULL, "%s", 4)' 'WARN(1, "%s", 5)'; do
        printf '#include <linux/module.h>\n#include <linux/kthread.h>\nint f(void *d);\nint f(void *d) { (void)d; %s; return 0; }\n' \
            "${call//\\/\\\\}" >"$out/format.c"
        for compiler in "${compilers[@]}"; do
            if "$compiler" -std=gnu11 -Wall -Werror=format "${includes[@]}" -fsyntax-only "$out/format.c" 2>"$out/log" ||
                ! grep -q 'format' "$out/log"; then
                failed kernel/headers "$compiler takes $call" "$out/log"
            fi
        done
    done
    say headers "$count, alone, as C11 and C++17, with ${compilers[*]}: ok"
}

# does_not_compile TEXT HEADERS CODE: the compiler refuses this, with a message that has the text.
does_not_compile() {
    local compiler
    printf '%b\n' "$2" "$3" >"$out/missing.c"
    for compiler in "${compilers[@]}"; do
        if "$compiler" -std=gnu11 -Wno-error "${includes[@]}" -fsyntax-only "$out/missing.c" 2>"$out/log" ||
            ! grep -q "$1" "$out/log"; then
            failed kernel/missing "$compiler takes, or refuses without a reason: $2 $3" "$out/log"
        fi
    done
}

# What these headers do not have says what to do instead. A program's own header is taken, before and behind these.
missing_part() {
    local header count=0
    for header in $(cd "$kernel/include/uwork/kernel" && grep -rl '^#error' linux); do
        does_not_compile "$header: a " "#include <linux/module.h>\n#include <$header>" ""
        mkdir -p "$out/brought/$(dirname "$header")"
        echo 'static const int brought = 1;' >"$out/brought/$header"
        printf '#include <%s>\nint use(void);\nint use(void) { return brought; }\n' "$header" >"$out/missing.c"
        "$cc" "-I$out/brought" "${includes[@]}" -fsyntax-only "$out/missing.c"
        "$cc" "${includes[@]}" "-I$out/brought" -fsyntax-only "$out/missing.c"
        grep -q "\b$(basename "$header" .h)\b" "$kernel/man/uwork-kernel.7" || failed kernel/missing "$header is in no manual page"
        count=$((count + 1))
    done
    does_not_compile 'use work_pending(work) instead of list_empty' '#include <linux/module.h>' \
        'int f(struct work_struct *w);\nint f(struct work_struct *w) { return w->entry[0] != 0; }'
    does_not_compile 'a process has no interrupts' '#include <linux/module.h>\n#include <linux/interrupt.h>' \
        'int f(void);\nint f(void) { return request_irq(1, NULL, 0, "f", NULL); }'
    printf '#define UW_KERNEL_HAS_ALL\n#include <linux/module.h>\nstatic inline int request_irq(int irq) { return irq; }\n' >"$out/missing.c"
    "$cc" -std=gnu11 -Wall -Werror "${includes[@]}" -fsyntax-only "$out/missing.c"
    does_not_compile 'include linux/types.h first' '#include <linux/workqueue.h>' \
        'int f(struct work_struct *w);\nint f(struct work_struct *w) { return w->data != 0; }'
    say missing "$count headers, two members and a function: ok"
}

# A module that says that it has passed, and nothing else.
passes() {
    "$guard" "$1" && grep -q passed "$out/log" && ! grep -q 'failed\|WARNING\|BUG' "$out/log"
}

# Modules as the kernel's documentation teaches to write them.
documented_part() {
    local module name count=0
    for cc in "${compilers[@]}"; do
        for module in documented/*.c; do
            name=$(basename "$module" .c)
            "$cc" -std=gnu11 -O1 -Wall -Werror -DKBUILD_MODNAME="\"$name\"" "${includes[@]}" -o "$out/$name" "$module" "${libs[@]}"
            run "documented/$name" passes "$out/$name"
            count=$((count + 1))
        done
    done
    say documented "$count: ran"
}

# Programs that have kernel headers of their own include workqueue.h and timer.h: from the library's
# folder behind theirs, by path, and as copies.
own_part() {
    local how program count=0
    mkdir -p "$out/copy/linux"
    cp "$kernel"/include/uwork/kernel/linux/{workqueue,timer}.h "$out/copy/linux"
    for cc in "${compilers[@]}"; do
        for program in folder compat late; do
            for how in "-I$kernel/include/uwork/kernel" -DBY_PATH "-I$out/copy"; do
                "$cc" -std=gnu11 -O1 "${strict[@]}" -Wno-unused-function -Iown/folder/$([ $program = folder ] || echo none) \
                    -I"$kernel/include" "$how" -o "$out/own" own/$program.c "${libs[@]}"
                run "own/$program$how" "$out/own"
                count=$((count + 1))
            done
        done
    done
    say own "$count programs with kernel headers of their own: ran"
}

# The flags of pkg-config define what a source may ask for before its first include.
flags_part() {
    local flags
    flags=$(sed -n 's/^Cflags: -I[^ ]* //p' "$kernel/packaging/uwork-kernel.pc.in")
    flags=${flags/@CONFIG_64BIT@/$([[ $("$cc" -dM -E -x c /dev/null) != *__LP64__* ]] || echo -DCONFIG_64BIT=1)}
    printf '%s\n' '#if !defined(__KERNEL__) || !defined(MODULE) || !defined(CONFIG_SMP)' '#error not a module' '#endif' \
        '#if defined(__LP64__) != defined(CONFIG_64BIT)' '#error the wrong width' '#endif' '#include <linux/module.h>' >"$out/flags.c"
    for cc in "${compilers[@]}"; do
        # shellcheck disable=SC2086 # several flags
        "$cc" -std=gnu11 -Wall -Werror $flags "${includes[@]}" -fsyntax-only "$out/flags.c"
        ! "$cc" -std=gnu11 "${includes[@]}" -fsyntax-only "$out/flags.c" 2>/dev/null ||
            failed kernel/flags "needs no flags"
    done
    say flags "$flags: ok"
}

# ends_with STATUS ARGUMENT...: the module that gets a signal.
ends_with() {
    local want=$1 got=0
    shift
    env --default-signal=INT "$guard" "$out/interrupted" "$@" || got=$?
    [ "$got" = "$want" ] || {
        echo "status $got instead of $want"
        return 1
    }
}

# Modules in the kernel's style, by the headers that they include: they compile unchanged, and run, also in the debug mode.
modules_part() {
    local module name standard count=0
    for cc in "${compilers[@]}"; do
        for module in modules/*.c; do
            name=$(basename "$module" .c)
            for standard in gnu11 c11; do
                "$cc" -std=$standard -O1 -Wall -Wextra -Werror "${includes[@]}" -o "$out/module" "$module" "${libs[@]}"
            done
            run "modules/$name" "$out/module"
            local arguments=()
            [ "$name" != ordinary ] || arguments=(has_data=0)
            UWORK_DEBUG=objects run "modules/$name-debug" "$out/module" "${arguments[@]}"
            count=$((count + 1))
        done
        "$(plus_of "$cc")" -std=c++17 -O1 "${strict[@]}" "${includes[@]}" -o "$out/module" language.cpp "${libs[@]}"
        run modules/language "$out/module"
    done
    # A signal ends the process during init and exit, and unloads a module that is loaded.
    "$cc" -std=gnu11 -O1 "${strict[@]}" "${includes[@]}" -o "$out/interrupted" interrupted/interrupted.c "${libs[@]}"
    local signal
    for signal in 2 15; do
        run "modules/init-$signal" ends_with $((128 + signal)) during=init signal=$signal uw.seconds=0.01
        run "modules/exit-$signal" ends_with $((128 + signal)) during=exit signal=$signal uw.seconds=0.01
        run "modules/load-$signal" ends_with 0 during=load signal=$signal uw.seconds=inf
    done
    say modules "$count: ran"
}

run_parts "$@"

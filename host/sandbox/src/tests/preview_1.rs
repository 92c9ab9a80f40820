//! What a program for WASI preview 1 finds: its own memory, and the descriptors that it has opened.

use std::sync::Arc;

use serde_json::json;

use super::guests::*;
use crate::*;

/// A program that takes all memory above its data, as Go and old libraries of C do, also what someone else has added
/// meanwhile.
const TAKES_ALL_MEMORY: &str = r#"(module
    (@producers (language "Go" "go1.27.3"))
    (import "wasi_snapshot_preview1" "fd_write"
        (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "args_sizes_get"
        (func $args_sizes_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 100) "one\n")
    (func $expect (param i32 i32)
        (if (i32.ne (local.get 0) (local.get 1)) (then unreachable)))
    (func $print
        (i32.store (i32.const 0) (i32.const 100))
        (i32.store (i32.const 4) (i32.const 4))
        (call $expect (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)) (i32.const 0))
        (call $expect (i32.load (i32.const 0)) (i32.const 100))
        (call $expect (i32.load (i32.const 8)) (i32.const 4)))
    (func (export "_start")
        (call $expect (memory.size) (i32.const 1))
        (call $print)
        (call $expect (memory.grow (i32.const 4)) (i32.const 1))
        (call $expect (memory.size) (i32.const 5))
        (memory.fill (i32.const 65536) (i32.const 255) (i32.const 262144))
        (memory.copy (i32.const 65536) (i32.const 100) (i32.const 4))
        (call $expect (i32.load (i32.const 65536)) (i32.load (i32.const 100)))
        (call $print)
        (call $expect (call $args_sizes_get (i32.const 16) (i32.const 20)) (i32.const 0))
        (call $expect (i32.load (i32.const 16)) (i32.const 1))
        (call $expect (call $args_get (i32.const 24) (i32.const 200)) (i32.const 0))
        (call $expect (i32.load (i32.const 24)) (i32.const 200))
        ;; A descriptor counts without a buffer too: 8 is BADF.
        (call $expect (call $fd_write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 8)) (i32.const 0))
        (call $expect (i32.load (i32.const 8)) (i32.const 0))
        (call $expect (call $fd_write (i32.const 99) (i32.const 0) (i32.const 0) (i32.const 8)) (i32.const 8))
        (call $expect (memory.grow (i32.const 65536)) (i32.const -1))))"#;

#[tokio::test]
async fn a_program_that_takes_all_memory_does_not_overwrite_that_of_the_adapter() {
    let sandbox = sandbox();
    let by_go = r#"(language "Go" "go1.27.3")"#;
    let by_clang = r#"(processed-by "clang" "13.0.0 (llvm)")"#;
    let by_a_compiler_without_a_name = "";
    for producer in [by_go, by_clang, by_a_compiler_without_a_name] {
        let program = TAKES_ALL_MEMORY.replace(by_go, producer);
        let program = wat::parse_str(program).unwrap();
        let program = Arc::new(sandbox.load(&program).unwrap());
        assert_eq!(program.form, Form::Preview1Command);
        let report = sandbox.run(&program, call()).await;
        assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
        assert_eq!(report.stdout, "one\none\n");
    }
}

#[tokio::test]
async fn an_access_above_all_memory_traps_in_a_moved_program() {
    let sandbox = sandbox();
    // Compilers leave such an access in code that never runs.
    for (is_reached, succeeds) in [(0, true), (1, false)] {
        let program = format!(
            r#"(module
                (import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))
                (memory (export "memory") 1)
                (func (export "_start")
                    (if (i32.const {is_reached})
                        (then (drop (i32.load offset=4294967292 (i32.const 0)))))))"#
        );
        let program = Arc::new(sandbox.load(&wat::parse_str(program).unwrap()).unwrap());
        let report = sandbox.run(&program, call()).await;
        assert_eq!(
            report.outcome == Outcome::Succeeded,
            succeeds,
            "{report:#?}"
        );
    }
}

#[tokio::test]
async fn a_program_without_functions_for_paths_has_no_descriptor_of_a_root() {
    let sandbox = sandbox();
    let unlink = r#""path_unlink_file" (func (param i32 i32 i32) (result i32))"#;
    let advise = r#""fd_advise" (func (param i32 i64 i64 i32) (result i32))"#;
    // 8 is BADF.
    for (import, exit_code) in [(unlink, None), (advise, Some(8))] {
        let program = format!(
            r#"(module
                (import "wasi_snapshot_preview1" {import})
                (import "wasi_snapshot_preview1" "fd_fdstat_get" (func $fdstat (param i32 i32) (result i32)))
                (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
                (memory (export "memory") 1)
                (func (export "_start") (call $exit (call $fdstat (i32.const 3) (i32.const 0)))))"#
        );
        let program = Arc::new(sandbox.load(&wat::parse_str(program).unwrap()).unwrap());
        let report = sandbox.run(&program, call()).await;
        let details = report
            .failure
            .as_ref()
            .and_then(|failed| failed.details.clone());
        let expected = exit_code.map(|code: u8| json!({ "exit_code": code }));
        assert_eq!(details, expected, "{report:#?}");
    }
}

/// Returns a program printing 200,000 letters in one write, with a secret at `at`, never checking how much was accepted.
fn printing_at_once(at: usize) -> String {
    format!(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_write"
                (func $fd_write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 8)
            (data (i32.const 100) "hunter2-and-more")
            (data (i32.const 200) "\nend\n")
            (func $print (param i32 i32)
                (i32.store (i32.const 0) (local.get 0))
                (i32.store (i32.const 4) (local.get 1))
                (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
            (func (export "_start")
                (memory.fill (i32.const 65536) (i32.const 97) (i32.const 200000))
                (memory.copy (i32.add (i32.const 65536) (i32.const {at})) (i32.const 100) (i32.const 16))
                (call $print (i32.const 65536) (i32.const 200000))
                (call $print (i32.const 200) (i32.const 5))))"#
    )
}

#[tokio::test]
async fn a_long_write_is_taken_whole_and_no_part_of_a_secret_is_left() {
    const LIMIT: usize = 64 << 10;
    let sandbox = sandbox();
    for (at, stdio_bytes_max) in [
        (LIMIT - 6, LIMIT),
        (LIMIT - 6, 1 << 20),
        (LIMIT + 7, 1 << 20),
        (1000, 1004),
    ] {
        let program = wat::parse_str(printing_at_once(at)).unwrap();
        let program = Arc::new(sandbox.load(&program).unwrap());
        let mut call = call();
        call.secrets = Arc::new([("db".to_owned(), Secret::new("hunter2-and-more"))].into());
        call.limits.stdio_bytes_max = stdio_bytes_max;
        let report = sandbox.run(&program, call).await;
        assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
        let (text, about) = (&report.stdout, format!("at {at} of {stdio_bytes_max}"));
        assert!(!text.contains("hunt"), "{about}");
        assert!(text[at..].starts_with("[secret db]"), "{about}");
        let whole = 200_005;
        if stdio_bytes_max < whole {
            let dropped = (whole - stdio_bytes_max) as u64;
            assert_eq!(report.stdout_bytes_dropped, dropped, "{about}");
        } else {
            assert_eq!(text.len(), whole - 16 + "[secret db]".len(), "{about}");
            assert!(text.ends_with("\nend\n"), "{about}");
        }
    }
}

/// Prints the number and total size of its arguments, then of its variables. Traps unless each text ends in a NUL byte and the last
/// letter of all is `a`.
const COUNTS_INPUT: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write"
        (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "args_sizes_get"
        (func $args_sizes_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "environ_sizes_get"
        (func $environ_sizes_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "environ_get" (func $environ_get (param i32 i32) (result i32)))
    (memory (export "memory") 100)
    (func $expect (param i32) (if (i32.eqz (local.get 0)) (then unreachable)))
    (func $check (param $count i32) (param $size i32)
        (local $at i32) (local $text i32) (local $next i32)
        (loop $texts
            (if (i32.lt_u (local.get $at) (local.get $count)) (then
                (local.set $text (i32.load (i32.add (i32.const 1024) (i32.mul (local.get $at) (i32.const 4)))))
                ;; Each text begins behind the end of the one before.
                (if (i32.gt_u (local.get $at) (i32.const 0))
                    (then (call $expect (i32.eqz (i32.load8_u (i32.sub (local.get $text) (i32.const 1)))))))
                (local.set $at (i32.add (local.get $at) (i32.const 1)))
                (br $texts))))
        ;; The last letter of all, and its end.
        (local.set $next (i32.add (i32.const 1048576) (local.get $size)))
        (call $expect (i32.eqz (i32.load8_u (i32.sub (local.get $next) (i32.const 1)))))
        (call $expect (i32.eq (i32.load8_u (i32.sub (local.get $next) (i32.const 2))) (i32.const 97)))
        ;; Nothing is written behind them.
        (call $expect (i32.eqz (i32.load8_u (local.get $next)))))
    (func $print (param $number i32) (local $at i32)
        (local.set $at (i32.const 128))
        (i32.store8 (i32.const 128) (i32.const 10))
        (loop $digits
            (local.set $at (i32.sub (local.get $at) (i32.const 1)))
            (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10))))
            (local.set $number (i32.div_u (local.get $number) (i32.const 10)))
            (br_if $digits (local.get $number)))
        (i32.store (i32.const 0) (local.get $at))
        (i32.store (i32.const 4) (i32.sub (i32.const 129) (local.get $at)))
        (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
    (func (export "_start")
        (drop (call $args_sizes_get (i32.const 16) (i32.const 20)))
        (drop (call $args_get (i32.const 1024) (i32.const 1048576)))
        (call $check (i32.load (i32.const 16)) (i32.load (i32.const 20)))
        (call $print (i32.load (i32.const 16)))
        (call $print (i32.load (i32.const 20)))
        (memory.fill (i32.const 1048576) (i32.const 0) (i32.const 5000000))
        (drop (call $environ_sizes_get (i32.const 16) (i32.const 20)))
        (drop (call $environ_get (i32.const 1024) (i32.const 1048576)))
        (call $check (i32.load (i32.const 16)) (i32.load (i32.const 20)))
        (call $print (i32.load (i32.const 16)))
        (call $print (i32.load (i32.const 20)))))"#;

#[tokio::test]
async fn a_program_gets_arguments_and_variables_of_any_size() {
    let sandbox = sandbox();
    // Try a program moved within its memory, and one left in place.
    for producer in [r#"(language "Go" "go1.27.3")"#, r#"(language "Rust" "")"#] {
        let program =
            COUNTS_INPUT.replacen("(module", &format!("(module (@producers {producer})"), 1);
        let program = Arc::new(sandbox.load(&wat::parse_str(program).unwrap()).unwrap());
        for (count, letters) in [(1, 1), (1, 65_536), (1, 1 << 20), (8_000, 10), (3, 700_000)] {
            let mut call = call();
            let input = ProgramInput {
                args: vec![Template::parse(&"a".repeat(letters)).unwrap(); count],
                campanile_env: false,
                ..ProgramInput::default()
            };
            call.program = Arc::new(input);
            let env = (0..count).map(|n| (format!("V{n:05}"), "a".repeat(letters)));
            call.grants = Arc::new(Grants {
                env: env.collect(),
                ..Grants::default()
            });
            let report = sandbox.run(&program, call).await;
            let about = format!("{count} of {letters}: {:#?}", report.failure);
            assert_eq!(report.outcome, Outcome::Succeeded, "{about}");
            let lines = [
                count + 1,
                count * (letters + 1) + "test".len() + 1,
                count,
                count * ("V00000=".len() + letters + 1),
            ];
            let lines = lines.map(|number| format!("{number}\n")).concat();
            assert_eq!(report.stdout, lines, "{about}");
        }
    }
}

#[tokio::test]
async fn a_program_is_not_called_with_a_secret_that_no_variable_can_hold() {
    let sandbox = sandbox();
    let program = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
    let program = Arc::new(sandbox.load(&wat::parse_str(program).unwrap()).unwrap());
    for (value, refusal) in [("a\0b", Some("a NUL byte")), ("ab", None)] {
        let mut call = granted(Grants {
            secret_env: [("TOKEN".to_owned(), "token".to_owned())].into(),
            ..Grants::default()
        });
        call.secrets = Arc::new([("token".to_owned(), Secret::new(value))].into());
        let report = sandbox.run(&program, call).await;
        match refusal {
            Some(refusal) => {
                let message = &failure(&report, Outcome::Refused).message;
                assert!(
                    message.contains("variable TOKEN cannot be set"),
                    "{message}"
                );
                assert!(message.contains(refusal), "{message}");
            }
            None => assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}"),
        }
    }
}

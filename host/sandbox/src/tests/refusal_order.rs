//! Anything that can be refused without compiling is refused before estimating the cost of compiling.

use super::guests::*;

/// Returns a function taking far too long to compile.
fn costly() -> String {
    let branch = "(if (local.get 0) (then (local.set 1 (local.get 2))))";
    let locals = "i32 ".repeat(3_000);
    let body = format!("(loop $again {} (br $again))", branch.repeat(10_000));
    format!("(func (param i32) (local {locals}) {body})")
}

fn refusal(text: &str) -> String {
    let refusal = sandbox().load(&wat::parse_str(text).unwrap()).err();
    refusal.unwrap().message
}

const ATOMIC: &str = "(func (drop (i32.atomic.load (i32.const 0))))";
const RUN: &str = "(instance $run) (export \"wasi:cli/run@0.2.0\" (instance $run))";

#[test]
fn threads_are_told_before_the_cost() {
    let costly = costly();
    let start = "(memory (export \"memory\") 1) (func (export \"_start\"))";
    let module = format!("(module {start} {costly} {ATOMIC})");
    let nested = format!("(component (core module (memory 1) {costly} {ATOMIC}) {RUN})");
    for text in [module, nested] {
        let message = refusal(&text);
        assert!(message.contains("feature `threads`"), "{message}");
    }
    let message = refusal(&format!("(module {start} {costly})"));
    assert!(message.contains("far too long to compile"), "{message}");
}

#[test]
fn an_import_that_nothing_provides_is_told_before_the_cost() {
    let costly = costly();
    let module = format!("(core module {costly})");
    let bells = "(import \"a:bells/ring@1.0.0\" (instance (export \"ring\" (func))))";
    let message = refusal(&format!("(component {bells} {module} {RUN})"));
    assert!(
        message.contains("imports `a:bells/ring@1.0.0`"),
        "{message}"
    );
    // Interfaces with just types need no host, and provided ones are fine.
    let types =
        "(import \"a:bells/types@1.0.0\" (instance (export \"bell\" (type (sub resource)))))";
    let clock = "(import \"wasi:clocks/monotonic-clock@0.2.0\" (instance (export \"now\" (func (result u64)))))";
    let message = refusal(&format!("(component {types} {clock} {module} {RUN})"));
    assert!(message.contains("far too long to compile"), "{message}");
}

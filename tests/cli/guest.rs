//! Packages that a test builds from WebAssembly text, for behaviour that no committed package has.

use serde_json::Value;

/// Return a component that exports the interfaces of the contract from the functions of one core module.
fn component(code: &str, describes: bool) -> Vec<u8> {
    let types = r#"
        (type $completion (record (field "output" (option string)) (field "context" (option string))))
        (type $failure (record (field "message" string) (field "retryable" bool)
            (field "retry-after-ms" (option u64)) (field "details" (option string))))"#;
    let describe = match describes {
        false => "",
        true => {
            r#"(func $describe (result string)
                (canon lift (core func $i "describe") (memory $memory)))
            (instance $d (export "describe" (func $describe)))
            (export "campanile:task/describe@0.1.0" (instance $d))"#
        }
    };
    let component = format!(
        r#"(component
            (core module $code {code})
            (core instance $i (instantiate $code))
            {types}
            (alias core export $i "memory" (core memory $memory))
            (alias core export $i "cabi_realloc" (core func $realloc))
            (func $run (param "task" string) (param "context" string)
                (result (result $completion (error $failure)))
                (canon lift (core func $i "run") (memory $memory) (realloc (core func $realloc))))
            (component $task
                {types}
                (import "completion" (type $c (eq $completion)))
                (import "failure" (type $f (eq $failure)))
                (import "run" (func $run (param "task" string) (param "context" string)
                    (result (result $c (error $f)))))
                (export $ec "completion" (type $c))
                (export $ef "failure" (type $f))
                (export "run" (func $run) (func (param "task" string) (param "context" string)
                    (result (result $ec (error $ef))))))
            (instance $t (instantiate $task (with "run" (func $run))
                (with "completion" (type $completion)) (with "failure" (type $failure))))
            (export "campanile:task/task@0.1.0" (instance $t))
            {describe})"#
    );
    wat::parse_str(component).expect("WebAssembly")
}

/// Return a package whose `run` traps, with these additional functions.
pub fn with_functions(functions: &str) -> Vec<u8> {
    let code = format!(
        r#"(memory (export "memory") 1)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
        (func (export "run") (param i32 i32 i32 i32) (result i32) unreachable)
        {functions}"#
    );
    component(&code, false)
}

/// Return a package with this manifest, whose tasks do nothing and succeed.
pub fn described(description: &Value) -> Vec<u8> {
    let text = description.to_string();
    // Every byte is escaped, so no character needs special treatment.
    let data: String = text.bytes().map(|byte| format!("\\{byte:02x}")).collect();
    let length: String = u32::try_from(text.len())
        .expect("a short description")
        .to_le_bytes()
        .iter()
        .map(|byte| format!("\\{byte:02x}"))
        .collect();
    // Memory: an empty completion at 0, the address and length of the description at 64, the description at 128,
    // and the heap from 65536.
    let code = format!(
        r#"(memory (export "memory") 4)
        (data (i32.const 64) "\80\00\00\00{length}")
        (data (i32.const 128) "{data}")
        (global $free (mut i32) (i32.const 65536))
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
            (global.set $free (i32.add (local.get $at) (local.get 3)))
            (local.get $at))
        (func (export "run") (param i32 i32 i32 i32) (result i32) (i32.const 0))
        (func (export "describe") (result i32) (i32.const 64))"#
    );
    component(&code, true)
}

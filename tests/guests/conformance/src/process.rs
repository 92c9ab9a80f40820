//! Arguments, environment and exit of a program.

use crate::p1::*;

crate::cases![
    args_get,
    args_sizes_get,
    environ_get,
    environ_sizes_get,
    proc_exit_failure,
    proc_exit_success,
    sched_yield,
];

/// A task has one argument: its name.
fn args_get(_: Fd) {
    let (_, _, arguments) = works(arguments());
    let name = std::env::var("CAMPANILE_TASK_NAME").expect("the name");
    assert_eq!(arguments, [name]);
}

fn args_sizes_get(_: Fd) {
    let (count, size, arguments) = works(arguments());
    assert_eq!(count, 1);
    assert_eq!(size, arguments[0].len() + 1);
}

/// The environment has the host's variables and those that the test grants.
fn environ_get(_: Fd) {
    let (_, _, variables) = works(variables());
    let own = |variable: &&String| !variable.starts_with("CAMPANILE_");
    let mut granted: Vec<&String> = variables.iter().filter(own).collect();
    granted.sort();
    assert_eq!(granted, ["EMPTY=", "GREETING=ciào=salve"]);
}

fn environ_sizes_get(_: Fd) {
    let (count, size, variables) = works(variables());
    assert_eq!(count, variables.len());
    let sum: usize = variables.iter().map(|variable| variable.len() + 1).sum();
    assert_eq!(size, sum);
}

/// The test checks the exit code.
fn proc_exit_failure(_: Fd) {
    exit(33)
}

fn proc_exit_success(_: Fd) {
    exit(0)
}

fn sched_yield(_: Fd) {
    works(give_way());
}

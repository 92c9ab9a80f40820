//! Runs a folder of tests of the public wasi-testsuite; see `campanile_tests::wasi_testsuite`.
//!
//! `wasi-testsuite FOLDER` uses the program `campanile` beside itself, or the one that `CAMPANILE_BIN` names. With
//! `wasi-testsuite FOLDER WASMTIME` that program of wasmtime runs the tests instead, to compare the two. It exits with 1 if a
//! test failed, and with 2 if it cannot run the tests. A refused file is no failure.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use campanile_tests::wasi_testsuite::{Runner, Verdict, run};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (Some(folder), wasmtime, None) = (args.next(), args.next(), args.next()) else {
        eprintln!("usage: wasi-testsuite FOLDER [WASMTIME]");
        return ExitCode::from(2);
    };
    let runner = match wasmtime {
        Some(wasmtime) => Runner::Wasmtime(wasmtime.into()),
        None => Runner::Campanile(campanile()),
    };
    let groups = match run(&runner, Path::new(&folder)) {
        Ok(groups) => groups,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    for group in &groups {
        println!("{group}");
    }
    let mut verdicts = groups.iter().flat_map(|group| group.verdicts.values());
    match verdicts.any(|verdict| matches!(verdict, Verdict::Failed(_))) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Return the program that `CAMPANILE_BIN` names, or the one beside this one.
fn campanile() -> PathBuf {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("campanile"));
    let given = std::env::var_os("CAMPANILE_BIN").map(PathBuf::from);
    given.or_else(beside).unwrap_or_else(|| "campanile".into())
}

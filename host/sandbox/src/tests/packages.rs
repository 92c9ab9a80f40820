//! Loading packages, and their manifests.

use std::sync::Arc;
use std::time::Instant;

use campanile_model::clock::Clock;
use campanile_model::ids::ArtifactDigest;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use super::guests::*;
use crate::*;

#[tokio::test]
async fn a_core_module_with_wit_metadata_runs_like_a_component() {
    let sandbox = sandbox();
    let guest = guest("").completes(Some("7"), None);
    let module = guest.module();
    let artifact = Arc::new(sandbox.load(&module).unwrap());
    assert_eq!(artifact.form, Form::CoreModuleWithWit);
    // The digest is the one of the file before its adaptation.
    assert_eq!(artifact.digest, ArtifactDigest::of(&module));
    let report = sandbox.run(&artifact, call()).await;
    assert_eq!(report.output, Some(json!(7).into()));
    let component = sandbox.load(&guest.component()).unwrap();
    assert_eq!(component.form, Form::TypedComponent);
}

#[test]
fn unknown_imports_are_named() {
    let refusal = sandbox()
        .load(&guest("(call $open-door)").component())
        .err()
        .unwrap();
    assert!(
        refusal.message.starts_with(
            "this component imports `other:host/door@1.0.0`, which Campanile does not provide"
        ),
        "{refusal}"
    );
}

#[test]
fn an_export_of_another_type_is_refused_at_load() {
    let wrong = r#"(component
        (core module $m (func (export "run")))
        (core instance $i (instantiate $m))
        (func $run (canon lift (core func $i "run")))
        (instance $task (export "run" (func $run)))
        (export "campanile:task/task@0.1.0" (instance $task)))"#;
    let refusal = sandbox()
        .load(&wat::parse_str(wrong).unwrap())
        .err()
        .unwrap();
    assert!(
        refusal
            .message
            .contains("`campanile:task/task@0.1.0` has another type"),
        "{refusal}"
    );
}

#[test]
fn metadata_that_does_not_fit_the_code_is_refused() {
    let text = "(module (memory (export \"memory\") 1))";
    let mut module = wat::parse_str(text).unwrap();
    let whole = guest("").module();
    // The metadata section of a good guest behind a module that exports nothing.
    let plain = wat::parse_str(text).unwrap();
    let section = wasmparser::Parser::new(0)
        .parse_all(&whole)
        .filter_map(Result::ok)
        .find_map(|payload| match payload {
            wasmparser::Payload::CustomSection(section) if section.name() == "component-type" => {
                Some(section.range())
            }
            _ => None,
        })
        .unwrap();
    // The section id and the length, two bytes in LEB128, precede it.
    let mut length = Vec::new();
    let mut rest = section.len();
    while rest >= 0x80 {
        length.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    length.push(rest as u8);
    module.push(0);
    module.extend(length);
    module.extend(&whole[section]);
    assert!(module.len() > plain.len());
    let refusal = sandbox().load(&module).err().unwrap();
    assert!(
        refusal
            .message
            .starts_with("this core module does not do what its WIT metadata says"),
        "{refusal}"
    );
}

#[tokio::test]
async fn describe_is_optional() {
    let sandbox = sandbox();
    let silent = Arc::new(sandbox.load(&guest("").component()).unwrap());
    assert_eq!(sandbox.describe(&silent).await, Ok(None));
    let talking = guest("").describes("", r#"{"name":"backup"}"#);
    let talking = Arc::new(sandbox.load(&talking.component()).unwrap());
    assert_eq!(
        sandbox.describe(&talking).await,
        Ok(Some(json!({"name": "backup"})))
    );
}

#[tokio::test]
async fn describe_is_limited_in_time_memory_and_result() {
    let sandbox = sandbox();
    for (guest, expected) in [
        (
            guest("").describes("(loop $for-ever (br $for-ever))", "{}"),
            "the package's describe() did not return within 1s",
        ),
        (
            guest("").describes("unreachable", "{}"),
            "the package's describe() broke off: the task's code trapped: wasm `unreachable` instruction executed",
        ),
        (
            guest("").describes("", "[]"),
            "the package's describe() returned JSON that is not an object",
        ),
        (
            guest("").describes("", "hello"),
            "the package's describe() returned a text that is not JSON",
        ),
        (
            guest("").pages(513).describes("", "{}"),
            "the package's describe() needs too much: the task wanted 32.1 MiB",
        ),
        (
            guest("")
                .pages(10)
                .describes("", &format!("{{\"a\":\"{}\"}}", "b".repeat(256 << 10))),
            "the package's describe() returned 262152 bytes and its limit is 262144",
        ),
    ] {
        let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
        let start = Instant::now();
        let refusal = sandbox.describe(&artifact).await.unwrap_err();
        assert!(refusal.message.starts_with(expected), "{refusal}");
        assert!(start.elapsed() < LONG_WAIT);
    }
}

#[tokio::test]
async fn a_package_can_be_described_while_every_slot_is_taken() {
    let sandbox = sandbox();
    let sleeping = guest("(call $block (call $subscribe-duration (i64.const 3600000000000)))");
    let sleeping = Arc::new(sandbox.load(&sleeping.component()).unwrap());
    let talking = guest("").describes("", "{}");
    let talking = Arc::new(sandbox.load(&talking.component()).unwrap());
    let calls = [call(), call()];
    let stops = [calls[0].stop.clone(), calls[1].stop.clone()];
    let [first, second] = calls;
    let first = sandbox.run(&sleeping, first);
    let second = sandbox.run(&sleeping, second);
    tokio::join!(first, second, async {
        until_free(&sandbox, 0).await;
        assert_eq!(sandbox.describe(&talking).await, Ok(Some(json!({}))));
        for stop in stops {
            stop.drop_now();
        }
    });
}

#[test]
fn compiled_code_is_cached_between_starts() {
    let dir = tempfile::tempdir().unwrap();
    let settings = SandboxSettings {
        calls_max: 1,
        guest_threads: 1,
        code_cache: CodeCache::Directory(dir.path().join("code")),
        memory_bytes_max: 64 << 20,
        ..SandboxSettings::default()
    };
    let component = guest("").component();
    let files = || walk(&dir.path().join("code"));
    assert_eq!(files(), 0);
    for _ in 0..2 {
        let sandbox = Sandbox::new(settings.clone(), Clock::system()).unwrap();
        sandbox.load(&component).unwrap();
    }
    assert!(files() > 0);
}

fn walk(dir: &std::path::Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { walk(&path) } else { 1 }
        })
        .sum()
}

#[test]
fn a_damaged_file_never_crashes_the_host() {
    let sandbox = sandbox();
    let good =
        guest("(call $log (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))")
            .describes("", "{}");
    let mut random = rand::rngs::StdRng::seed_from_u64(1);
    let mut refused = 0;
    for bytes in [good.component(), good.module()] {
        for _ in 0..1000 {
            let mut damaged = bytes.clone();
            let at = random.random_range(0..damaged.len());
            damaged[at] ^= 1 << random.random_range(0..8);
            if let Err(refusal) = sandbox.load(&damaged) {
                assert!(!refusal.message.is_empty());
                assert!(!refusal.message.contains('\n'), "{refusal}");
                refused += 1;
            }
        }
    }
    assert!(refused > 200, "only {refused} of 2000 were refused");
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let sandbox = sandbox();
    let good = guest("").component();
    for length in (0..good.len() - 1).step_by(37) {
        // A cut between two sections leaves a component, but without its last export, the task.
        assert!(
            sandbox.load(&good[..length]).is_err(),
            "{length} of {}",
            good.len()
        );
    }
}

#[tokio::test]
async fn a_sandbox_that_cannot_start_reports_the_reason() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let settings = SandboxSettings {
        calls_max: 0,
        guest_threads: 0,
        code_cache: CodeCache::Directory(file.path().join("below/a/file")),
        memory_bytes_max: 0,
        ..SandboxSettings::default()
    };
    let error = Sandbox::new(settings, Clock::system()).err().unwrap();
    assert!(
        error.to_string().contains("cannot be made private"),
        "{error}"
    );
}

//! Bounding all loaded code.

use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_model::clock::Clock;

use super::guests::*;
use crate::load::loaded::Next;
use crate::*;

/// Returns a program with a mebibyte of data, different for each `number`.
fn program(number: usize) -> Vec<u8> {
    let data = format!("{number:04}").repeat(1 << 18);
    let text = format!(
        "(module (memory (export \"memory\") 40) (data (i32.const 1024) \"{data}\") (func (export \"_start\")))"
    );
    wat::parse_str(text).unwrap()
}

fn bounded(loaded_bytes_max: u64) -> Arc<Sandbox> {
    let settings = SandboxSettings {
        calls_max: 1,
        guest_threads: 1,
        code_cache: CodeCache::Temporary,
        memory_bytes_max: 64 << 20,
        stack_bytes_max: 1 << 20,
        loaded_bytes_max,
        ..SandboxSettings::default()
    };
    Arc::new(Sandbox::new(settings, Clock::system()).unwrap())
}

/// Returns the memory taken by one program's code, in bytes.
fn cost() -> u64 {
    let cost = sandbox().load(&program(0)).unwrap().code_bytes;
    assert!(cost >= 2 << 20, "its data is there twice: {cost}");
    cost
}

fn is_held(artifact: &Artifact, later: Duration) -> bool {
    matches!(artifact.place.next(Instant::now() + later), Next::Held(_))
}

fn waits(artifact: &Artifact, later: Duration) -> bool {
    matches!(artifact.place.next(Instant::now() + later), Next::Wait)
}

#[tokio::test]
async fn code_beyond_the_bound_is_unloaded_and_loaded_again() {
    let cost = cost();
    let sandbox = bounded(3 * cost);
    let programs: Vec<Vec<u8>> = (0..5).map(program).collect();
    let artifacts = programs.iter().map(|bytes| sandbox.load(bytes).unwrap());
    let artifacts: Vec<Artifact> = artifacts.collect();
    assert_eq!(sandbox.loaded.bytes(), 3 * cost);
    for (artifact, bytes) in artifacts.iter().zip(&programs) {
        let held = sandbox.hold(artifact, || async { Ok(bytes.clone()) });
        let _held = held.await.unwrap();
        let report = sandbox.run(artifact, call()).await;
        assert_eq!(report.failure, None);
        assert!(sandbox.loaded.bytes() <= 3 * cost);
    }
    // The least recently used one has been evicted. All were loaded just now, so it waits its turn.
    assert!(waits(&artifacts[0], Duration::ZERO));
    assert!(is_held(&artifacts[4], Duration::ZERO));
    let later = artifacts[0]
        .place
        .next(Instant::now() + Duration::from_secs(11));
    assert!(matches!(later, Next::Load(_)));
    drop(later);
    // Unfilled room is given back, and code is unloaded along with its last artifact.
    drop(artifacts);
    assert_eq!(sandbox.loaded.bytes(), 0);
}

#[tokio::test]
async fn artifacts_of_the_same_bytes_share_their_code() {
    let sandbox = bounded(1 << 30);
    let bytes = program(0);
    let first = sandbox.load(&bytes).unwrap();
    let again: Vec<Artifact> = (0..60).map(|_| sandbox.load(&bytes).unwrap()).collect();
    assert_eq!(sandbox.loaded.bytes(), first.code_bytes);
    drop(first);
    assert!(is_held(&again[59], Duration::ZERO));
}

#[tokio::test]
async fn large_code_in_use_leaves_room_for_small_code() {
    let cost = cost();
    let sandbox = bounded(3 * cost);
    let [first, second] = [0, 1].map(|number| sandbox.load(&program(number)).unwrap());
    let small = sandbox.load(&guest("").component()).unwrap();
    assert!(9 * small.code_bytes < 2 * cost, "{}", small.code_bytes);
    let Next::Held(held) = first.place.next(Instant::now()) else {
        panic!("the first is loaded");
    };
    assert!(waits(&second, Duration::from_secs(60)));
    assert!(is_held(&small, Duration::ZERO));
    drop(held);
    assert!(is_held(&second, Duration::ZERO));
}

#[tokio::test]
async fn one_file_may_take_half_of_the_bound() {
    let sandbox = bounded(2 * cost() - 2);
    let refusal = sandbox.load(&program(0)).err().unwrap();
    assert!(
        refusal.message.contains("`packages.loaded_max`"),
        "{refusal}"
    );
    assert_eq!(sandbox.loaded.bytes(), 0);
}

#[tokio::test]
async fn other_bytes_are_not_loaded_in_place_of_a_file() {
    let cost = cost();
    let sandbox = bounded(2 * cost);
    let artifacts = [0, 1, 2].map(|number| sandbox.load(&program(number)).unwrap());
    let held = sandbox.hold(&artifacts[2], || async { Ok(program(1)) });
    let refusal = held.await.err().unwrap();
    assert!(refusal.message.contains("other bytes"), "{refusal}");
    assert!(sandbox.loaded.bytes() <= cost, "the room is given back");
}

#[test]
fn sparse_data_costs_little_memory() {
    let text = "(module (memory (export \"memory\") 300) (data (i32.const 0) \"a\") (data (i32.const 16000000) \"b\") (func (export \"_start\")))";
    let program = sandbox().load(&wat::parse_str(text).unwrap()).unwrap();
    assert!(program.code_bytes < 4 << 20, "{}", program.code_bytes);
}

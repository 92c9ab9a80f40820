//! Counts primes: a task that uses bindings generated from `wit/`, without the SDK.

// A native build, for tests, uses only the parts it tests.
#![cfg_attr(not(target_family = "wasm"), allow(dead_code))]

mod primes;
#[cfg(target_family = "wasm")]
mod task;
#[cfg(target_family = "wasm")]
mod webhook;

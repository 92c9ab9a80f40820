//! Counts primes: a task that speaks with the host through bindings made from `wit/`, without the SDK.

// A native build, which is for tests, uses only the part that it tests.
#![cfg_attr(not(target_family = "wasm"), allow(dead_code))]

mod primes;
#[cfg(target_family = "wasm")]
mod task;
#[cfg(target_family = "wasm")]
mod webhook;

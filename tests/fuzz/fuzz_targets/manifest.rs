//! `campanile_tests::fuzz::manifest` with bytes that the fuzzer chose.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _too_few_bytes = campanile_tests::fuzz::manifest(bytes);
});

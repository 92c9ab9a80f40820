//! Random bytes as a rule of every kind, and as an exclusion.

#![no_main]

use campanile_tests::texts;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    texts::check(bytes, &mut |text| texts::parse(text));
});

//! Random bytes as a rule of every kind, and as an exclusion.

#![no_main]

use campanile_tests::rule_texts;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    rule_texts::check(bytes, &mut |text| rule_texts::parse(text));
});

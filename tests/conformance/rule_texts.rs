//! A million random texts: the rule parser never panics, and reads each text within a millisecond.

use std::time::{Duration, Instant};

use campanile_tests::rule_texts;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::time::{ClockId, clock_gettime};

/// The number of texts that each of the three tests reads.
const TEXTS: usize = 334_000;

/// The processor time within which one text must be read.
const LIMIT: Duration = Duration::from_millis(1);

/// A busy machine makes one measurement slow, but not four.
const TRIES: usize = 4;

#[test]
fn random_bytes_are_parsed_in_time_without_a_panic() {
    check_many("random bytes", |random| {
        // Half of the texts consist of the characters that rules are written with.
        let plausible = random.random_bool(0.5);
        let length = match random.random_range(0..100) {
            0 => random.random_range(0..1_100),
            _ => random.random_range(0..40),
        };
        let random_byte = |random: &mut StdRng| match plausible {
            true => LETTERS[random.random_range(0..LETTERS.len())],
            false => random.random(),
        };
        (0..length).map(|_| random_byte(random)).collect()
    });
}

#[test]
fn expressions_with_typing_errors_are_parsed_in_time_without_a_panic() {
    let valid = check_many("typing errors", |random| {
        let mut text = RULES[random.random_range(0..RULES.len())]
            .as_bytes()
            .to_vec();
        for _ in 0..random.random_range(0..5) {
            let letter = LETTERS[random.random_range(0..LETTERS.len())];
            let at = random.random_range(0..=text.len());
            match random.random_range(0..5) {
                0 | 1 => text.insert(at, letter),
                2 | 3 if at < text.len() => text[at] = letter,
                4 if at < text.len() => drop(text.remove(at)),
                _ => text.extend_from_within(at..),
            }
        }
        text
    });
    assert!(valid > TEXTS / 10, "only {valid} were valid rules");
}

#[test]
fn random_texts_in_rule_syntax_are_parsed_in_time_without_a_panic() {
    let valid = check_many("rule syntax", |random| {
        let fields = match random.random_range(0..20) {
            0 => random.random_range(0..60),
            _ => random.random_range(5..=6),
        };
        let fields: Vec<String> = (0..fields)
            .map(|_| {
                let items = match random.random_range(0..30) {
                    0 => random.random_range(1..400),
                    number => 1 + number / 20,
                };
                let items: Vec<String> = (0..items).map(|_| random_item(random)).collect();
                items.join(",")
            })
            .collect();
        fields.join(" ").into_bytes()
    });
    assert!(valid > TEXTS / 100, "only {valid} were valid rules");
}

fn random_item(random: &mut StdRng) -> String {
    let number = |random: &mut StdRng| match random.random_range(0..50) {
        0 => random.random_range(0..u64::MAX),
        1..8 => random.random_range(0..100),
        _ => random.random_range(1..=5),
    };
    let (a, b, c) = (number(random), number(random), number(random));
    let (a, b) = match random.random_bool(0.1) {
        true => (a, b),
        false => (a.min(b), a.max(b)),
    };
    const PLAIN: [&str; 8] = ["*", "*/a", "a", "a-b", "a-b/c", "H", "H/a", "H(a-b)"];
    const OTHERS: [&str; 18] = [
        "H(a-b)/c", "?", "L", "L-a", "aW", "LW", "MON#a", "FRIL", "JAN", "TUE-SAT", "a#b", "aL",
        "a/b", "-a", "a-", "*a", "@a", "",
    ];
    let forms: &[&str] = match random.random_bool(0.8) {
        true => &PLAIN,
        false => &OTHERS,
    };
    let form = forms[random.random_range(0..forms.len())];
    let filled = form.chars().map(|letter| match letter {
        'a' => a.to_string(),
        'b' => b.to_string(),
        'c' => c.to_string(),
        other => other.to_string(),
    });
    filled.collect()
}

const LETTERS: &[u8] = b"0123456789*/-,@ \tMONFRIJAevrymohdwsTZ:+.?#LWH()\n\0\xc3\xa9\xff";

const RULES: [&str; 16] = [
    "*/15 9-17 1,15 JAN-MAR MON-FRI",
    "0 0 2 * * 5-7",
    "30 2 29 2 *",
    "0 0 L * *",
    "0 0 15W,LW 1-6 MON#2,FRIL",
    "? H(0-7)/2 H * H",
    "* * * * * *",
    "@every 1h30m15s",
    "@weekly",
    "@reboot",
    "10s",
    "1y6mo",
    "2w3d",
    "2026-11-21T09:00:00.25+01:00",
    "2026-12-24..2027-01-01",
    "12-25",
];

/// Read [`TEXTS`] texts. Return how many valid rules they gave.
fn check_many(what: &str, text: impl Fn(&mut StdRng) -> Vec<u8>) -> usize {
    let seed = match std::env::var("CAMPANILE_TEST_SEED") {
        Ok(text) => text.parse().expect("CAMPANILE_TEST_SEED is a number"),
        Err(_) => rand::random(),
    };
    println!("{what}: CAMPANILE_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    // The first use of a time zone builds its table. Build it before the times are measured.
    rule_texts::check(b"0 0 * * *", &mut |text| rule_texts::parse(text));
    let (mut valid, mut longest) = (0, Duration::ZERO);
    for _ in 0..TEXTS {
        let bytes = text(&mut random);
        valid += rule_texts::check(&bytes, &mut |text| {
            let started = Instant::now();
            let parsed = rule_texts::parse(text);
            let mut took = started.elapsed();
            for _ in 0..TRIES {
                if took < LIMIT {
                    break;
                }
                let started = thread_time();
                let _ = rule_texts::parse(text);
                took = thread_time() - started;
            }
            longest = longest.max(took);
            assert!(took < LIMIT, "{text:?} takes {took:?}");
            parsed
        });
    }
    println!("{what}: {TEXTS} texts, {valid} valid rules, the slowest took {longest:?}");
    valid
}

/// Return the processor time that this thread has used.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

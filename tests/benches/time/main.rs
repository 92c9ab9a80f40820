//! The rules of time compared with the crates `croner` and `cron`: wrong answers, and the time of an answer.
//!
//! All three libraries can express the cases: five fields of plain numbers, of which at most one
//! restricts the day. A search over dates finds the expected answer. It shares no code with the libraries and
//! follows Campanile's rule for gaps and folds. Answers at or before the start are counted separately. A seed in
//! `CAMPANILE_TEST_SEED` replays the cases.

mod cases;

use std::hint::black_box;
use std::str::FromStr as _;
use std::time::{Duration, Instant};

use campanile_model::clock::Timestamp;
use campanile_schedule::rule::{HashKey, Rule};
use chrono::DateTime;
use chrono_tz::Tz;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use cases::{Case, random_text, random_zone_and_start};

/// The number of cases.
const CASES: usize = 20_000;
/// Random rules of the whole dialect, and the starts for each: a million answers.
const RULES: usize = 20_000;
const STARTS: usize = 50;
/// Each time is the shortest of this many measurements, because other programs use the machine too.
const TRIES: usize = 3;
/// The wrong answers that are printed for each library.
const SHOWN_MAX: usize = 5;

fn main() {
    let seed = match std::env::var("CAMPANILE_TEST_SEED") {
        Ok(seed) => seed.parse().expect("CAMPANILE_TEST_SEED is a whole number"),
        Err(_) => rand::random(),
    };
    println!("replay with CAMPANILE_TEST_SEED={seed}\n");
    let mut random = StdRng::seed_from_u64(seed);
    let cases: Vec<Case> = (0..CASES).map(|_| Case::random(&mut random)).collect();
    let around = cases.iter().filter(|case| case.is_around_change()).count();
    println!("{CASES} cases, {around} of them within a day before a change of offset");
    let expected: Vec<Option<i64>> = cases.iter().map(Case::expected).collect();
    let ours = measure(&cases, &expected, ours);
    let others = [
        ("croner 4.0", measure(&cases, &expected, croner)),
        ("cron 0.17", measure(&cases, &expected, cron)),
    ];
    println!(
        "{:<12}{:>9}{:>9}{:>11}{:>11}{:>11}{:>9}{:>11}{:>9}",
        "", "wrong", "not", "next()", "next()", "next()", "to", "parse", "to"
    );
    println!(
        "{:<12}{:>9}{:>9}{:>11}{:>11}{:>11}{:>9}{:>11}{:>9}",
        "", "answers", "after", "median", "p99", "worst", "ours", "median", "ours"
    );
    ours.print("campanile", &ours);
    for (name, measured) in &others {
        measured.print(name, &ours);
    }
    for (name, measured) in &others {
        println!("\nfirst wrong answers of {name}");
        println!("{}", measured.shown.join("\n"));
    }
    measure_whole_dialect(&mut random);
    assert_eq!(ours.wrong, 0, "{}", ours.shown.join("\n"));
}

/// The results of one library.
struct Measured {
    wrong: usize,
    not_after: usize,
    refused: usize,
    /// The first wrong answers.
    shown: Vec<String>,
    next: Vec<Duration>,
    parse: Vec<Duration>,
}

impl Measured {
    fn show_wrong(&mut self, case: &Case, answer: Option<i64>, expected: Option<i64>) {
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(format!(
                "  `{}` after {}: {}, expected {}",
                case.expression(),
                case.show(Some(case.start)),
                case.show(answer),
                case.show(expected)
            ));
        }
    }

    fn print(&self, name: &str, ours: &Measured) {
        let ratio = |theirs: &[Duration], ours: &[Duration]| {
            let (theirs, ours) = (quantile(theirs, 0.5), quantile(ours, 0.5));
            format!("{:.2} x", theirs.as_secs_f64() / ours.as_secs_f64())
        };
        println!(
            "{name:<12}{:>9}{:>9}{:>11}{:>11}{:>11}{:>9}{:>11}{:>9}",
            self.wrong,
            self.not_after,
            micros(quantile(&self.next, 0.5)),
            micros(quantile(&self.next, 0.99)),
            micros(quantile(&self.next, 1.0)),
            ratio(&self.next, &ours.next),
            micros(quantile(&self.parse, 0.5)),
            ratio(&self.parse, &ours.parse),
        );
        if self.refused > 0 {
            println!("  {} expressions were refused", self.refused);
        }
    }
}

/// The next slot of a parsed expression, in seconds.
type Next = Box<dyn Fn() -> Option<i64>>;

fn measure(
    cases: &[Case],
    expected: &[Option<i64>],
    library: impl Fn(&Case) -> Option<Next>,
) -> Measured {
    let mut measured = Measured {
        wrong: 0,
        not_after: 0,
        refused: 0,
        shown: Vec::new(),
        next: Vec::with_capacity(cases.len()),
        parse: Vec::with_capacity(cases.len()),
    };
    for (case, &expected) in cases.iter().zip(expected) {
        let Some(next) = library(case) else {
            measured.refused += 1;
            continue;
        };
        let answer = next();
        if answer != expected {
            measured.wrong += 1;
            measured.show_wrong(case, answer, expected);
        }
        measured.not_after += usize::from(answer.is_some_and(|slot| slot <= case.start));
        measured.next.push(shortest_time(&*next));
        measured.parse.push(shortest_time(|| library(case)));
    }
    measured.next.sort_unstable();
    measured.parse.sort_unstable();
    measured
}

fn ours(case: &Case) -> Option<Next> {
    let rule = Rule::parse(&case.text(), HashKey::NONE).ok()?;
    let start = Timestamp::from_micros(case.start * 1_000_000);
    Some(Box::new(move || {
        let slot = black_box(&rule).next(start)?;
        Some(slot.micros() / 1_000_000)
    }))
}

fn croner(case: &Case) -> Option<Next> {
    let rule = croner::Cron::from_str(&case.expression()).ok()?;
    let start = case.local_start();
    Some(Box::new(move || {
        let slot = black_box(&rule).find_next_occurrence(&start, false).ok()?;
        Some(slot.timestamp())
    }))
}

fn cron(case: &Case) -> Option<Next> {
    let rule = cron::Schedule::from_str(&case.expression_with_second()).ok()?;
    let start: DateTime<Tz> = case.local_start();
    Some(Box::new(move || {
        let slot = black_box(&rule).after(&start).next()?;
        Some(slot.timestamp())
    }))
}

/// Measure `next()` with rules of the whole dialect.
fn measure_whole_dialect(random: &mut StdRng) {
    let mut rules = Vec::with_capacity(RULES);
    while rules.len() < RULES {
        let (tz, start) = random_zone_and_start(random);
        if let Ok(rule) = Rule::parse(&random_text(random, tz), HashKey::NONE) {
            rules.push((rule, start));
        }
    }
    let starts = |start: i64| (0..STARTS as i64).map(move |hour| start + hour * 3_600);
    let timestamp = |second: i64| Timestamp::from_micros(second * 1_000_000);
    let started = Instant::now();
    for (rule, start) in &rules {
        for start in starts(*start) {
            black_box(rule.next(timestamp(start)));
        }
    }
    let elapsed = started.elapsed();
    let mut times = Vec::with_capacity(RULES * STARTS);
    for (rule, start) in &rules {
        for start in starts(*start) {
            times.push(shortest_time(|| rule.next(timestamp(start))));
        }
    }
    times.sort_unstable();
    println!(
        "\n{} answers of the whole dialect: median {} us (goal 2), p99 {} us (goal 20), worst {} us (goal 2000)",
        times.len(),
        micros(quantile(&times, 0.5)),
        micros(quantile(&times, 0.99)),
        micros(quantile(&times, 1.0)),
    );
    println!(
        "the same without reading the clock between the answers: {:.2} s (goal 5)",
        elapsed.as_secs_f64()
    );
}

/// Return the shortest time of [`TRIES`] calls after a first call that is not measured.
fn shortest_time<T>(call: impl Fn() -> T) -> Duration {
    black_box(call());
    let tries = (0..TRIES).map(|_| {
        let started = Instant::now();
        black_box(call());
        started.elapsed()
    });
    tries.min().unwrap_or_default()
}

fn quantile(sorted: &[Duration], part: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * part).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

fn micros(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e6)
}

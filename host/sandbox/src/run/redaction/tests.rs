//! What is replaced, compared with a search place by place.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use super::*;
use crate::grants::Secret;
use crate::run::time::thread_time;

fn redaction(values: &[(&str, &str)]) -> Redaction {
    let secrets = values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Secret::new(*value)));
    Redaction::of(&secrets.collect())
}

#[test]
fn a_value_is_replaced_wherever_it_stands() {
    let redaction = redaction(&[("db", "hunter2"), ("long", "hunter2-and-more")]);
    let mut text = "a hunter2 b hunter2-and-more c".to_owned();
    redaction.text(&mut text);
    assert_eq!(text, "a [secret db] b [secret long] c");
    let mut value = json!({"hunter2": ["x hunter2", 1, null]});
    redaction.json(&mut value);
    assert_eq!(value, json!({"[secret db]": ["x [secret db]", 1, null]}));
}

#[test]
fn a_key_of_many_lines_is_found_whole_and_by_its_long_lines() {
    let redaction = redaction(&[("key", "{\n  \"private\": \"MIIEvQIBADANBg\"\n}")]);
    let redacted = |text: &str| {
        let mut text = text.to_owned();
        redaction.text(&mut text);
        text
    };
    let whole = r#"{"k":"{\n  \"private\": \"MIIEvQIBADANBg\"\n}"}"#;
    assert_eq!(redacted(whole), r#"{"k":"[secret key]"}"#);
    assert_eq!(
        redacted("it is \"private\": \"MIIEvQIBADANBg\" {"),
        "it is [secret key] {"
    );
}

#[test]
fn a_value_is_found_in_every_spelling() {
    let redaction = redaction(&[("db", "pä/ss <wörd>\"\\🔔+%")]);
    for spelling in [
        "pä/ss <wörd>\"\\🔔+%",
        "PäSS",
        r#"pä/ss <wörd>\"\\🔔+%"#,
        r#"p\u00e4\/ss \u003cw\u00F6rd\u003e\"\\\ud83d\udd14+%"#,
        "p%C3%A4%2Fss%20%3Cw%c3%b6rd%3E%22%5C%F0%9F%94%94%2B%25",
        "p%C3%A4/ss+<w%c3%b6rd>%22%5C%F0%9F%94%94%2B%25",
        "pä/SS <WörD>\"\\🔔+%",
    ] {
        let mut text = format!("a {spelling} b {spelling}");
        redaction.text(&mut text);
        let expected = match spelling {
            "PäSS" => "a PäSS b PäSS",
            _ => "a [secret db] b [secret db]",
        };
        assert_eq!(text, expected, "{spelling}");
    }
}

#[test]
fn a_value_is_found_when_its_first_letter_is_escaped() {
    let redaction = redaction(&[("db", "\"quoted\"")]);
    for spelling in [r#"\"quoted\""#, r"\u0022quoted\u0022", "%22quoted%22"] {
        let mut text = format!("a {spelling} b");
        redaction.text(&mut text);
        assert_eq!(text, "a [secret db] b", "{spelling}");
    }
}

#[test]
fn an_escape_that_is_broken_is_not_read_as_the_next_one() {
    let read = |text| readings(text).collect::<Vec<_>>();
    assert_eq!(read(r"\u%0AB\u0075"), [('\\', 1)]);
    assert_eq!(read(r"\u0041\u0075"), [('\\', 1), ('a', 6)]);
    let redaction = redaction(&[("db", r"1234\u"), ("other", "%0AB-other")]);
    let mut text = r"1234\\u%0AB-other".to_owned();
    redaction.text(&mut text);
    assert_eq!(text, "[secret db][secret other]");
    let mut text = r"1234\\u%0AB\u0075".to_owned();
    redaction.text(&mut text);
    assert_eq!(text, r"[secret db]%0AB\u0075");
}

#[test]
fn keys_that_become_one_keep_their_values() {
    let redaction = redaction(&[("db", "hunter2")]);
    let mut value = json!({"hunter2": 1, "Hunter2": 2, "HUNTER2": 3});
    redaction.json(&mut value);
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["[secret db]", "[secret db] (2)", "[secret db] (3)"]);
}

#[test]
fn the_beginning_of_a_value_is_taken_from_where_a_text_was_cut() {
    let redaction = redaction(&[("db", "hunter2-and-more"), ("other", "r2-and-other")]);
    let cut = |kept: &str, rest: &str| {
        let mut text = format!("{kept}{rest}");
        redaction.cut_text(&mut text, Some(kept.len()));
        text
    };
    for rest in ["", " [the rest was dropped]", "\n[campanile: 12 more bytes"] {
        for kept in ["a hunter2-an", "a hunt", "a hunter2\\u002dan\\u0"] {
            assert_eq!(cut(kept, rest), format!("a [secret db]{rest}"), "{kept}");
        }
        // Too little to tell whose it is, so nothing of it stays.
        for kept in [
            "a h",
            "a hu",
            "a hun",
            "a hu\\u006",
            "a %68",
            "a %6",
            "a \\u00",
            "a r2-",
        ] {
            assert_eq!(cut(kept, rest), format!("a {rest}"), "{kept}");
        }
        // The end of another word is lost as well, but nothing before it.
        assert_eq!(cut("a path", rest), format!("a pat{rest}"));
        for kept in ["a hunter", "a unter2"] {
            let whole = format!("{kept} is gone");
            assert_eq!(cut(&whole, rest), format!("{whole}{rest}"));
        }
    }
    // A mark written by the guest means nothing.
    for text in ["a hunter2", "a hunter2 [the rest was dropped]"] {
        let mut whole = text.to_owned();
        redaction.cut_text(&mut whole, None);
        assert_eq!(whole, text);
    }
    assert_eq!(
        cut(
            "a hunter2-and [the rest was dropped] hunter2",
            " [the rest was dropped]"
        ),
        "a hunter2-and [the rest was dropped] [secret db] [the rest was dropped]"
    );
}

#[test]
fn a_value_of_digits_is_found_in_numbers() {
    let redaction = redaction(&[("pin", "8421973")]);
    let mut value = json!({"n": 8_421_973, "m": 842_197, "f": 1.5});
    redaction.json(&mut value);
    assert_eq!(value, json!({"n": "[secret pin]", "m": 842_197, "f": 1.5}));
}

#[test]
fn json_keeps_its_numbers_unless_they_hold_a_value() {
    let redaction = redaction(&[("pin", "8421973842197384219738421973"), ("db", "hunter2")]);
    let of = |text: &str| {
        let json = serde_json::from_str(text).unwrap();
        redaction.json_text(&json).as_str().to_owned()
    };
    assert_eq!(
        of(
            r#"{"n":[8421973842197384219738421973,0.1234567890123456789,12345e7],"hunter2":1.0,"HUNTER2":-0}"#
        ),
        r#"{"n":["[secret pin]",0.1234567890123456789,12345e7],"[secret db]":1.0,"[secret db] (2)":-0}"#
    );
    assert_eq!(
        of(r#"["a hunter2","\u0068unter2",true,null]"#),
        r#"["a [secret db]","[secret db]",true,null]"#
    );
}

#[test]
fn a_value_of_a_few_letters_is_not_looked_for() {
    let redaction = redaction(&[("pin", "abc")]);
    let mut text = "abc".to_owned();
    redaction.text(&mut text);
    assert_eq!(text, "abc");
}

/// Returns the least processor time of three tries to look for a secret of `count` lines in a text of three times as many.
fn time_for_lines(count: usize) -> Duration {
    let mut random = StdRng::seed_from_u64(12);
    let mut lines = || -> Vec<String> {
        let mut line = || (0..64).map(|_| random.random_range('A'..='Z')).collect();
        (0..count).map(|_| line()).collect()
    };
    let (lines, noise) = (lines(), lines());
    let secret = lines.join("\n");
    let mut text = [&noise[..], &lines[..], &noise[..]].concat().join("\n");
    text.push_str(&lines[7][..40]);
    let end = text.len();
    text.push_str(" [cut]");
    let noise = noise.join("\n");
    let expected = format!("{noise}\n[secret key]\n{noise}[secret key] [cut]");
    let tries = (0..3).map(|_| {
        let mut found = text.clone();
        let before = thread_time();
        redaction(&[("key", &secret)]).cut_text(&mut found, Some(end));
        let spent = thread_time().saturating_sub(before);
        assert!(found == expected, "{}", found.len());
        spent
    });
    tries.min().unwrap()
}

#[test]
fn the_cost_of_a_secret_grows_with_its_lines_and_not_with_their_square() {
    let (short, long) = (time_for_lines(60), time_for_lines(60 * 16));
    assert!(long < short * 16 * 4, "{short:?} and {long:?}");
}

/// Whether `part` is one of the spellings of `letter`.
fn spells(part: &str, letter: char) -> bool {
    let is_it = |text: &str| {
        let mut letters = text.chars();
        let found = letters.next().filter(|_| letters.next().is_none());
        found.is_some_and(|found| found.eq_ignore_ascii_case(&letter))
    };
    let triples: Option<Vec<u8>> = part
        .split('%')
        .skip(1)
        .map(|digits| hex::decode(digits).ok().filter(|bytes| bytes.len() == 1))
        .map(|byte| byte.map(|byte| byte[0]))
        .collect();
    let is_encoded = part.starts_with('%')
        && triples.is_some_and(|bytes| String::from_utf8(bytes).is_ok_and(|text| is_it(&text)));
    let is_escaped = part.starts_with('\\')
        && serde_json::from_str::<String>(&format!("\"{part}\"")).is_ok_and(|text| is_it(&text));
    is_it(part) || is_escaped || is_encoded || (part == "+" && letter == ' ')
}

/// Returns every place where `letters` end that stand in `text` at `place`.
fn ends(text: &str, place: usize, letters: &[char]) -> BTreeSet<usize> {
    letters
        .iter()
        .fold(BTreeSet::from([place]), |ends, letter| {
            let parts = ends
                .iter()
                .flat_map(|from| (1..=12).map(move |bytes| (*from, from + bytes)));
            let spelled = parts.filter(|(from, to)| {
                text.get(*from..*to)
                    .is_some_and(|part| spells(part, *letter))
            });
            spelled.map(|(_, to)| to).collect()
        })
}

/// Redact `text` place by place and value by value.
fn redacted_slowly(redaction: &Redaction, text: &str, is_cut: bool) -> String {
    let values = &redaction.values;
    let mut redacted = String::new();
    let mut place = 0;
    while let Some(letter) = text[place..].chars().next() {
        let end_of = |sought: &SoughtValue| ends(text, place, &sought.letters).last().copied();
        let found = values
            .iter()
            .find_map(|sought| Some((end_of(sought)?, &sought.mark)));
        match found {
            Some((end, mark)) => {
                redacted.push_str(mark);
                place = end;
            }
            None => {
                redacted.push(letter);
                place += letter.len_utf8();
            }
        }
    }
    if is_cut {
        end_redacted_slowly(values, &redacted)
    } else {
        redacted
    }
}

fn end_redacted_slowly(values: &[SoughtValue], kept: &str) -> String {
    let end = kept.len();
    let is_begun = |place: usize, letters: &[char], bytes_min: usize| {
        (0..=letters.len()).any(|count| {
            let begun = &letters[..count];
            let is_cut =
                |at: &usize| *at == end || (count < letters.len() && is_broken_off(&kept[*at..]));
            String::from_iter(begun).len() >= bytes_min
                && ends(kept, place, begun).iter().any(is_cut)
        })
    };
    for (place, _) in kept.char_indices() {
        let begun = |bytes_min| {
            let mut all = values.iter();
            all.find(|sought| is_begun(place, &sought.letters, bytes_min))
        };
        match (begun(REDACTED_BYTES_MIN), begun(0)) {
            (Some(sought), _) => return format!("{}{}", &kept[..place], sought.mark),
            (None, Some(_)) => return kept[..place].to_owned(),
            (None, None) => {}
        }
    }
    kept.to_owned()
}

/// Few letters, so that values and texts overlap and spellings can be read in several ways.
const LETTERS: [char; 16] = [
    'a', 'B', 'n', 'u', '0', '6', '1', '2', '5', '\\', '%', '+', ' ', '"', 'ä', '🔔',
];

fn letters(random: &mut StdRng, count: usize) -> String {
    let letter = |_| LETTERS.choose(random).copied().unwrap_or('a');
    (0..count).map(letter).collect()
}

fn spelling(random: &mut StdRng, letter: char) -> String {
    let mut buffer = [0; 4];
    match random.random_range(0..6) {
        0 => {
            let units = letter.encode_utf16(&mut [0; 2]).to_vec();
            units.iter().map(|unit| format!("\\u{unit:04x}")).collect()
        }
        1 => {
            let bytes = letter.encode_utf8(&mut buffer).bytes();
            bytes.map(|byte| format!("%{byte:02X}")).collect()
        }
        2 => serde_json::to_string(&letter)
            .unwrap()
            .trim_matches('"')
            .to_owned(),
        3 => letter.to_uppercase().collect(),
        _ => letter.to_string(),
    }
}

#[test]
fn the_automaton_replaces_what_a_slow_search_replaces() {
    let seed = match std::env::var("CAMPANILE_TEST_SEED") {
        Ok(text) => text.parse().expect("CAMPANILE_TEST_SEED is a number"),
        Err(_) => rand::random(),
    };
    println!("CAMPANILE_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut replaced = 0;
    for _ in 0..2_000 {
        let values: Vec<String> = (0..random.random_range(1..4))
            .map(|_| match random.random_range(0..4) {
                0 => format!("{}\n{}", letters(&mut random, 17), letters(&mut random, 16)),
                1 => "aBaBaBaBa\\\\\\"[..random.random_range(4..12)].to_owned(),
                _ => {
                    let count = random.random_range(2..9);
                    letters(&mut random, count)
                }
            })
            .collect();
        let secrets: Vec<(&str, &str)> = ["a", "b", "c"]
            .into_iter()
            .zip(values.iter().map(String::as_str))
            .collect();
        let redaction = redaction(&secrets);
        let mut text = String::new();
        for _ in 0..random.random_range(1..6) {
            let count = random.random_range(0..4);
            text += &letters(&mut random, count);
            let value: Vec<char> = values.choose(&mut random).unwrap().chars().collect();
            let most = random.random_range(0..=value.len());
            for letter in &value[..most.max(value.len() / 2)] {
                text += &spelling(&mut random, *letter);
            }
        }
        let is_cut = random.random_range(0..3) == 0;
        let mut found = text.clone();
        redaction.cut_text(&mut found, is_cut.then_some(text.len()));
        assert_eq!(
            found,
            redacted_slowly(&redaction, &text, is_cut),
            "{values:?} in {text:?}"
        );
        replaced += usize::from(found != text);
    }
    assert!(replaced > 500, "only {replaced} texts had a value");
}

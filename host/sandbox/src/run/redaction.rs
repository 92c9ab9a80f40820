//! Removing the values of secrets from the texts that a call leaves behind.
//!
//! An automaton (Aho-Corasick) finds all values in one pass, so that the time grows with the text and not with the
//! number of values. Each letter of a text may be spelled in several ways, and a spelling may itself be text: `\n` is two
//! letters or one. The pass therefore follows every way to read the text. It runs from the end to the beginning, over
//! reversed values, because it then ends where a value begins: the first value of a text is the one to replace.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::nfa::contiguous::NFA;
use campanile_model::json::JsonParts;
use serde_json::{Map, Value};

use crate::grants::Secrets;
use campanile_model::json_text::{JsonObject, JsonText, object_text};

mod spelling;
#[cfg(test)]
mod tests;

use spelling::{SPELLING_BYTES_MAX, is_broken_off, readings};

/// Shorter values are not replaced: many texts contain them by chance.
const REDACTED_BYTES_MIN: usize = 4;

/// A shorter line of a value of many lines may be no secret at all, such as `{` or `-----END`.
const REDACTED_LINE_BYTES_MIN: usize = 16;

/// The places that a pass remembers: the place of a letter, and every place behind one of its spellings.
const PLACES_KEPT: usize = (SPELLING_BYTES_MAX + 1).next_power_of_two();

/// Replaces a text in which values cannot be looked for.
const WITHHELD: &str = "[withheld: the secrets are too large to look for]";

/// Replaces the values of secrets in what a call leaves behind. It finds them in either case of their letters, in the
/// escapes of JSON, and in percent-encoding.
pub struct Redaction {
    /// The longest first, so that a secret that contains another is replaced whole.
    values: Vec<SoughtValue>,
    /// The places of the values in `values`, sorted by their letters: values that begin alike are neighbours.
    by_letters: Vec<usize>,
    /// None when the values are too large for an automaton, which takes gigabytes of them.
    automaton: Option<Automaton>,
}

/// A value to look for, and the text that replaces it.
struct SoughtValue {
    /// In lower case, as far as they are ASCII.
    letters: Vec<char>,
    mark: String,
}

/// What a truncated text may end in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Begun {
    /// The beginning of the value with this index in `values`.
    Value(usize),
    /// So little of a value, or of an escape for its first letter, that unrelated texts end in it too.
    Little,
}

/// Finds the values, reversed.
struct Automaton {
    nfa: NFA,
    start: StateID,
}

impl Redaction {
    pub fn of(secrets: &Secrets) -> Redaction {
        // Each value once: a key of many lines has equal ones.
        let mut marks: BTreeMap<Vec<char>, &str> = BTreeMap::new();
        for (name, secret) in secrets {
            let value = secret.reveal().trim();
            // A guest may print a value of many lines, such as a key, line by line.
            let lines = value.lines().map(str::trim);
            let lines = lines.filter(|line| line.len() >= REDACTED_LINE_BYTES_MIN);
            let whole = Some(value).filter(|value| value.len() >= REDACTED_BYTES_MIN);
            for value in whole.into_iter().chain(lines) {
                let letters = value.chars().map(|letter| letter.to_ascii_lowercase());
                marks.entry(letters.collect()).or_insert(name);
            }
        }
        let values = marks.into_iter().map(|(letters, name)| SoughtValue {
            letters,
            mark: format!("[secret {name}]"),
        });
        let mut values: Vec<SoughtValue> = values.collect();
        values.sort_by_key(|sought| Reverse(sought.letters.len()));
        let mut by_letters: Vec<usize> = (0..values.len()).collect();
        by_letters.sort_by(|a, b| values[*a].letters.cmp(&values[*b].letters));
        Redaction {
            automaton: Automaton::of(&values),
            values,
            by_letters,
        }
    }

    /// Replaces the secret values in `text`. If building the automaton for finding them failed, withholds the whole text.
    pub fn text(&self, text: &mut String) {
        if self.values.is_empty() {
            return;
        }
        let Some(automaton) = &self.automaton else {
            WITHHELD.clone_into(text);
            return;
        };
        let mut redacted = String::new();
        let mut from = 0;
        for (place, value) in automaton.find(text).into_iter().rev() {
            let sought = &self.values[value];
            // A value inside one that is replaced already is not looked at.
            if place >= from
                && let Some(end) = sought.end(text, place)
            {
                redacted.push_str(&text[from..place]);
                redacted.push_str(&sought.mark);
                from = end;
            }
        }
        if from > 0 {
            redacted.push_str(&text[from..]);
            *text = redacted;
        }
    }

    /// Like [`Redaction::text`], also removing a value cut short at the byte offset `cut_at`, down to its first letter. What follows
    /// `cut_at` is the host's own mark. Finding the cut by searching for that mark wouldn't do: a guest could write one too.
    pub(crate) fn cut_text(&self, text: &mut String, cut_at: Option<usize>) {
        let Some(cut_at) = cut_at else {
            return self.text(text);
        };
        let rest = text.split_off(cut_at.min(text.len()));
        self.text(text);
        self.end_of(text);
        text.push_str(&rest);
    }

    /// Replaces the longest suffix of `text` starting a value. If it's too short to be searched for, drops it without a mark: it's rarely
    /// part of a value, and a mark would claim so.
    fn end_of(&self, text: &mut String) {
        let end = text.len();
        let kept = text.as_str();
        let letters_max = self.values.first().map_or(0, |sought| sought.letters.len());
        let from = end.saturating_sub(letters_max * SPELLING_BYTES_MAX);
        let from = kept.floor_char_boundary(from);
        let mut places = kept[from..].char_indices().map(|(place, _)| from + place);
        let begun = places.find_map(|place| Some((place, self.begun(kept, place)?)));
        match begun {
            Some((begin, Begun::Value(value))) => {
                text.replace_range(begin..end, &self.values[value].mark);
            }
            Some((begin, Begun::Little)) => text.truncate(begin),
            None => {}
        }
    }

    /// Returns the longest value starting with the rest of `text` after `place`.
    fn begun(&self, text: &str, place: usize) -> Option<Begun> {
        // How far each way of reading the text has got, and the values starting with the letters read.
        let mut ways = vec![(place, 0..self.by_letters.len())];
        let mut longest: Option<Begun> = None;
        for letters in 0.. {
            if ways.is_empty() {
                break;
            }
            let cut = ways.iter().filter(|(end, _)| is_broken_off(&text[*end..]));
            let begun = cut.flat_map(|(end, values)| {
                let is_whole = *end == text.len();
                let values = self.by_letters[values.clone()].iter().copied();
                values.filter_map(move |value| {
                    let sought = &self.values[value];
                    if sought.is_begun(letters, is_whole)? {
                        Some(Begun::Value(value))
                    } else {
                        Some(Begun::Little)
                    }
                })
            });
            longest = longest.into_iter().chain(begun).min();
            let mut next = Vec::new();
            for (end, values) in ways {
                for (letter, bytes) in readings(&text[end..]) {
                    let way = (end + bytes, self.narrowed(values.clone(), letters, letter));
                    if !way.1.is_empty() && !next.contains(&way) {
                        next.push(way);
                    }
                }
            }
            ways = next;
        }
        longest
    }

    /// Returns which of `values`, places in `by_letters` whose first `letters` letters are equal, continue with `letter`.
    fn narrowed(&self, values: Range<usize>, letters: usize, letter: char) -> Range<usize> {
        let among = &self.by_letters[values.clone()];
        let next = |value: &usize| self.values[*value].letters.get(letters).copied();
        let less = among.partition_point(|value| next(value) < Some(letter));
        let equal = among[less..].partition_point(|value| next(value) == Some(letter));
        values.start + less..values.start + less + equal
    }

    /// Returns `json` with values replaced even in keys and numbers. Parts without any keep their spelling.
    pub(crate) fn json_text(&self, json: &JsonText) -> JsonText {
        if self.values.is_empty() {
            json.clone()
        } else {
            JsonText::of_checked(self.part(json.as_str()))
        }
    }

    fn part(&self, text: &str) -> String {
        match JsonParts::of(text) {
            Ok(JsonParts::Object(entries)) => {
                let entries = entries.into_iter();
                let mut named = NamedApart::default();
                let entries = entries.map(|(mut key, value)| {
                    self.text(&mut key);
                    (named.name(key), self.part(value.get()))
                });
                let entries: Vec<(String, String)> = entries.collect();
                object_text(
                    entries
                        .iter()
                        .map(|(key, value)| (key.as_str(), value.as_str())),
                )
            }
            Ok(JsonParts::List(items)) => {
                let items: Vec<String> = items.iter().map(|item| self.part(item.get())).collect();
                format!("[{}]", items.join(","))
            }
            Ok(JsonParts::String(mut text)) => {
                self.text(&mut text);
                Value::String(text).to_string()
            }
            Ok(JsonParts::Number(number)) => {
                let mut text = number.to_owned();
                self.text(&mut text);
                if text == number {
                    text
                } else {
                    Value::String(text).to_string()
                }
            }
            Ok(JsonParts::Word(word)) => word.to_owned(),
            // Already checked to be valid.
            Err(_) => "null".to_owned(),
        }
    }

    /// Replaces the values in all texts of `entries`, including keys.
    pub(crate) fn entries(&self, entries: &mut JsonObject) {
        let mut named = NamedApart::default();
        let redacted = mem::take(entries).into_iter().map(|(mut key, value)| {
            self.text(&mut key);
            (named.name(key), self.json_text(&value))
        });
        *entries = redacted.collect();
    }

    /// Replace the values in every text in `value`, keys included.
    pub(crate) fn json(&self, value: &mut Value) {
        if self.values.is_empty() {
            return;
        }
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(entries) => self.object(entries),
            Value::Number(number) => {
                let shown = number.to_string();
                let mut text = shown.clone();
                self.text(&mut text);
                if text != shown {
                    *value = Value::String(text);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Replace the values in every text in `entries`, keys included.
    fn object(&self, entries: &mut Map<String, Value>) {
        let mut named = NamedApart::default();
        for (mut key, mut value) in mem::take(entries) {
            self.json(&mut value);
            self.text(&mut key);
            entries.insert(named.name(key), value);
        }
    }
}

/// Keeps the keys of one object distinct after redaction has made some equal.
#[derive(Default)]
struct NamedApart {
    /// How often each key has occurred so far.
    times: BTreeMap<String, usize>,
    names: BTreeSet<String>,
}

impl NamedApart {
    fn name(&mut self, key: String) -> String {
        let times = self.times.entry(key.clone()).or_default();
        *times += 1;
        let mut name = key;
        while !self.names.insert(name.clone()) {
            name = format!("{name} ({times})");
        }
        name
    }
}

impl SoughtValue {
    /// Returns where the value ends if it stands in `text` at `place`; each letter may have its own spelling.
    fn end(&self, text: &str, place: usize) -> Option<usize> {
        let mut ends = vec![place];
        let mut next = Vec::new();
        for letter in &self.letters {
            for end in ends.drain(..) {
                for (found, bytes) in readings(&text[end..]) {
                    if found == *letter && !next.contains(&(end + bytes)) {
                        next.push(end + bytes);
                    }
                }
            }
            mem::swap(&mut ends, &mut next);
        }
        ends.into_iter().max()
    }

    /// Returns whether the first `letters` letters are enough to search for. None if the value is already complete, leaving nothing to
    /// explain the broken-off escape at the end of a text not `is_whole`.
    fn is_begun(&self, letters: usize, is_whole: bool) -> Option<bool> {
        let bytes: usize = self.letters[..letters].iter().map(|it| it.len_utf8()).sum();
        (is_whole || letters < self.letters.len()).then_some(bytes >= REDACTED_BYTES_MIN)
    }
}

impl Automaton {
    fn of(values: &[SoughtValue]) -> Option<Automaton> {
        let reversed = values.iter().map(|sought| {
            let mut bytes = String::from_iter(&sought.letters).into_bytes();
            bytes.reverse();
            bytes
        });
        let nfa = NFA::builder().prefilter(false).build(reversed).ok()?;
        let start = nfa.start_state(Anchored::No).ok()?;
        Some(Automaton { nfa, start })
    }

    /// Returns each place of `text` where a value begins, with the longest such value, from the last place to the first.
    fn find(&self, text: &str) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        // The states that are reached at a place, one for each way to read the text behind it, unless they are equal.
        let mut states_at: [Vec<StateID>; PLACES_KEPT] = Default::default();
        states_at[text.len() % PLACES_KEPT].push(self.start);
        let mut states = Vec::new();
        for (place, _) in text.char_indices().rev() {
            for (letter, bytes) in readings(&text[place..]) {
                for behind in &states_at[(place + bytes) % PLACES_KEPT] {
                    let state = self.step(*behind, letter);
                    if !states.contains(&state) {
                        states.push(state);
                    }
                }
            }
            let values = states.iter().flat_map(|state| self.matches(*state));
            found.extend(values.min().map(|value| (place, value)));
            mem::swap(&mut states_at[place % PLACES_KEPT], &mut states);
            states.clear();
        }
        found
    }

    /// Returns the state at the place before `letter`, when `behind` is the state at the place behind it.
    fn step(&self, behind: StateID, letter: char) -> StateID {
        let mut buffer = [0; 4];
        let bytes = letter.encode_utf8(&mut buffer).bytes().rev();
        bytes.fold(behind, |state, byte| {
            self.nfa.next_state(Anchored::No, state, byte)
        })
    }

    /// Returns the values that begin where `state` is reached.
    fn matches(&self, state: StateID) -> impl Iterator<Item = usize> {
        let count = if self.nfa.is_match(state) {
            self.nfa.match_len(state)
        } else {
            0
        };
        (0..count).map(move |index| self.nfa.match_pattern(state, index).as_usize())
    }
}

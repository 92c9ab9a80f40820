//! The ways to spell a letter: as it is, as an escape of JSON, and in percent-encoding.

/// The longest spelling of one letter: two surrogates, or four percent-encoded bytes.
pub(super) const SPELLING_BYTES_MAX: usize = 12;

/// Returns each letter that `text` may be read to begin with, in lower case as far as it is ASCII, and its bytes.
pub(super) fn readings(text: &str) -> impl Iterator<Item = (char, usize)> {
    let as_it_is = text.chars().next();
    let in_form = text.starts_with('+').then_some((' ', 1));
    [
        as_it_is.map(|letter| (letter, letter.len_utf8())),
        unescaped(text),
        percent_decoded(text),
        in_form,
    ]
    .into_iter()
    .flatten()
    .map(|(letter, bytes)| (letter.to_ascii_lowercase(), bytes))
}

/// Returns the letter whose JSON escape `text` begins with, and the bytes of the escape.
fn unescaped(text: &str) -> Option<(char, usize)> {
    let escape = text.strip_prefix('\\')?;
    let letter = match escape.chars().next()? {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => {
            let units = [text.get(2..6), text.get(8..12)];
            let has_two = text.get(6..8) == Some("\\u");
            let unit = |digits: Option<&str>| hexadecimal(digits?);
            // The second escape counts only behind a whole first one.
            let first = unit(units[0])?;
            let units = [first]
                .into_iter()
                .chain(unit(units[1]).filter(|_| has_two));
            let letter = char::decode_utf16(units).next()?.ok()?;
            return Some((letter, 6 * letter.len_utf16()));
        }
        plain @ ('"' | '\\' | '/') => plain,
        _ => return None,
    };
    Some((letter, 2))
}

/// Returns the letter that `text` begins with in percent-encoding, and the bytes of its encoding.
fn percent_decoded(text: &str) -> Option<(char, usize)> {
    let mut utf8 = [0; 4];
    let triples = text.as_bytes().chunks_exact(3);
    for (count, triple) in (1..=utf8.len()).zip(triples) {
        let digits = std::str::from_utf8(triple.strip_prefix(b"%")?).ok()?;
        utf8[count - 1] = u8::try_from(hexadecimal(digits)?).ok()?;
        if let Ok(letter) = std::str::from_utf8(&utf8[..count]) {
            return letter.chars().next().map(|letter| (letter, 3 * count));
        }
    }
    None
}

fn hexadecimal(digits: &str) -> Option<u16> {
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_plain)
}

/// Whether `rest` is empty, or the part of an escape that a cut left.
pub(super) fn is_broken_off(rest: &str) -> bool {
    let escapes = |letter: char| letter.is_ascii_hexdigit() || matches!(letter, '\\' | 'u' | '%');
    rest.is_empty()
        || (rest.len() < SPELLING_BYTES_MAX
            && rest.starts_with(['\\', '%'])
            && rest.chars().all(escapes))
}

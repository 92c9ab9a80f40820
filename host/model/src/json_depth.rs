//! How deep JSON of others may nest.
//!
//! Readers of JSON give up at a depth of their own: serde_json at 128, others at 64 or at 512. The host wraps what tasks return
//! into records, lists and contexts, so it accepts less than it can read. All that is on record can then be read again.

/// The deepest nesting of lists and objects in JSON that the host accepts.
pub const JSON_DEPTH_MAX: usize = 100;

/// JSON nests deeper than [`JSON_DEPTH_MAX`]. It reads as a clause; what to do about it depends on where the JSON comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nests deeper than {JSON_DEPTH_MAX} levels of lists and objects")]
pub struct TooDeep;

/// Refuses a JSON text that nests too deep. Whether it's JSON at all is up to the reader.
///
/// # Errors
///
/// At the first bracket beyond the bound; what follows isn't looked at.
pub fn check(json: &[u8]) -> Result<(), TooDeep> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > JSON_DEPTH_MAX {
                    return Err(TooDeep);
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        "[".repeat(depth) + &"]".repeat(depth)
    }

    #[test]
    fn only_brackets_outside_of_strings_count() {
        assert_eq!(check(nested(JSON_DEPTH_MAX).as_bytes()), Ok(()));
        assert_eq!(check(nested(JSON_DEPTH_MAX + 1).as_bytes()), Err(TooDeep));
        let brackets = "[".repeat(200);
        for json in [
            format!(r#""{brackets}""#),
            format!(r#"["\\\"{brackets}"]"#),
            format!("[{}]", vec!["{}"; 500].join(",")),
        ] {
            assert_eq!(check(json.as_bytes()), Ok(()), "{json}");
        }
        let json = format!(r#"["\\\\", {brackets}"#);
        assert_eq!(check(json.as_bytes()), Err(TooDeep), "{json}");
    }
}

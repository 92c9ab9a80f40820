//! The bounds of what an assistant sends and gets.

use serde_json::{Map, Value};

use campanile_control::bounds::Text;
use campanile_control::records::run::TaskLogs;

/// A text in the arguments of a call, at most as long as the longest one with a bound of its own.
pub(super) type ArgumentText = Text<0, 2_000>;
/// The most values of one list in the arguments of a call.
pub(super) const VALUES_MAX: usize = 20;

/// What a line of a log takes beside its texts: its time, its level and the keys.
const LINE_BYTES: usize = 100;

/// Check the sizes of arguments.
///
/// # Errors
///
/// When a text or a list is too long, or has a zero character. The error names the argument.
pub fn check(arguments: &Map<String, Value>) -> Result<(), String> {
    for (name, value) in arguments {
        let values = match value {
            Value::Array(values) if values.len() > VALUES_MAX => {
                return Err(format!("`{name}`: it has more than {VALUES_MAX} values"));
            }
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for text in values.iter().filter_map(Value::as_str) {
            ArgumentText::check(text).map_err(|why| format!("`{name}`: {why}"))?;
            if text.contains('\0') {
                return Err(format!("`{name}`: it has a zero character"));
            }
        }
    }
    Ok(())
}

/// Cut the texts of the calls of a run, the oldest first, until about `bytes_max` bytes are left. Return how many were cut.
pub(super) fn keep_newest(calls: &mut [TaskLogs], bytes_max: usize) -> usize {
    let (mut left, mut cut) = (bytes_max, 0);
    for call in calls.iter_mut().rev() {
        let mut kept = call.logs.len();
        while kept > 0 && left > LINE_BYTES {
            kept -= 1;
            let line = &mut call.logs[kept];
            left -= LINE_BYTES;
            cut += keep_end(&mut line.message, &mut left);
            cut += keep_end(&mut line.context, &mut left);
        }
        let removed = call.logs.drain(..kept);
        cut += removed
            .map(|line| line.message.len() + line.context.len())
            .sum::<usize>();
        cut += keep_end(&mut call.stderr, &mut left);
        cut += keep_end(&mut call.stdout, &mut left);
    }
    cut
}

/// Cut the start of a text until it has at most `left` bytes, and take its bytes from `left`. Return how many were cut.
fn keep_end(text: &mut String, left: &mut usize) -> usize {
    let start = text.ceil_char_boundary(text.len().saturating_sub(*left));
    text.drain(..start);
    *left -= text.len();
    start
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_that_are_too_great_are_refused_by_name() {
        let long = "é".repeat(ArgumentText::CHARS_MAX + 1);
        let cases = [
            (json!({"a": "x", "b": 7, "c": ["y"]}), None),
            (json!({"a": "é".repeat(ArgumentText::CHARS_MAX)}), None),
            (
                json!({"a": "x", "note": long}),
                Some("`note`: must have 0 to 2000 characters, not 2001"),
            ),
            (json!({"c": ["x", long]}), Some("`c`: must have")),
            (
                json!({"c": vec![1; VALUES_MAX + 1]}),
                Some("`c`: it has more than 20 values"),
            ),
            (json!({"a": "x\0"}), Some("`a`: it has a zero character")),
        ];
        for (arguments, expected) in cases {
            let Value::Object(arguments) = arguments else {
                unreachable!()
            };
            match (check(&arguments), expected) {
                (Ok(()), None) => {}
                (Err(error), Some(expected)) => assert!(error.starts_with(expected), "{error}"),
                (found, expected) => panic!("{found:?}, not {expected:?}"),
            }
        }
    }

    fn call(task: &str, logs: &[&str], stderr: &str, stdout: &str) -> TaskLogs {
        let line = |message: &&str| json!({"at": "2026-11-21T08:00:00Z", "level": "info", "context": "", "message": message});
        let logs = Vec::from_iter(logs.iter().map(line));
        let call = json!({"task": task, "attempt": 1, "logs": logs, "stdout": stdout, "stdout_bytes_dropped": 0, "stderr": stderr, "stderr_bytes_dropped": 0});
        serde_json::from_value(call).unwrap()
    }

    /// Returns the remaining texts and how many bytes were cut.
    fn kept(mut calls: Vec<TaskLogs>, bytes_max: usize) -> (Vec<String>, usize) {
        let cut = keep_newest(&mut calls, bytes_max);
        let texts = calls.iter().map(|call| {
            let logs: Vec<&str> = call.logs.iter().map(|line| &*line.message).collect();
            format!("{} | {} | {}", logs.join(" "), call.stderr, call.stdout)
        });
        (texts.collect(), cut)
    }

    #[test]
    fn the_newest_texts_of_a_run_are_kept() {
        let calls = || {
            vec![
                call("a", &["first"], "old", "older"),
                call("b", &["one", "two"], "error", "output"),
            ]
        };
        let all = ["first | old | older", "one two | error | output"].map(str::to_owned);
        assert_eq!(kept(calls(), 10_000), (all.to_vec(), 0));
        // The line `two`, and 5 bytes more.
        let part = [" |  | ", "two | error | "].map(str::to_owned);
        assert_eq!(
            kept(calls(), LINE_BYTES + 8),
            (part.to_vec(), 5 + 3 + 5 + 3 + 6)
        );
        let nothing = [" |  | ", " |  | "].map(str::to_owned);
        assert_eq!(kept(calls(), 0), (nothing.to_vec(), 30));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let calls = vec![call("a", &[], "", "éé")];
        assert_eq!(kept(calls, 3), (vec![" |  | é".to_owned()], 2));
    }
}

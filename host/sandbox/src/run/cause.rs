//! The reason that a guest itself gave for its end: the last line on its stderr that says why.
//!
//! Each language writes its own form. Places in the language's runtime are left out: they say nothing about the task.

/// Begin lines that give a reason in one line.
const REASONS: [&str; 5] = [
    "panic: ",
    "fatal error: ",
    "Assertion failed: ",
    "libc++abi: terminating",
    "error: ",
];

/// Is part of the reason of a C++ program that was built without exceptions.
const NO_EXCEPTIONS: &str = " was thrown in -fno-exceptions mode";

/// Begins the line that Rust writes after a panic.
const RUST_NOTE: &str = "note: run with `RUST_BACKTRACE";

/// Begin lines that a runtime writes after the reason.
const AFTERWORDS: [&str; 3] = [
    RUST_NOTE,
    "Cannot print stack trace",
    "Redirecting call to abort()",
];

/// componentize-py writes this after the traceback of an exception, as a panic of its own.
const PYTHON_WRAPPER: &str = "Python function threw an unexpected exception";

/// A reason that a guest wrote.
#[derive(Debug, PartialEq)]
pub(crate) enum Cause {
    /// A panic of a Rust guest, with its place.
    Panic(String),
    /// An exception of Python, which has tried to read the source files that the traceback names.
    Exception(String),
    /// A reason in a form of another language.
    Reason(String),
    /// The last line, in no known form. It may not be the reason.
    LastLine(String),
}

impl Cause {
    pub(crate) fn text(&self) -> &str {
        match self {
            Cause::Panic(text)
            | Cause::Exception(text)
            | Cause::Reason(text)
            | Cause::LastLine(text) => text,
        }
    }
}

/// Returns the last cause in what a guest wrote to stderr.
///
/// A line that looks like a cause counts only if the rest belongs to it. A program that has handled an error, and wrote more,
/// ended because of something else.
pub(crate) fn last_cause(stderr: &str) -> Option<Cause> {
    let lines: Vec<&str> = stderr.lines().collect();
    let last = |is_wanted: &dyn Fn(&str) -> bool| lines.iter().rposition(|line| is_wanted(line));
    let end = last(&|line| !line.trim().is_empty() && !is_afterword(line.trim()))?;
    let text = Text {
        note: last(&|line| line.starts_with(RUST_NOTE)),
        wrapper: last(&|line| line == PYTHON_WRAPPER),
        goroutine: last(&|line| line.starts_with("goroutine ")),
        lines: &lines,
        end,
    };
    let known = (0..=end).rev().find_map(|at| text.known(at));
    known.or_else(|| Some(Cause::LastLine(lines[end].trim().to_owned())))
}

fn is_afterword(line: &str) -> bool {
    AFTERWORDS.iter().any(|start| line.starts_with(start))
}

/// The lines of stderr, and the last lines of the forms that it may have.
struct Text<'t> {
    lines: &'t [&'t str],
    /// The last line that is neither empty nor an afterword.
    end: usize,
    note: Option<usize>,
    wrapper: Option<usize>,
    goroutine: Option<usize>,
}

impl Text<'_> {
    /// Returns the cause that the line `at` gives or begins, if all later lines belong to it.
    fn known(&self, at: usize) -> Option<Cause> {
        let (line, after) = (self.lines[at], &self.lines[at + 1..]);
        // The end is at most `lines` lines after `at`.
        let is_within = |lines: usize| self.end <= at + lines;
        let follows = |other: Option<usize>| other.is_some_and(|other| other > at);
        if let Some((_, place)) = line.split_once(" panicked at ") {
            // The message, and the two values of a failed comparison.
            let is_last = is_within(3) || self.note.is_some_and(|note| note > self.end);
            return is_last
                .then(|| panic(place.trim_end_matches(':'), after))
                .flatten();
        }
        if line == "Traceback (most recent call last):" {
            let frames = after.iter().take_while(|line| line.starts_with(' '));
            let is_last = is_within(frames.count() + 1)
                || self
                    .wrapper
                    .is_some_and(|wrapper| wrapper == self.end && wrapper > at);
            return is_last
                .then(|| python(after))
                .flatten()
                .map(Cause::Exception);
        }
        let reason =
            if line == "Stack:" && after.first().is_some_and(|frame| frame.contains(".js:")) {
                let frames = after.iter().take_while(|frame| frame.contains(".js:"));
                let reason = self.lines[..at]
                    .last()
                    .filter(|_| is_within(frames.count()))?;
                (*reason).to_owned()
            } else if is_reason(line) && (is_within(0) || follows(self.goroutine)) {
                with_go_place(line, after)
            } else {
                return None;
            };
        Some(Cause::Reason(reason))
    }
}

fn is_reason(line: &str) -> bool {
    let begins = REASONS.iter().any(|start| line.starts_with(start));
    begins || line.contains(NO_EXCEPTIONS)
}

/// Returns the message of a Rust panic: its first line, and the values of a failed comparison.
fn panic(place: &str, after: &[&str]) -> Option<Cause> {
    let first = after.first().copied().unwrap_or_default();
    if first == PYTHON_WRAPPER {
        return None;
    }
    if let Some((_, value)) = first.split_once("PyErr { type: ") {
        let value = value.split_once(", value: ")?.1;
        let value = value.rsplit_once(", traceback: ")?.0;
        return Some(Cause::Reason(value.to_owned()));
    }
    let values = after.iter().skip(1).map(|line| line.trim());
    let values =
        values.take_while(|line| line.starts_with("left: ") || line.starts_with("right: "));
    let mut parts: Vec<&str> = [first].into_iter().chain(values).collect();
    parts.retain(|part| !part.is_empty());
    let place = format!("at {place}");
    parts.push(&place);
    Some(Cause::Panic(parts.join(", ")))
}

/// Returns the exception at the end of a traceback, with the innermost place in the author's files.
fn python(traceback: &[&str]) -> Option<String> {
    let frames = traceback.iter().take_while(|line| line.starts_with(' '));
    let place = frames
        .clone()
        .filter_map(|frame| python_place(frame))
        .last();
    let exception = traceback.get(frames.count())?;
    (!exception.is_empty()).then(|| match place {
        Some(place) => format!("{exception}, at {place}"),
        None => (*exception).to_owned(),
    })
}

/// Returns `app.py:7, in run` for `  File "/0/app.py", line 7, in run`; none for the standard library and for frames
/// without a file.
fn python_place(frame: &str) -> Option<String> {
    let (file, rest) = frame.strip_prefix("  File \"")?.split_once("\", line ")?;
    if file.starts_with('<') || file.starts_with("/python/") || file.contains("/lib/python3") {
        return None;
    }
    // componentize-py numbers the folders that it packs.
    let numbered = file.strip_prefix('/').and_then(|file| file.split_once('/'));
    let packed = numbered.filter(|(folder, _)| folder.bytes().all(|byte| byte.is_ascii_digit()));
    let file = packed.map_or(file, |(_, file)| file);
    let is_sdk = file.split('/').rev().nth(1) == Some("campanile");
    if is_sdk {
        return None;
    }
    Some(format!("{file}:{rest}"))
}

/// Add the innermost place in the author's files, if the trace of a goroutine follows.
fn with_go_place(reason: &str, after: &[&str]) -> String {
    let trace = after
        .iter()
        .skip_while(|line| !line.starts_with("goroutine "));
    let trace: Vec<&str> = trace.skip(1).copied().collect();
    let (frames, _) = trace.as_chunks::<2>();
    let own = |[function, _]: &&[&str; 2]| {
        !function.starts_with("panic(") && !function.starts_with("runtime.")
    };
    match frames.iter().find(own) {
        Some([_, place]) => {
            let place = place.trim();
            let place = place.split_once(" +0x").map_or(place, |(place, _)| place);
            format!("{reason}, at {place}")
        }
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What real toolchains wrote: the file, and the cause. The text of the uncaught C++ exception comes from a native
    /// program, because Zig 0.17 has no C++ exceptions for WASI.
    macro_rules! written {
        ($($file:literal => $cause:expr,)*) => {
            [$(($file, include_str!(concat!("cause/stderr/", $file, ".txt")), $cause),)*]
        };
    }

    #[test]
    fn a_handled_error_is_not_the_cause() {
        for handled in [
            "error: retrying",
            "Traceback (most recent call last):\n  File \"/0/app.py\", line 3, in run\nKeyError: 'url'",
            "thread 'main' (1) panicked at a.rs:1:2:\ncaught\nnote: run with `RUST_BACKTRACE=1` to see more",
            "panic: recovered",
            "no\nStack:\n  f@a.js:1:2",
        ] {
            let text = format!("{handled}\none more line\nthe second\ncannot reach the database\n");
            let last = Cause::LastLine("cannot reach the database".to_owned());
            assert_eq!(last_cause(&text), Some(last), "{text}");
        }
    }

    #[test]
    fn each_language_says_why_it_ended() {
        let panic = |text: &str| Cause::Panic(text.to_owned());
        let reason = |text: &str| Cause::Reason(text.to_owned());
        let exception = |text: &str| Cause::Exception(text.to_owned());
        let last_line = |text: &str| Cause::LastLine(text.to_owned());
        let table = written! {
            "c-abort" => last_line("cannot open the ledger: no such file"),
            "c-assert" => reason("Assertion failed: rows > 0 && \"no rows\" (assert.c: main: 3)"),
            "cpp-exception" => reason("libc++abi: terminating due to uncaught exception of type std::runtime_error: no such key: url"),
            "cpp-no-exceptions" => reason("out_of_range was thrown in -fno-exceptions mode with message \"vector\""),
            "zig-panic" => reason("panic: index out of bounds: index 7, len 3"),
            "zig-error" => reason("error: NoSuchKey"),
            "rust-panic" => panic("no such key: url, at panic.rs:1:94"),
            "rust-assert-eq" => panic("assertion `left == right` failed: the number of arguments, left: 1, right: 9, at asserteq.rs:1:47"),
            "rust-error" => last_line("Error: ParseIntError { kind: InvalidDigit }"),
            "go-panic" => reason("panic: no such key: url, at /home/me/task/panic.go:3"),
            "go-error" => reason("panic: read config: no such key: url, at /home/me/task/panicerr.go:3"),
            "go-index" => reason("panic: runtime error: index out of range [5] with length 1, at /home/me/task/index.go:3"),
            "go-nil-pointer" => reason("panic: runtime error: invalid memory address or nil pointer dereference, at /home/me/task/nilptr.go:3"),
            "go-deadlock" => reason("fatal error: all goroutines are asleep - deadlock!, at /home/me/task/dead.go:2"),
            "go-goroutine" => reason("panic: assignment to entry in nil map, at /home/me/task/g.go:4"),
            "go-repanicked" => reason("panic: (main.E) 0xb910 [recovered, repanicked], at /home/me/task/e.go:3"),
            "go-log-fatal" => last_line("2026/11/24 08:06:35 no such key: url"),
            "python-key" => exception("KeyError: 'url', at helper.py:2, in url"),
            "python-chained" => exception("RuntimeError: the configuration is incomplete, at app.py:18, in run"),
            "python-exit" => last_line("cannot go on"),
            "python-of-the-library" => exception("RecursionError: maximum recursion depth exceeded, at app.py:10, in run"),
            "python-json" => exception("json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1), at app.py:24, in run"),
            "python-many-lines" => exception("ValueError: first line, at app.py:28, in run"),
            "python-group" => exception("ExceptionGroup: both failed (2 sub-exceptions), at app.py:32, in run"),
            "python-no-message" => exception("ValueError, at app.py:30, in run"),
            "python-wrong-type" => reason("AttributeError(\"'int' object has no attribute 'context'\")"),
            "python-syntax" => exception("SyntaxError: invalid syntax (<string>, line 1), at app.py:26, in run"),
            "cpython-program" => exception("KeyError: 'url', at /home/me/task/job.py:2, in url"),
            "js-not-an-error" => reason("expected a string"),
            "js-undefined" => reason("e is undefined"),
        };
        for (file, stderr, cause) in table {
            assert_eq!(last_cause(stderr), Some(cause), "{file}:\n{stderr}");
        }
    }

    #[test]
    fn broken_and_empty_texts_are_no_trouble() {
        for nothing in ["", "\n \n", "note: run with `RUST_BACKTRACE=1`\n"] {
            assert_eq!(last_cause(nothing), None, "{nothing:?}");
        }
        for (text, cause) in [
            (
                "thread 'main' panicked at a.rs:1:2:",
                Cause::Panic("at a.rs:1:2".to_owned()),
            ),
            (
                "Traceback (most recent call last):",
                Cause::LastLine("Traceback (most recent call last):".to_owned()),
            ),
            (
                "Traceback (most recent call last):\n  File \"",
                Cause::LastLine("File \"".to_owned()),
            ),
            ("Stack:\n", Cause::LastLine("Stack:".to_owned())),
            (
                "panic: x\n\ngoroutine 1 [running]:\nmain.main()",
                Cause::Reason("panic: x".to_owned()),
            ),
        ] {
            assert_eq!(last_cause(text), Some(cause), "{text:?}");
        }
    }
}

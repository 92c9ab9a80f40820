//! The body of a form with a file, `multipart/form-data` of RFC 7578.

use axum::body::Bytes;

use crate::call::Result;
use crate::problem::ApiProblem;

/// The most parts of a body.
const PARTS_MAX: usize = 16;
/// The most bytes of the headers of a part, and of a field without a file.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// The fields and the file of a form of the type multipart/form-data.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub fields: Vec<(String, String)>,
    /// The name of the file on the machine of the browser, and its content.
    pub file: Option<(String, Bytes)>,
}

/// Returns the boundary of a media type; none when it is another type.
pub(super) fn boundary(kind: &str) -> Option<&str> {
    let (kind, rest) = kind.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let mut parameters = rest.split(';').map(str::trim);
    let value = parameters.find_map(|one| one.strip_prefix("boundary="))?;
    let value = value.trim_matches('"');
    (1..=70).contains(&value.len()).then_some(value)
}

/// Read a body.
pub(super) fn parse(boundary: &str, body: &Bytes) -> Result<Parts> {
    let wrong =
        |what: &str| ApiProblem::invalid(format!("the form with a file is damaged: {what}"));
    let delimiter = format!("\r\n--{boundary}");
    // The first delimiter has no line before it.
    let first = &delimiter[2..];
    if !body.starts_with(first.as_bytes()) {
        return Err(wrong("it does not begin with its boundary"));
    }
    let mut parts = Parts::default();
    let mut at = first.len();
    for _ in 0..PARTS_MAX {
        match body.get(at..at + 2) {
            Some(b"--") => return Ok(parts),
            Some(b"\r\n") => at += 2,
            _ => return Err(wrong("a boundary has no end")),
        }
        let head = find(&body[at..], b"\r\n\r\n").filter(|length| *length <= TEXT_BYTES_MAX);
        let head_end = at + head.ok_or_else(|| wrong("a part has no headers"))?;
        let head = String::from_utf8_lossy(&body[at..head_end]);
        let from = head_end + 4;
        let length = find(&body[from..], delimiter.as_bytes());
        let to = from + length.ok_or_else(|| wrong("its end is missing"))?;
        let name = parameter(&head, "name").ok_or_else(|| wrong("a part has no name"))?;
        match parameter(&head, "filename") {
            // A browser sends an empty one for a file that was not chosen.
            Some(file) if !file.is_empty() => parts.file = Some((file, body.slice(from..to))),
            Some(_) => {}
            None if to - from > TEXT_BYTES_MAX => return Err(wrong("a field is too long")),
            None => {
                let text = String::from_utf8_lossy(&body[from..to]).into_owned();
                parts.fields.push((name, text));
            }
        }
        at = to + delimiter.len();
    }
    Err(wrong("it has too many parts"))
}

/// Returns a parameter of the header `Content-Disposition`.
fn parameter(head: &str, name: &str) -> Option<String> {
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let value = lines.find_map(|(header, value)| {
        let is_disposition = header.trim().eq_ignore_ascii_case("content-disposition");
        is_disposition.then_some(value)
    })?;
    let start = format!(" {name}=\"");
    let (_, rest) = value.split_once(&start)?;
    let (text, _) = rest.split_once('"')?;
    Some(text.replace("%22", "\""))
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let next = text[from..].iter().position(|byte| *byte == wanted[0])?;
        from += next;
        if text[from..].starts_with(wanted) {
            return Some(from);
        }
        from += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(head: &str, body: &str) -> String {
        format!("--b\r\nContent-Disposition: form-data; {head}\r\n\r\n{body}\r\n")
    }

    #[test]
    fn fields_and_a_file_are_read() {
        let body = part("name=\"do\"", "upload")
            + &part(
                "name=\"file\"; filename=\"a%22.wasm\"\r\nContent-Type: application/wasm",
                "\0asm\r\n--x\r\n",
            )
            + "--b--\r\n";
        let parts = parse("b", &Bytes::from(body)).unwrap();
        assert_eq!(parts.fields, [("do".to_owned(), "upload".to_owned())]);
        let (name, file) = parts.file.unwrap();
        assert_eq!(
            (name.as_str(), &file[..]),
            ("a\".wasm", &b"\0asm\r\n--x\r\n"[..])
        );
        let none = part("name=\"file\"; filename=\"\"", "") + "--b--";
        assert!(parse("b", &Bytes::from(none)).unwrap().file.is_none());
        assert_eq!(boundary("multipart/form-data; boundary=\"b\""), Some("b"));
        assert_eq!(
            boundary("multipart/form-data; charset=x; boundary=b"),
            Some("b")
        );
        assert_eq!(boundary("application/json; boundary=b"), None);
        assert_eq!(boundary("multipart/form-data; boundary="), None);
    }

    #[test]
    fn a_damaged_body_is_refused_wherever_it_ends() {
        let whole = part("name=\"a\"", "x") + &part("name=\"f\"; filename=\"f\"", "yz") + "--b--";
        let bytes = Bytes::from(whole);
        for length in 0..bytes.len() {
            assert!(parse("b", &bytes.slice(..length)).is_err(), "{length}");
        }
        assert!(parse("b", &bytes).is_ok());
        assert!(parse("c", &bytes).is_err());
        let long = part("name=\"a\"", &"x".repeat(TEXT_BYTES_MAX + 1)) + "--b--";
        assert!(parse("b", &Bytes::from(long)).is_err());
        let many = part("name=\"a\"", "x").repeat(PARTS_MAX + 1) + "--b--";
        assert!(parse("b", &Bytes::from(many)).is_err());
        let unnamed = "--b\r\nX: y\r\n\r\nz\r\n--b--";
        assert!(parse("b", &Bytes::from(unnamed)).is_err());
    }
}

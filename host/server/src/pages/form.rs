//! What a form sends.

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use maud::{Markup, html};
use url::form_urlencoded;

use super::multipart::{self, Parts};
use crate::problem::ApiProblem;
use campanile_control::problem::ErrorCode;
use campanile_model::text::printable;

/// The most fields of a form.
const FIELDS_MAX: usize = 128;
/// The field with further fields, encoded as a form.
const MORE: &str = "more";

/// The fields of a form.
#[derive(Debug, Default)]
pub(super) struct Form {
    fields: Vec<(String, String)>,
    /// The name of a file on the machine of the browser, and its content.
    pub file: Option<(String, Bytes)>,
}

impl Form {
    /// Read what a form sends.
    pub(super) fn read(headers: &HeaderMap, body: &Bytes) -> Result<Form, ApiProblem> {
        let kind = headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default();
        if let Some(boundary) = multipart::boundary(kind) {
            let Parts { fields, file } = multipart::parse(boundary, body)?;
            return Ok(Form { fields, file });
        }
        let kind = kind.split(';').next();
        if kind.map(str::trim) != Some("application/x-www-form-urlencoded") {
            return Err(ApiProblem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                ErrorCode::InvalidArgument,
                "a page accepts what its forms send; programs use the API under `/api/v1`",
            ));
        }
        Form::parse(body)
    }

    /// Read fields as a form encodes them.
    pub(super) fn parse(body: &[u8]) -> Result<Form, ApiProblem> {
        let mut fields = Vec::new();
        for (name, value) in form_urlencoded::parse(body) {
            // Browsers send the ends of lines as CR LF.
            let value = value.replace("\r\n", "\n");
            if fields.len() == FIELDS_MAX || name.contains('\0') || value.contains('\0') {
                let message =
                    format!("the form has more than {FIELDS_MAX} fields, or a zero character");
                return Err(ApiProblem::invalid(message));
            }
            fields.push((name.into_owned(), value));
        }
        let Some(place) = fields.iter().position(|(name, _)| name == MORE) else {
            return Ok(Form::of(fields));
        };
        let (_, more) = fields.remove(place);
        let more = form_urlencoded::parse(more.as_bytes()).take(FIELDS_MAX);
        fields.extend(more.map(|(name, value)| (name.into_owned(), value.replace('\0', ""))));
        Ok(Form::of(fields))
    }

    /// Make a form with these fields.
    pub(super) fn of(fields: Vec<(String, String)>) -> Form {
        Form { fields, file: None }
    }

    /// Makes a form with a file alone: its name, and its content.
    pub(super) fn of_file(file: (String, Bytes)) -> Form {
        Form {
            fields: Vec::new(),
            file: Some(file),
        }
    }

    /// Sets a field.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.fields.retain(|(field, _)| field != name);
        self.fields.push((name.to_owned(), value.to_owned()));
    }

    /// Returns a field; empty when the form does not have it.
    pub(super) fn get(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Returns all non-blank fields of a name, trimmed.
    pub(super) fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        let of_name = self.fields.iter().filter(move |(field, _)| field == name);
        of_name
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// Returns a non-blank field, trimmed.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        Some(self.get(name).trim()).filter(|value| !value.is_empty())
    }

    /// Show fields that the operator does not see. Those with hostile characters are encoded.
    pub(super) fn hidden<'f>(fields: impl Iterator<Item = &'f (String, String)>) -> Markup {
        let is_plain = |(_, value): &&(String, String)| printable(value) == *value;
        let (plain, hostile): (Vec<_>, Vec<_>) = fields.partition(is_plain);
        let hostile = Form::of(hostile.into_iter().cloned().collect()).encoded();
        html! {
            @for (name, value) in plain { input type="hidden" name=(name) value=(value); }
            @if !hostile.is_empty() { input type="hidden" name=(MORE) value=(hostile); }
        }
    }

    /// Whether nothing was sent.
    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns the fields as a form encodes them.
    pub(super) fn encoded(&self) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(&self.fields);
        text.finish()
    }

    pub(super) fn fields(&self) -> &[(String, String)] {
        &self.fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::headers;

    #[test]
    fn a_hidden_field_comes_back_as_it_was() {
        let fields = [("note", "a \u{202e}<b>\u{1b}"), ("plain", "x y")];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let shown = Form::hidden(fields.iter()).into_string();
        assert!(!shown.contains(['\u{202e}', '\u{1b}']), "{shown}");
        let (_, more) = shown.split_once("name=\"more\" value=\"").unwrap();
        let more = more.split('"').next().unwrap().replace("&amp;", "&");
        let sent = Form::of(vec![("more".to_owned(), more)]).encoded();
        let form = Form::parse(sent.as_bytes()).unwrap();
        assert_eq!(form.get("note"), fields[0].1);
        assert!(shown.contains("name=\"plain\" value=\"x y\""), "{shown}");
    }

    #[test]
    fn a_form_is_read_and_bounded() {
        let kind = headers(&[("content-type", "application/x-www-form-urlencoded")]);
        let form = Form::read(&kind, &Bytes::from_static(b"note=a+%3Cb%3E%0D%0Ac&empty=+"));
        let form = form.unwrap();
        assert_eq!(form.get("note"), "a <b>\nc");
        assert_eq!((form.given("empty"), form.get("none")), (None, ""));
        let json = headers(&[("content-type", "application/json")]);
        assert!(Form::read(&json, &Bytes::new()).is_err());
        assert!(Form::read(&kind, &Bytes::from_static(b"a=%00")).is_err());
        assert!(Form::read(&kind, &Bytes::from("a=b&".repeat(FIELDS_MAX + 1))).is_err());
    }
}

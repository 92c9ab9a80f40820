//! What a form sends, and whether the form was on a page of this server.

use axum::body::Bytes;
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use url::form_urlencoded;

use crate::problem::ApiProblem;
use campanile_engine::problem::ErrorCode;

/// The most fields of a form.
const FIELDS_MAX: usize = 64;
/// The header in which a browser says where a request comes from.
const FETCH_SITE: &str = "sec-fetch-site";

/// The fields of a form.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Read what a form sends.
    pub(super) fn read(headers: &HeaderMap, body: &Bytes) -> Result<Form, ApiProblem> {
        let kind = headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next();
        if kind.map(str::trim) != Some("application/x-www-form-urlencoded") {
            return Err(ApiProblem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                ErrorCode::InvalidArgument,
                "a page accepts what its forms send; programs use the API under `/api/v1`",
            ));
        }
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
        Ok(Form(fields))
    }

    /// Return a field; empty when the form does not have it.
    pub(super) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(field, _)| field == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Return a field that is not blank, without spaces at its ends.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        Some(self.get(name).trim()).filter(|value| !value.is_empty())
    }

    pub(super) fn fields(&self) -> &[(String, String)] {
        &self.0
    }
}

/// Refuse a form of another site. Clients that are no browsers send neither header.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), ApiProblem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(HOST.as_str()).unwrap_or_default();
    let is_own = match (text(FETCH_SITE), text(ORIGIN.as_str())) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => origin
            .split_once("://")
            .is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host)),
        (None, None) => true,
    };
    match is_own {
        true => Ok(()),
        false => {
            let problem = ApiProblem::forbidden("the form was sent by a page of another site");
            Err(problem.hint("open the page here, and send its form"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_form_of_another_site_is_refused() {
        for (site, origin, is_own) in [
            (None, None, true),
            (Some("same-origin"), None, true),
            (Some("none"), None, false),
            (Some("same-site"), None, false),
            (Some("cross-site"), Some("http://a:1"), false),
            (None, Some("http://a:1"), true),
            (None, Some("https://a:1"), true),
            (None, Some("http://a:2"), false),
            (None, Some("http://a"), false),
            (None, Some("null"), false),
        ] {
            let mut sent = vec![("host", "a:1")];
            sent.extend(site.map(|site| ("sec-fetch-site", site)));
            sent.extend(origin.map(|origin| ("origin", origin)));
            assert_eq!(check_origin(&headers(&sent)).is_ok(), is_own, "{sent:?}");
        }
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
        assert!(Form::read(&kind, &Bytes::from("a=b&".repeat(65))).is_err());
    }
}

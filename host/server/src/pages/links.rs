//! The addresses of pages.

use std::fmt::Write as _;

use campanile_model::ids::LaunchId;
use maud::{Markup, html};

use super::words::line;
use crate::call::Call;

/// Returns the path with these parts, as an address writes it.
pub(super) fn path(parts: &[&str]) -> String {
    let mut path = String::new();
    for part in parts {
        path.push('/');
        for byte in part.bytes() {
            match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                true => path.push(char::from(byte)),
                // Writing to a String cannot fail.
                false => _ = write!(path, "%{byte:02X}"),
            }
        }
    }
    path
}

/// Returns the address of the page that is visited.
pub(super) fn here(call: &Call) -> String {
    let query = call.query.encoded();
    if query.is_empty() {
        call.uri.clone()
    } else {
        format!("{}?{query}", call.uri)
    }
}

/// Returns the query with these parameters, without those that have no value.
pub(super) fn query(parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(given);
    let query = query.finish();
    if query.is_empty() {
        query
    } else {
        format!("?{query}")
    }
}

pub(super) fn schedule(name: &str) -> Markup {
    html! { a href=(path(&["schedules", name])) { (line(name)) } }
}

pub(super) fn package(name: &str) -> Markup {
    html! { a href=(path(&["packages", name])) { (line(name)) } }
}

pub(super) fn launch(id: LaunchId) -> Markup {
    html! { a.id href=(path(&["launches", &id.to_string()])) { (id.short()) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_no_characters_with_a_meaning() {
        assert_eq!(
            path(&["schedules", "a b/c?d\"é"]),
            "/schedules/a%20b%2Fc%3Fd%22%C3%A9"
        );
        assert_eq!(query(&[("a", "x y&z"), ("b", "")]), "?a=x+y%26z");
        assert_eq!(query(&[("b", "")]), "");
    }
}

//! The query of a request, checked against the parameters of its route.

use std::fmt::Display;
use std::str::FromStr;

use url::form_urlencoded;

use crate::problem::ApiProblem;
use campanile_model::clock::Timestamp;
use campanile_model::text::{duration, nearest};

/// The most entries of a page.
pub(crate) const LIMIT_MAX: i64 = 500;
/// The entries of a page without `limit`.
const LIMIT: i64 = 50;

/// A parameter of a query.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub meaning: &'static str,
    /// The JSON type of a value: `string`, `integer` or `boolean`.
    pub kind: &'static str,
}

/// The parameters of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Read a query. A parameter that the route does not have is refused; one that is not `repeated` may come once.
    pub(crate) fn read(
        text: &str,
        known: &[Parameter],
        repeated: &str,
    ) -> Result<Query, ApiProblem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let mut names = known.iter().map(|parameter| parameter.name);
            if !names.any(|one| one == name) {
                let names = known.iter().map(|parameter| parameter.name);
                let hint = match (nearest(&name, names.clone()), known) {
                    (Some(near), _) => format!("did you mean `{near}`?"),
                    (None, []) => "this route has no parameters".to_owned(),
                    (None, _) => format!("this route has {}", Vec::from_iter(names).join(", ")),
                };
                return Err(
                    ApiProblem::invalid(format!("there is no query parameter `{name}`")).hint(hint),
                );
            }
            if name != repeated && pairs.iter().any(|(given, _)| *given == name) {
                return Err(ApiProblem::invalid(format!(
                    "the query parameter `{name}` is given twice"
                )));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Query(pairs))
    }

    /// Whether a value has a character that the database cannot store.
    pub(crate) fn has_zero(&self) -> bool {
        self.0.iter().any(|(_, value)| value.contains('\0'))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Return this query with another `after`.
    pub(crate) fn next_page(&self, after: &str) -> String {
        let others = self.0.iter().filter(|(name, _)| name != "after");
        let mut next = form_urlencoded::Serializer::new(String::new());
        next.extend_pairs(others);
        next.append_pair("after", after);
        next.finish()
    }

    /// Return all values of a parameter.
    pub(crate) fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        let of_name = self.0.iter().filter(move |(given, _)| given == name);
        of_name.map(|(_, value)| value.as_str())
    }

    /// Parse a parameter with `read`.
    pub(crate) fn read_with<T, E: Display>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ApiProblem> {
        let parsed = self.text(name).map(read).transpose();
        parsed.map_err(|error| ApiProblem::invalid(format!("`{name}`: {error}")))
    }

    pub(crate) fn parsed<T: FromStr<Err: Display>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, ApiProblem> {
        self.read_with(name, str::parse)
    }

    /// Return the size of a page.
    pub(crate) fn limit(&self) -> Result<i64, ApiProblem> {
        let read = |text: &str| match text.parse() {
            Ok(limit) if (1..=LIMIT_MAX).contains(&limit) => Ok(limit),
            _ => Err(format!("must be a number from 1 to {LIMIT_MAX}")),
        };
        Ok(self.read_with("limit", read)?.unwrap_or(LIMIT))
    }

    pub(crate) fn is_set(&self, name: &str) -> Result<bool, ApiProblem> {
        let read = |text: &str| match text {
            "true" | "" => Ok(true),
            "false" => Ok(false),
            _ => Err("must be `true` or `false`"),
        };
        Ok(self.read_with(name, read)?.unwrap_or(false))
    }

    /// Return a time, given as such or as a span before now.
    pub(crate) fn moment(
        &self,
        name: &str,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, ApiProblem> {
        self.read_with(name, |text| {
            match (text.parse::<Timestamp>(), duration(text)) {
                (Ok(at), _) => Ok(at),
                (_, Ok(span)) => Ok(now.minus(span)),
                _ => Err("is neither a time such as 2026-11-21T08:00:00Z nor a span such as 2h"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Parameter; 2] = [
        Parameter {
            name: "limit",
            meaning: "",
            kind: "integer",
        },
        Parameter {
            name: "after",
            meaning: "",
            kind: "string",
        },
    ];

    fn read(text: &str) -> Result<Query, ApiProblem> {
        Query::read(text, &KNOWN, "")
    }

    #[test]
    fn an_unknown_or_doubled_parameter_is_refused() {
        let error = read("limt=3").unwrap_err().problem;
        assert_eq!(error.hint.as_deref(), Some("did you mean `limit`?"));
        let error = read("limit=3&limit=4").unwrap_err().problem;
        assert!(error.message.contains("given twice"), "{error}");
        let query = read("after=a%20b&limit=3").unwrap();
        assert_eq!(query.text("after"), Some("a b"));
        assert_eq!(query.limit().unwrap(), 3);
    }

    #[test]
    fn a_page_has_bounds() {
        assert_eq!(read("").unwrap().limit().unwrap(), 50);
        for text in ["limit=0", "limit=501", "limit=-1", "limit=x", "limit="] {
            assert!(read(text).unwrap().limit().is_err(), "{text}");
        }
    }
}

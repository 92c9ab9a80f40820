//! The zone in which a reader sees times: a cookie, set by the form in the bar.

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use chrono_tz::Tz;

use crate::call::Result;
use crate::problem::ApiProblem;

const NAME: &str = "campanile_zone";

/// Returns the zone that a request's cookie names; UTC without one.
pub(super) fn zone_of(headers: &HeaderMap) -> Tz {
    let cookies = headers.get_all(COOKIE).into_iter();
    let mut pairs = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let zone = pairs.find(|(name, _)| *name == NAME);
    zone.and_then(|(_, zone)| zone.parse().ok())
        .unwrap_or(Tz::UTC)
}

/// Returns the cookie that keeps a zone for a year.
pub(super) fn cookie(zone: &str) -> Result<HeaderValue> {
    let zone = zone.trim();
    let found = zone.parse::<Tz>().map_err(|_| {
        let problem = ApiProblem::invalid(format!("there is no time zone `{zone}`"));
        problem.hint("name one of the zone database, such as `Europe/Berlin`, or `UTC`")
    })?;
    let text = format!(
        "{NAME}={}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict",
        found.name()
    );
    HeaderValue::from_str(&text)
        .map_err(|_| ApiProblem::invalid("the name of the zone is no text for a cookie"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_comes_from_its_cookie_or_is_utc() {
        let zone = |cookie: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(COOKIE, HeaderValue::from_static(cookie));
            zone_of(&headers).name()
        };
        assert_eq!(zone("a=b; campanile_zone=Europe/Berlin"), "Europe/Berlin");
        for none in ["", "campanile_zone=", "campanile_zone=Mars/Base", "x"] {
            assert_eq!(zone(none), "UTC", "{none}");
        }
        assert!(
            cookie(" Asia/Tokyo ")
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("campanile_zone=Asia/Tokyo;")
        );
        assert!(cookie("Mars/Base").is_err());
    }
}

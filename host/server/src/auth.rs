//! Who makes a request.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use crate::problem::ApiProblem;
use crate::token;

/// Who makes a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The name that the record keeps for a change.
    pub name: String,
}

/// How a connection proves who is at its other end.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// Each request has a token.
    Tcp,
    /// The user of the process at the other end of a Unix socket.
    Unix { uid: u32 },
}

/// Return who makes a request, or refuse it.
pub(crate) fn principal(
    headers: &HeaderMap,
    peer: &Peer,
    local_token: Option<&str>,
) -> Result<Principal, ApiProblem> {
    if let Peer::Unix { uid } = peer {
        return match *uid == rustix::process::geteuid().as_raw() {
            true => Ok(Principal {
                name: format!("uid {uid}"),
            }),
            false => Err(ApiProblem::forbidden(format!(
                "the user {uid} is not the user of this host"
            ))),
        };
    }
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(ApiProblem::unauthorized("the request has no token"));
    };
    let value = value.to_str().unwrap_or_default();
    let given = value
        .split_once(' ')
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let Some((_, given)) = given else {
        return Err(ApiProblem::unauthorized(
            "the header `Authorization` has no bearer token",
        ));
    };
    match local_token.is_some_and(|token| token::is_same(given.trim(), token)) {
        true => Ok(Principal {
            name: "local token".to_owned(),
        }),
        false => Err(ApiProblem::unauthorized("the token is wrong")),
    }
}

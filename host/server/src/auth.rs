//! Who makes a request, and whether the role of that principal is enough.

use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use tokio::time::sleep;

use crate::app::State;
use crate::peer::Peer;
use crate::problem::ApiProblem;
use crate::token;
use campanile_control::admin::token_admin::Principal;
use campanile_model::access::Role;

/// How often the token of a stream is checked. Most checks need no database.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The answer to a client whose token is not accepted.
pub(crate) const WRONG_TOKEN: &str = "the token is wrong, has expired or was revoked";

/// Returns who makes a request.
///
/// # Errors
///
/// When the request does not prove it.
pub(crate) async fn principal(
    state: &State,
    headers: &HeaderMap,
    peer: &Peer,
) -> Result<Principal, ApiProblem> {
    if let Some(principal) = state.proxies.principal(headers, peer)? {
        return Ok(principal);
    }
    if let Peer::Unix { uid } = peer {
        return if *uid == rustix::process::geteuid().as_raw() {
            Ok(administrator(format!("uid {uid}")))
        } else {
            Err(ApiProblem::forbidden(format!(
                "the user {uid} is not the user of this host"
            )))
        };
    }
    let found = of_secret(state, bearer(headers)?, peer).await?;
    found.ok_or_else(|| ApiProblem::unauthorized(WRONG_TOKEN))
}

/// Returns the name under which a client's requests take turns until its token is accepted, keeping one address from holding up others.
/// Principals never have such a name.
pub(crate) fn unknown_at(peer: &Peer) -> String {
    match peer {
        Peer::Tcp { address } => format!("unknown client at {address}"),
        Peer::Unix { uid } => format!("unknown client of the user {uid}"),
    }
}

/// Returns the owner of this secret, or none if it's wrong, expired or revoked.
pub(crate) async fn of_secret(
    state: &State,
    secret: &str,
    peer: &Peer,
) -> Result<Option<Principal>, ApiProblem> {
    let is_local = |token: &str| token::is_same(secret, token);
    if state.token.as_deref().is_some_and(is_local) {
        return Ok(Some(administrator("local token".to_owned())));
    }
    // Requests with wrong secrets read the database too, so they wait for their turn.
    let _turn = state.turn_of(&unknown_at(peer), false).await?;
    let now = state.app.engine.clock().now();
    Ok(state.authenticator.authenticate(secret, now).await?)
}

fn administrator(name: String) -> Principal {
    Principal {
        name,
        role: Role::Admin,
        namespace: None,
        token: None,
        is_proxied: false,
        unsealed_role: None,
    }
}

/// Returns the secret that a request brings.
fn bearer(headers: &HeaderMap) -> Result<&str, ApiProblem> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(ApiProblem::unauthorized("the request has no token"));
    };
    let given = value.to_str().unwrap_or_default().split_once(' ');
    match given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) {
        Some((_, secret)) => Ok(secret.trim()),
        None => Err(ApiProblem::unauthorized(
            "the header `Authorization` has no bearer token",
        )),
    }
}

/// Refuse a request of a principal whose role is below `needed`.
pub(crate) fn require(principal: &Principal, needed: Role, what: &str) -> Result<(), ApiProblem> {
    if principal.role.includes(needed) {
        return Ok(());
    }
    let Principal { name, role, .. } = principal;
    if let Some(recorded) = principal.unsealed_role {
        let message = format!(
            "{what} needs the role {needed}, and the token {name} isn't sealed with the key of this host, so its role is {role} and not {recorded}"
        );
        return Err(ApiProblem::forbidden(message).hint(format!(
            "an administrator revokes it and creates another with `campanile token create NAME --role {recorded}`; hosts that share a database need the same `policy.approval_key`"
        )));
    }
    let (kind, hint) = if principal.is_proxied {
        (
            "user",
            "the proxy, or `[server.proxy_roles]`, gives a user its role".to_owned(),
        )
    } else {
        (
            "token",
            format!(
                "an administrator creates one with `campanile token create NAME --role {needed}`"
            ),
        )
    };
    let message =
        format!("{what} needs the role {needed}, and the {kind} {name} has the role {role}");
    Err(ApiProblem::forbidden(message).hint(hint))
}

/// Returns when the token of `principal` is not accepted any more; never for who needs none.
pub(crate) async fn ended(state: &State, principal: Option<&Principal>) {
    let Some(hash) = principal.and_then(|principal| principal.token.as_ref()) else {
        return std::future::pending().await;
    };
    loop {
        sleep(CHECK_INTERVAL).await;
        let now = state.app.engine.clock().now();
        // An outage of the database ends nothing.
        if let Ok(None) = state.authenticator.look_up(hash, now).await {
            return;
        }
    }
}

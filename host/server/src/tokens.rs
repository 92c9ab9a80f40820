//! The routes of tokens.

use axum::http::StatusCode;

use crate::call::{Call, Reply, Result};
use crate::change::change;
use crate::problem::ApiProblem;
use crate::{bodies, idempotency};
use campanile_control::token_admin::{self, WantedToken};
use campanile_model::text;

pub(crate) async fn list(call: Call) -> Result {
    let (all, limit) = (call.query.is_set("all")?, call.query.limit()?);
    Reply::json(&token_admin::list(&mut call.read().await?, all, limit, call.now()).await?)
}

pub(crate) async fn create(call: Call) -> Result {
    let bodies::NewToken {
        name,
        role,
        namespace,
        expires,
    } = call.json()?;
    if idempotency::keyed(&call)?.is_some() {
        let message = "a request for a token cannot have an `Idempotency-Key`, because the record would keep its secret";
        return Err(
            ApiProblem::invalid(message).hint("send it without; a name that is taken is refused")
        );
    }
    let expires = expires.as_deref().map(text::duration).transpose();
    let expires = expires.map_err(|error| ApiProblem::invalid(format!("`expires`: {error}")))?;
    let wanted = WantedToken {
        name: &name,
        role,
        namespace: namespace.as_ref(),
        expires_in: expires,
    };
    change!(call, StatusCode::CREATED, |tx, now| {
        let key = Some(call.state.app.engine.approval_key());
        (token_admin::create(tx, wanted, key, now).await?, None)
    })
}

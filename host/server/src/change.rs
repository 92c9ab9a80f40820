//! One write transaction for each request that changes something. It also keeps the answer for an idempotency key.

use axum::http::StatusCode;

use crate::call::{Call, Reply, Result};
use crate::idempotency::{self, Keyed};
use crate::problem::ApiProblem;
use campanile_control::order::{self, Desk, Order};
use campanile_control::problem::{ErrorCode, Problem};
use campanile_model::clock::Timestamp;
use campanile_store::Tx;

/// How often a transaction runs while another one collides with it.
pub(crate) const TRIES_MAX: usize = 3;

/// Run a change in a write transaction, and answer with what it returns. An earlier answer to the same idempotency key is
/// given again. A collision with another transaction is tried again.
///
/// It is a macro because the futures of generic closures over a transaction cannot be sent to other threads.
macro_rules! change {
    ($call:ident, $status:expr, |$tx:ident, $now:ident| $change:block) => {{
        let keyed = $crate::idempotency::keyed(&$call)?;
        let mut tries = 1;
        loop {
            let done: $crate::call::Result = async {
                let $now = $call.now();
                let mut tx = $call.db.write().await?;
                if let Some(reply) = $crate::change::earlier(keyed.as_ref(), &mut tx, $now).await? {
                    return Ok(reply);
                }
                let $tx = &mut tx;
                let (answer, revision) = $change;
                $crate::change::finish(keyed.as_ref(), tx, $status, &answer, revision).await
            }
            .await;
            match done {
                Err(error) if tries < $crate::change::TRIES_MAX && error.problem.is_collision => {
                    tries += 1
                }
                done => break done,
            }
        }
    }};
}

pub(crate) use change;

/// Runs the order given in a request body.
pub(crate) async fn order<O: Order>(call: Call) -> Result {
    let revision = if O::CHECKS_REVISION {
        call.if_match()?
    } else {
        None
    };
    let order = call.json::<O>()?;
    if let Some((role, what)) = order.needs() {
        call.require(role, what)?;
    }
    if O::IS_SECRET && idempotency::keyed(&call)?.is_some() {
        let message = "a request for a token cannot have an `Idempotency-Key`, because the record would keep its secret";
        return Err(
            ApiProblem::invalid(message).hint("send it without; a name that is taken is refused")
        );
    }
    let of = call.of(&O::ENDPOINT);
    let desk = Desk {
        revision,
        ..call.desk()
    };
    if O::IS_REHEARSAL {
        return Reply::json(&order::run(&call.db, of, &order, &desk).await?);
    }
    let status = StatusCode::from_u16(O::ENDPOINT.status).unwrap_or(StatusCode::OK);
    change!(call, status, |tx, now| {
        let desk = Desk { now, ..desk };
        let done = order.run(of, &desk, tx).await?;
        let revision = O::revision(&done);
        (done, revision)
    })
}

/// Returns the answer to the earlier request with the same key.
pub(crate) async fn earlier(
    keyed: Option<&Keyed>,
    tx: &mut Tx,
    now: Timestamp,
) -> Result<Option<Reply>> {
    match keyed {
        Some(keyed) => keyed.begin(tx, now).await,
        None => Ok(None),
    }
}

/// Keep the answer, and commit.
pub(crate) async fn finish(
    keyed: Option<&Keyed>,
    mut tx: Tx,
    status: StatusCode,
    answer: &impl serde::Serialize,
    revision: Option<i64>,
) -> Result {
    let json = serde_json::to_string(answer);
    let json = json.map_err(|error| Problem::new(ErrorCode::Internal, error))?;
    if let Some(keyed) = keyed {
        keyed.keep(&mut tx, status, &json).await?;
    }
    tx.commit().await?;
    let reply = Reply::text(status, json);
    Ok(match revision {
        Some(revision) => reply.revision(revision),
        None => reply,
    })
}

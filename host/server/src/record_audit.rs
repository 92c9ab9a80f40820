//! The route that verifies the record.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::call::{Call, Reply, Result};
use crate::problem::ApiProblem;
use campanile_control::reports::verify::{self, Verify};

/// How long a verification may take. A request may take a little longer.
const VERIFY_TIME: Duration = Duration::from_secs(25);

/// Verify the record, one request at a time.
///
/// It reads the record page by page. It computes on a thread for blocking work, so that no other request waits for it, and
/// it stops after [`VERIFY_TIME`], also when the client is gone.
pub(crate) async fn verify(call: Call) -> Result {
    let wanted: Verify = call.json()?;
    let now = call.now();
    let span = wanted.span(now)?;
    let turn = Arc::clone(&call.state.verify_turn).try_acquire_owned();
    let turn = turn.map_err(|_| {
        ApiProblem::unavailable(
            "this host verifies the record already; send the request again later",
        )
    })?;
    let (db, runtime) = (call.db.clone(), Handle::current());
    let verified = spawn_blocking(move || {
        let _turn = turn;
        runtime.block_on(async {
            let audit = verify::audit(&db, span, wanted.checkpoint.as_ref(), now);
            timeout(VERIFY_TIME, audit).await
        })
    });
    match verified.await {
        Ok(Ok(report)) => Reply::json(&report?),
        Ok(Err(_)) => {
            let message = format!(
                "the record is too large to be verified by a request: it took more than {} s",
                VERIFY_TIME.as_secs()
            );
            let hint = "run `campanile audit verify` with --database, beside the hosts, or verify a shorter span";
            Err(ApiProblem::unavailable(message).hint(hint))
        }
        Err(_) => Err(ApiProblem::unavailable("the verification was stopped")),
    }
}

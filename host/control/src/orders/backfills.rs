//! Orders concerning backfills.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backfill;
use crate::order::{Desk, Method, Order, OrderRoute, Scope};
use crate::orders::{Nothing, id};
use crate::problem::Problem;
use crate::records::backfill::{BackfillRecord, CancelledBackfill};
use campanile_model::access::Role;
use campanile_store::Tx;

/// Cancel a backfill: launches that have not started are skipped.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct CancelBackfill(Nothing);

impl Order for CancelBackfill {
    type Output = CancelledBackfill;

    const ROUTE: OrderRoute = OrderRoute {
        id: "cancel_backfill",
        method: Method::Post,
        path: "/api/v1/backfills/{id}/cancel",
        role: Role::Editor,
        scope: Scope::Backfill,
        cost: 5,
        summary: "Cancel a backfill: launches that have not started are skipped",
    };

    async fn run(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let id = id(of)?;
        let launches_skipped = backfill::cancel(tx, id, desk.by, desk.now).await?;
        Ok(CancelledBackfill {
            record: BackfillRecord::read(tx, id).await?,
            launches_skipped,
        })
    }
}

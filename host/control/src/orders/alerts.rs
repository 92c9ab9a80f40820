//! Orders concerning alerts and silences.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::alert_admin::{self, AlertDetail};
use crate::order::{Desk, Method, Order, OrderRoute, Scope};
use crate::orders::{Nothing, id};
use crate::problem::Problem;
use campanile_model::access::Role;
use campanile_store::Tx;
use campanile_store::alerts::Silence;

/// Resolve an alert whose rule no host has any more.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct ResolveAlert(Nothing);

impl Order for ResolveAlert {
    type Output = AlertDetail;

    const ROUTE: OrderRoute = OrderRoute {
        id: "resolve_alert",
        method: Method::Post,
        path: "/api/v1/alerts/{id}/resolve",
        role: Role::Operator,
        scope: Scope::Installation,
        cost: 5,
        summary: "Resolve an alert whose rule no host has any more",
    };

    async fn run(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(alert_admin::resolve(tx, id(of)?, desk.by, desk.now).await?)
    }
}

/// End a silence.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct EndSilence(Nothing);

impl Order for EndSilence {
    type Output = Silence;

    const ROUTE: OrderRoute = OrderRoute {
        id: "end_silence",
        method: Method::Post,
        path: "/api/v1/silences/{id}/end",
        role: Role::Operator,
        scope: Scope::Installation,
        cost: 5,
        summary: "End a silence",
    };

    async fn run(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(alert_admin::unsilence(tx, id(of)?, desk.by, desk.now).await?)
    }
}

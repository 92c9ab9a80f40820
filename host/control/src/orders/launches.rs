//! Orders concerning launches, named by their own id or one of their runs'.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::launch_admin;
use crate::bounds::{Span, YEAR_MS};
use crate::order::{Desk, Endpoint, Order, Scope};
use crate::orders::{Nothing, id};
use crate::problem::Problem;
use crate::records::ids;
use crate::records::launch::{CancelReport, TriggerReport};
use campanile_model::access::Role;
use campanile_model::ids::{RunId, ShortId};
use campanile_store::Tx;

/// How long the tasks of a run have to end by themselves.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// How long its tasks have to end by themselves, such as 30s [default: `cancel_grace` of its schedule]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SPAN"))]
    pub grace: Option<Span<0, YEAR_MS>>,
}

impl Order for Cancel {
    type Output = CancelReport;

    const ENDPOINT: Endpoint = Endpoint::post(
        "cancel_launch",
        "/api/v1/launches/{id}/cancel",
        (Role::Operator, Scope::Launch),
        "End a launch on whatever host runs it",
    );

    async fn run(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let id = id::<ShortId>(of)?;
        let launch = ids::launch(tx, &id, desk.namespace).await?;
        let run = id.number.map(|number| RunId::of(launch, number));
        let grace = self.grace.map(|grace| grace.0);
        let cancelled = launch_admin::cancel(tx, (launch, run), grace, desk.by, desk.now).await?;
        Ok(CancelReport::new(launch, cancelled))
    }
}

/// Launch a finished launch's slot again.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct RetryLaunch(Nothing);

impl Order for RetryLaunch {
    type Output = TriggerReport;

    const ENDPOINT: Endpoint = Endpoint::post(
        "retry_launch",
        "/api/v1/launches/{id}/retry",
        (Role::Operator, Scope::Launch),
        "Launch a finished launch's slot again",
    );

    async fn run(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let launch = ids::launch(tx, &id(of)?, desk.namespace).await?;
        let (retried, slot, schedule) = launch_admin::retry(tx, launch, desk.by, desk.now).await?;
        Ok(TriggerReport::new(schedule, slot, retried))
    }
}

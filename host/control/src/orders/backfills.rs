//! Orders concerning backfills.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::admin::backfill::{self, BackfillPreview, BackfillRequest, SlotSurvey};
use crate::bounds::{Span, YEAR_MS};
use crate::order::{Desk, Endpoint, Order, Scope};
use crate::orders::{Nothing, id};
use crate::problem::{ErrorCode, Problem};
use crate::records::backfill::{BackfillRecord, CancelledBackfill, SLOTS_UNCONFIRMED_MAX};
use campanile_model::access::Role;
use campanile_model::clock::Timestamp;
use campanile_model::ids::BackfillId;
use campanile_model::json_text::JsonObject;
use campanile_model::time_text::GivenTime;
use campanile_store::Tx;

/// Cancel a backfill: launches that have not started are skipped.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct CancelBackfill(Nothing);

impl Order for CancelBackfill {
    type Output = CancelledBackfill;

    const ENDPOINT: Endpoint = Endpoint::post(
        "cancel_backfill",
        "/api/v1/backfills/{id}/cancel",
        (Role::Editor, Scope::Backfill),
        "Cancel a backfill: launches that have not started are skipped",
    );

    async fn run(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let id = id(of)?;
        let launches_skipped = backfill::cancel(tx, id, desk.by, desk.now).await?;
        Ok(CancelledBackfill {
            record: BackfillRecord::read(tx, id).await?,
            launches_skipped,
        })
    }
}

/// A backfill.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Backfill")]
pub struct NewBackfill {
    pub schedule: String,
    /// The first time that may be a slot.
    pub from: GivenTime,
    /// The last time that may be a slot.
    pub to: GivenTime,
    /// An id of your choice: the same request again launches nothing twice.
    pub id: Option<BackfillId>,
    /// The least time between two launches, such as `10s`.
    pub spread: Option<Spread>,
    /// Also launch slots that succeeded, are unfinished, or were skipped by a person.
    #[serde(default)]
    pub force: bool,
    #[schemars(with = "Option<Map<String, Value>>")]
    pub context: Option<JsonObject>,
    /// Confirm a backfill of more than 100,000 slots.
    #[serde(default)]
    pub yes: bool,
}

/// The least time between two launches of a backfill, stored in milliseconds.
pub type Spread = Span<1, YEAR_MS>;

impl NewBackfill {
    /// Chooses an id, unless given.
    pub fn choose_id(&mut self, now: Timestamp) {
        self.id.get_or_insert_with(|| BackfillId::new(now));
    }

    fn request<'a>(&'a self, desk: &Desk<'a>) -> BackfillRequest<'a> {
        BackfillRequest {
            id: self.id.unwrap_or_else(|| BackfillId::new(desk.now)),
            from: self.from.0,
            to: self.to.0,
            spread: self.spread.map_or(Duration::ZERO, |spread| spread.0),
            forced: self.force,
            context: self.context.as_ref(),
            by: desk.by,
        }
    }

    /// Counts the slots. That takes long, so it mustn't happen in a write transaction.
    ///
    /// # Errors
    ///
    /// Fails for schedules outside the caller's namespace, and spans without slots.
    pub async fn preview(&self, desk: &Desk<'_>, tx: &mut Tx) -> Result<BackfillPreview, Problem> {
        desk.refuse_other(&self.schedule)?;
        let request = self.request(desk);
        Ok(backfill::preview(tx, &self.schedule, &request, desk.now).await?)
    }

    /// Refuses many slots without a confirmation. `confirm` is how to give one.
    ///
    /// # Errors
    ///
    /// Fails for more than [`SLOTS_UNCONFIRMED_MAX`] slots unless confirmed.
    pub fn check_confirmed(&self, survey: &SlotSurvey, confirm: &str) -> Result<(), Problem> {
        if survey.slots <= SLOTS_UNCONFIRMED_MAX || self.yes {
            return Ok(());
        }
        let message = format!(
            "`{}` has {} slots from {} to {}, more than {SLOTS_UNCONFIRMED_MAX}",
            self.schedule, survey.slots, survey.first, survey.last
        );
        let hint = format!("choose a shorter span, or confirm with `{confirm}`");
        Err(Problem::new(ErrorCode::Refused, message).hint(hint))
    }

    /// Returns an earlier backfill having the same id.
    ///
    /// # Errors
    ///
    /// Fails if that backfill is another one.
    pub async fn earlier(
        &self,
        desk: &Desk<'_>,
        tx: &mut Tx,
    ) -> Result<Option<BackfillRecord>, Problem> {
        let request = self.request(desk);
        match backfill::find_earlier(tx, &self.schedule, &request).await? {
            Some(earlier) => Ok(Some(BackfillRecord::read(tx, earlier.id).await?)),
            None => Ok(None),
        }
    }

    /// Begins the backfill counted by `preview`, or returns an earlier one having the same id.
    ///
    /// # Errors
    ///
    /// Fails if another backfill has this id, or the schedule changed since the preview.
    pub async fn begin(
        &self,
        preview: &BackfillPreview,
        desk: &Desk<'_>,
        tx: &mut Tx,
    ) -> Result<BackfillRecord, Problem> {
        if let Some(earlier) = self.earlier(desk, tx).await? {
            return Ok(earlier);
        }
        let begun = backfill::begin(tx, preview, &self.request(desk), desk.now).await?;
        Ok(BackfillRecord::read(tx, begun.id).await?)
    }
}

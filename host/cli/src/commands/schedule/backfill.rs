//! `campanile schedule backfill`: launch the slots of a past time span.

use clap::Args;

use super::{By, read_context};
use crate::Common;
use crate::client::Client;
use crate::commands::backfill::{follow, next_commands};
use crate::commands::serve;
use crate::output::{self, ErrorCode, Result};
use campanile_control::admin::backfill::SlotSurvey;
use campanile_control::order::{self, Desk};
use campanile_control::orders::backfills::{NewBackfill, Spread};
use campanile_control::questions::schedules::GetBackfill;
use campanile_control::records::backfill::{BackfillRecord, SLOTS_UNCONFIRMED_MAX, SurveyReport};
use campanile_model::clock::Clock;
use campanile_model::ids::BackfillId;
use campanile_model::text;
use campanile_model::time_text::GivenTime;

#[derive(Args)]
pub(crate) struct Request {
    /// The schedule's name
    name: String,
    /// The first time that may be a slot, such as 2026-11-01 or 2026-11-01T08:00:00Z
    #[arg(long, value_name = "TIME")]
    from: GivenTime,
    /// The last time that may be a slot
    #[arg(long, value_name = "TIME")]
    to: GivenTime,
    /// An id of your choice: the same request again launches nothing twice [default: a new id]
    #[arg(long, value_name = "UUID")]
    id: Option<BackfillId>,
    /// The least time between two launches, such as 10s
    #[arg(long, value_name = "DURATION")]
    spread: Option<Spread>,
    /// Also launch the slots that succeeded, have an unfinished launch, or were skipped by a person, and those of days
    /// with launches that retention removed
    #[arg(long)]
    force: bool,
    /// Context merged over the schedule's: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    context: Option<String>,
    /// Only count the slots
    #[arg(long)]
    dry_run: bool,
    /// Confirm a backfill of more than 100,000 slots
    #[arg(long)]
    yes: bool,
    /// Do not wait for the end
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    by: By,
}

/// The outcome of a request.
enum Done {
    /// Only counted.
    Counted(SlotSurvey),
    /// The same request begun before.
    Earlier(BackfillRecord),
    Begun(SlotSurvey, BackfillRecord),
}

impl Request {
    pub async fn run(self, common: &Common) -> Result {
        let wanted = NewBackfill {
            schedule: self.name.clone(),
            from: self.from,
            to: self.to,
            id: self.id,
            spread: self.spread,
            force: self.force,
            context: read_context(self.context.as_deref())?,
            yes: self.yes,
        };
        let done = match common.client()? {
            Some(client) => self.ask_host(client, wanted).await?,
            None => self.begin(common, wanted).await?,
        };
        let id = match done {
            Done::Counted(survey) => return self.print_survey(common, survey),
            Done::Earlier(record) => {
                let (id, status) = (record.row.id, record.row.status);
                output::print_message!("backfill {id} was requested before, and is {status}");
                id
            }
            Done::Begun(survey, record) => {
                let id = record.row.id;
                if !common.json {
                    output::print_line!("backfill {id}: {}", summary(&survey))?;
                }
                id
            }
        };
        self.follow(common, id).await
    }

    /// Begins the backfill in the database.
    async fn begin(&self, common: &Common, mut wanted: NewBackfill) -> Result<Done> {
        let settings = serve::settings(&common.config()?);
        let (db, clock) = common.open_with_clock().await?;
        let desk = Desk::of(&self.by.by, clock.now(), &settings);
        wanted.choose_id(desk.now);
        let mut tx = db.read_long().await?;
        if !self.dry_run
            && let Some(earlier) = wanted.earlier(&desk, &mut tx).await?
        {
            return Ok(Done::Earlier(earlier));
        }
        let preview = wanted.preview(&desk, &mut tx).await?;
        drop(tx);
        if self.dry_run {
            return Ok(Done::Counted(preview.survey));
        }
        wanted.check_confirmed(&preview.survey, "--yes")?;
        let begun = order::transact(&db, async |tx| {
            let now = clock.now();
            wanted.begin(&preview, &Desk { now, ..desk }, tx).await
        });
        Ok(Done::Begun(preview.survey.clone(), begun.await?))
    }

    /// Lets a host begin the backfill.
    async fn ask_host(&self, client: &Client, mut wanted: NewBackfill) -> Result<Done> {
        if let (Some(id), false) = (self.id, self.dry_run) {
            match client.ask(&id.to_string(), &GetBackfill {}).await {
                Ok(_) => return Ok(Done::Earlier(begun_by(client, &wanted).await?)),
                Err(failure) if failure.code == ErrorCode::NotFound => {}
                Err(failure) => return Err(failure),
            }
        }
        let preview = client.post(&["backfills", "preview"], &wanted)?;
        let survey = preview.send::<SurveyReport>().await?.survey;
        if self.dry_run {
            return Ok(Done::Counted(survey));
        }
        wanted.check_confirmed(&survey, "--yes")?;
        // More slots may have come.
        wanted.yes = true;
        Ok(Done::Begun(survey, begun_by(client, &wanted).await?))
    }

    fn print_survey(self, common: &Common, survey: SlotSurvey) -> Result {
        let (text, slots) = (summary(&survey), survey.slots);
        let schedule = self.name;
        common.print_report(&SurveyReport { schedule, survey }, &text)?;
        if slots > SLOTS_UNCONFIRMED_MAX && !self.yes && !common.json {
            output::print_message!("more than {SLOTS_UNCONFIRMED_MAX} need `--yes`");
        }
        Ok(())
    }

    async fn follow(&self, common: &Common, id: BackfillId) -> Result {
        if self.to.0 > Clock::system().now() {
            output::print_message(
                "the backfill has no slots after now: the schedule launches those",
            );
        }
        if !self.detach {
            return follow(common, id).await;
        }
        if common.json {
            return common.print_answer(&id.to_string(), &GetBackfill {}).await;
        }
        output::print_message(&next_commands(id));
        Ok(())
    }
}

async fn begun_by(client: &Client, wanted: &NewBackfill) -> Result<BackfillRecord> {
    client.post(&["backfills"], wanted)?.send().await
}

/// Returns a line such as `3 slots from … to …; 1 is left alone: it succeeded, is unfinished, or was skipped by a person`.
fn summary(survey: &SlotSurvey) -> String {
    let slots = text::counted(survey.slots, "slot");
    let mut text = format!("{slots} from {} to {}", survey.first, survey.last);
    let (is, it) = match survey.slots_skipped {
        0 => return text,
        1 => ("is", "it succeeded, is unfinished, or was"),
        _ => ("are", "they succeeded, are unfinished, or were"),
    };
    let skipped = survey.slots_skipped;
    text += &format!("; {skipped} {is} left alone: {it} skipped by a person");
    if survey.slots_removed > 0 {
        let removed = survey.slots_removed;
        text += &format!(
            ", or retention has removed launches of the same day ({removed}; `--force` launches them)"
        );
    }
    text
}

//! `campanile schedule backfill`: launch the slots of a past time span.

use std::time::Duration;

use clap::Args;

use super::{By, read_context};
use crate::Common;
use crate::client::Client;
use crate::commands::backfill::{follow, next_commands, record};
use crate::output::{self, ErrorCode, Result, refused};
use crate::times::time;
use campanile_control::backfill::{self, BackfillRequest, SlotSurvey};
use campanile_control::records::backfill::{BackfillRecord, SLOTS_UNCONFIRMED_MAX, SurveyReport};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::BackfillId;
use campanile_model::json_text::JsonObject;
use campanile_model::text;
use campanile_server::bodies;
use campanile_store::backfills::Backfill;

/// The least and the greatest `--spread`. It is stored in milliseconds.
const SPREAD: (Duration, Duration) = (Duration::from_millis(1), Duration::from_hours(24 * 366));

#[derive(Args)]
pub(crate) struct Request {
    /// The schedule's name
    name: String,
    /// The first time that may be a slot, such as 2026-11-01 or 2026-11-01T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Timestamp,
    /// The last time that may be a slot
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Timestamp,
    /// An id of your choice: the same request again launches nothing twice [default: a new id]
    #[arg(long, value_name = "UUID")]
    id: Option<BackfillId>,
    /// The least time between two launches, such as 10s
    #[arg(long, value_name = "DURATION", value_parser = spread)]
    spread: Option<Duration>,
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

fn spread(text: &str) -> Result<Duration, String> {
    text::duration_within(text, SPREAD.0, SPREAD.1)
}

impl Request {
    pub async fn run(self, common: &Common) -> Result {
        let own = read_context(self.context.as_deref())?;
        if let Some(client) = common.client()? {
            return self.run_by_api(common, client, own).await;
        }
        let (mut tx, now) = common.read_with_time().await?;
        let asked = BackfillRequest {
            id: self.id.unwrap_or_else(|| BackfillId::new(now)),
            from: self.from,
            to: self.to,
            spread: self.spread.unwrap_or_default(),
            forced: self.force,
            context: own.as_ref(),
            by: &self.by.by,
        };
        let name = self.name.as_str();
        if !self.dry_run
            && let Some(before) = backfill::find_earlier(&mut tx, name, &asked).await?
        {
            return self.follow_earlier(common, &before, now).await;
        }
        let preview = backfill::preview(&mut tx, name, &asked, now).await?;
        drop(tx);
        let report = SurveyReport {
            schedule: name.to_owned(),
            survey: preview.survey.clone(),
        };
        if self.dry_run {
            return self.print_survey(common, &report);
        }
        self.check_confirmed(&report)?;
        let backfill = common
            .change(
                async |tx, now| match backfill::find_earlier(tx, name, &asked).await? {
                    Some(before) => Ok(before),
                    None => backfill::begin(tx, &preview, &asked, now).await,
                },
            )
            .await?;
        self.follow_new(common, backfill.id, &report, now).await
    }

    async fn run_by_api(
        self,
        common: &Common,
        client: &Client,
        context: Option<JsonObject>,
    ) -> Result {
        let now = Clock::system().now();
        let body = bodies::Backfill {
            schedule: self.name.clone(),
            from: self.from,
            to: self.to,
            id: self.id,
            spread: self.spread.map(text::duration_text),
            force: self.force,
            context,
            // It is asked for below.
            yes: true,
        };
        let begin = async || {
            let call = client.post(&["backfills"], &body)?;
            call.send::<BackfillRecord>().await
        };
        if let (Some(id), false) = (self.id, self.dry_run) {
            match client.get(&["backfills", &id.to_string()]).send().await {
                Ok(BackfillRecord { .. }) => {
                    return self.follow_earlier(common, &begin().await?.row, now).await;
                }
                Err(failure) if failure.code == ErrorCode::NotFound => {}
                Err(failure) => return Err(failure),
            }
        }
        let preview = client.post(&["backfills", "preview"], &body)?;
        let report: SurveyReport = preview.send().await?;
        if self.dry_run {
            return self.print_survey(common, &report);
        }
        self.check_confirmed(&report)?;
        let id = begin().await?.row.id;
        self.follow_new(common, id, &report, now).await
    }

    fn needs_confirmation(&self, report: &SurveyReport) -> bool {
        report.survey.slots > SLOTS_UNCONFIRMED_MAX && !self.yes
    }

    fn print_survey(&self, common: &Common, report: &SurveyReport) -> Result {
        common.print_report(report, &summary(&report.survey))?;
        if self.needs_confirmation(report) && !common.json {
            output::print_message!("more than {SLOTS_UNCONFIRMED_MAX} need `--yes`");
        }
        Ok(())
    }

    /// Refuse a backfill of many slots that is not confirmed.
    fn check_confirmed(&self, report: &SurveyReport) -> Result {
        if !self.needs_confirmation(report) {
            return Ok(());
        }
        let (name, survey) = (&report.schedule, &report.survey);
        Err(refused!(
            "`{name}` has {} slots from {} to {}, more than {SLOTS_UNCONFIRMED_MAX}",
            survey.slots,
            survey.first,
            survey.last
        )
        .code(ErrorCode::Refused)
        .hint("choose a shorter span, or confirm with `--yes`"))
    }

    async fn follow_earlier(&self, common: &Common, before: &Backfill, now: Timestamp) -> Result {
        let (id, status) = (before.id, before.status);
        output::print_message!("backfill {id} was requested before, and is {status}");
        self.follow(common, id, now).await
    }

    async fn follow_new(
        &self,
        common: &Common,
        id: BackfillId,
        report: &SurveyReport,
        now: Timestamp,
    ) -> Result {
        if !common.json {
            output::print_line!("backfill {id}: {}", summary(&report.survey))?;
        }
        self.follow(common, id, now).await
    }

    async fn follow(&self, common: &Common, id: BackfillId, now: Timestamp) -> Result {
        if self.to > now {
            output::print_message(
                "the backfill has no slots after now: the schedule launches those",
            );
        }
        if !self.detach {
            return follow(common, id).await;
        }
        if common.json {
            return common.print(&record(common, id).await?);
        }
        output::print_message(&next_commands(id));
        Ok(())
    }
}

/// Return a line such as `3 slots from … to …; 1 is left alone: it succeeded, is unfinished, or was skipped by a person`.
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

//! `campanile schedule backfill`: launch the slots of a past time span.

use std::time::Duration;

use clap::Args;

use super::{By, read_context};
use crate::Common;
use crate::commands::backfill::{follow, next_commands};
use crate::output::{self, ErrorCode, Result, refused};
use crate::times::time;
use campanile_engine::backfill::{self, BackfillPreview, BackfillRequest};
use campanile_engine::records::backfill::{BackfillRecord, SLOTS_UNCONFIRMED_MAX, SurveyReport};
use campanile_model::clock::Timestamp;
use campanile_model::ids::BackfillId;
use campanile_model::text;

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
            let (id, status) = (before.id, before.status);
            output::print_message!("backfill {id} was requested before, and is {status}");
            return self.follow(common, id, now).await;
        }
        let survey = backfill::preview(&mut tx, name, &asked, now).await?;
        drop(tx);
        let needs_yes = survey.slots > SLOTS_UNCONFIRMED_MAX && !self.yes;
        if self.dry_run {
            let (schedule, survey) = (name, &survey);
            let report = SurveyReport { schedule, survey };
            common.print_report(&report, &summary(survey))?;
            if needs_yes && !common.json {
                output::print_message!("more than {SLOTS_UNCONFIRMED_MAX} need `--yes`");
            }
            return Ok(());
        }
        if needs_yes {
            return Err(refused!(
                "`{name}` has {} slots from {} to {}, more than {SLOTS_UNCONFIRMED_MAX}",
                survey.slots,
                survey.first,
                survey.last
            )
            .code(ErrorCode::Refused)
            .hint("choose a shorter span, or confirm with `--yes`"));
        }
        let backfill = common
            .change(
                async |tx, now| match backfill::find_earlier(tx, name, &asked).await? {
                    Some(before) => Ok(before),
                    None => backfill::begin(tx, &survey, &asked, now).await,
                },
            )
            .await?;
        if !common.json {
            output::print_line!("backfill {}: {}", backfill.id, summary(&survey))?;
        }
        self.follow(common, backfill.id, now).await
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
            return common.print(&BackfillRecord::read(&mut common.read().await?, id).await?);
        }
        output::print_message(&next_commands(id));
        Ok(())
    }
}

/// Return a line such as `3 slots from … to …; 1 is left alone: it succeeded, is unfinished, or was skipped by a person`.
fn summary(survey: &BackfillPreview) -> String {
    let slots = match survey.slots {
        1 => "1 slot".to_owned(),
        n => format!("{n} slots"),
    };
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

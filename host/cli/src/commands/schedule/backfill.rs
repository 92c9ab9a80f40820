//! `campanile schedule backfill`: launch the slots of a past time span.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{By, read_context};
use crate::Common;
use crate::commands::backfill::{follow, print_started};
use crate::output::{self, Failure};
use campanile_engine::backfill::{self, BackfillPreview, BackfillRequest};
use campanile_engine::schedule_admin;
use campanile_model::clock::Timestamp;
use campanile_model::ids::BackfillId;
use campanile_model::text;

/// More slots than this need `--yes`: they may be a mistake.
const SLOTS_UNCONFIRMED_MAX: u64 = 100_000;

/// The least and the greatest `--spread`. It is stored in milliseconds.
const SPREAD: (Duration, Duration) = (Duration::from_millis(1), Duration::from_hours(24 * 366));

#[derive(Args)]
pub(crate) struct Request {
    /// The schedule's name
    name: String,
    /// The first time that may be a slot, such as 2026-11-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    from: Timestamp,
    /// The last time that may be a slot
    #[arg(long, value_name = "TIME")]
    to: Timestamp,
    /// An id of your choice: the same request again launches nothing twice [default: a new id]
    #[arg(long, value_name = "UUID")]
    id: Option<BackfillId>,
    /// The least time between two launches, such as 10s
    #[arg(long, value_name = "DURATION", value_parser = spread)]
    spread: Option<Duration>,
    /// Also launch the slots that succeeded, have an unfinished launch, or were skipped by a person
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

/// The result of `schedule backfill --dry-run`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct SurveyReport<'a> {
    schedule: &'a str,
    slots: u64,
    /// Slots that are not launched again.
    slots_skipped: u64,
    first: Timestamp,
    last: Timestamp,
}

impl Request {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let own = read_context(self.context.as_deref())?;
        let (db, clock) = common.open_with_clock().await?;
        let now = clock.now();
        let asked = self.asked(own.as_ref(), now);
        let name = self.name.as_str();
        let mut tx = db.read().await?;
        let before = match self.dry_run {
            true => None,
            false => backfill::find_earlier(&mut tx, name, &asked).await?,
        };
        let backfill = match before {
            Some(before) => {
                drop(tx);
                output::print_message(&format!(
                    "backfill {} was requested before, and is {}",
                    before.id, before.status
                ));
                before
            }
            None => {
                let survey = backfill::preview(&mut tx, name, &asked, now).await?;
                drop(tx);
                if self.dry_run {
                    self.print_survey(&survey, common.json)?;
                    return Ok(ExitCode::SUCCESS);
                }
                self.refuse_too_many(&survey)?;
                let started =
                    schedule_admin::change(&db, async |tx| {
                        match backfill::find_earlier(tx, name, &asked).await? {
                            Some(before) => Ok(before),
                            None => backfill::begin(tx, &survey, &asked, now).await,
                        }
                    })
                    .await?;
                if !common.json {
                    let id = started.id;
                    output::print_line(&format!("backfill {id}: {}", summary(&survey)))?;
                }
                started
            }
        };
        if self.to > now {
            output::print_message(
                "the backfill has no slots after now: the schedule launches those",
            );
        }
        if self.detach {
            print_started(&db, backfill.id, common.json).await?;
            return Ok(ExitCode::SUCCESS);
        }
        follow(&db, &clock, backfill.id, common.json).await
    }

    fn asked<'a>(
        &'a self,
        context: Option<&'a Map<String, Value>>,
        now: Timestamp,
    ) -> BackfillRequest<'a> {
        BackfillRequest {
            id: self.id.unwrap_or_else(|| BackfillId::new(now)),
            from: self.from,
            to: self.to,
            spread: self.spread.unwrap_or_default(),
            forced: self.force,
            context,
            by: &self.by.by,
        }
    }

    fn refuse_too_many(&self, survey: &BackfillPreview) -> Result<(), Failure> {
        if survey.slots <= SLOTS_UNCONFIRMED_MAX || self.yes {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "`{}` has {} slots from {} to {}, more than {SLOTS_UNCONFIRMED_MAX}",
            self.name, survey.slots, survey.first, survey.last
        ))
        .hint("choose a shorter span, or confirm with `--yes`"))
    }

    fn print_survey(&self, survey: &BackfillPreview, as_json: bool) -> Result<(), Failure> {
        let report = SurveyReport {
            schedule: &self.name,
            slots: survey.slots,
            slots_skipped: survey.slots_skipped,
            first: survey.first,
            last: survey.last,
        };
        output::print_report(&report, &summary(survey), as_json)?;
        if !as_json && survey.slots > SLOTS_UNCONFIRMED_MAX && !self.yes {
            output::print_message(&format!("more than {SLOTS_UNCONFIRMED_MAX} need `--yes`"));
        }
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
    match survey.slots_skipped {
        0 => {}
        1 => text += "; 1 is left alone: it succeeded, is unfinished, or was skipped by a person",
        n => {
            text += &format!(
                "; {n} are left alone: they succeeded, are unfinished, or were skipped by a person"
            )
        }
    }
    text
}

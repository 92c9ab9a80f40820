//! `campanile schedule backfill`: launch the slots of a time that is past.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use super::{By, read_context};
use crate::Common;
use crate::commands::backfill::{begun, follow};
use crate::output::{self, Failure};
use campanile_engine::backfill::{self, BackfillPreview, BackfillRequest};
use campanile_engine::schedule_admin;
use campanile_model::clock::Timestamp;
use campanile_model::ids::BackfillId;
use campanile_model::text;

/// So many slots nobody fills back by mistake.
const SLOTS_UNASKED: u64 = 100_000;

/// Bounds of `--spread`: it is kept in milliseconds.
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
    /// Its id, of your choice: asking for the same again launches nothing twice [default: a new one]
    #[arg(long, value_name = "UUID")]
    id: Option<BackfillId>,
    /// From one launch to the next at least, such as 10s
    #[arg(long, value_name = "DURATION", value_parser = spread)]
    spread: Option<Duration>,
    /// Launch also the slots that succeeded, are not over, or were skipped by a person
    #[arg(long)]
    force: bool,
    /// Context laid over the schedule's: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    context: Option<String>,
    /// Only say what it comes to
    #[arg(long)]
    dry_run: bool,
    /// Go on although there are more than 100,000 slots
    #[arg(long)]
    yes: bool,
    /// Do not wait for its end
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    by: By,
}

fn spread(text: &str) -> Result<Duration, String> {
    text::duration_within(text, SPREAD.0, SPREAD.1)
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
                output::talk(&format!(
                    "backfill {} was asked for before, and is {}",
                    before.id, before.status
                ));
                before
            }
            None => {
                let survey = backfill::preview(&mut tx, name, &asked, now).await?;
                drop(tx);
                if self.dry_run {
                    self.tell(&survey, common.json)?;
                    return Ok(ExitCode::SUCCESS);
                }
                self.refuse_too_many(&survey)?;
                let begun = schedule_admin::change(&db, async |tx| {
                    match backfill::find_earlier(tx, name, &asked).await? {
                        Some(before) => Ok(before),
                        None => backfill::begin(tx, &survey, &asked, now).await,
                    }
                })
                .await?;
                if !common.json {
                    let id = begun.id;
                    output::line(&format!("backfill {id}: {}", summary(&survey)))?;
                }
                begun
            }
        };
        if self.to > now {
            output::talk("slots after now are the schedule's own, and no part of the backfill");
        }
        if self.detach {
            begun(&db, backfill.id, common.json).await?;
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
        if survey.slots <= SLOTS_UNASKED || self.yes {
            return Ok(());
        }
        let told = format!(
            "`{}` has {} slots from {} to {}, more than {SLOTS_UNASKED}",
            self.name, survey.slots, survey.first, survey.last
        );
        Err(Failure::refused(told)
            .hint("ask for a shorter span, or add `--yes` if all of them are meant"))
    }

    fn tell(&self, survey: &BackfillPreview, as_json: bool) -> Result<(), Failure> {
        if as_json {
            return output::json_out(&json!({
                "schedule": self.name,
                "slots": survey.slots,
                "slots_skipped": survey.slots_skipped,
                "first": survey.first,
                "last": survey.last,
            }));
        }
        output::line(&summary(survey))?;
        if survey.slots > SLOTS_UNASKED && !self.yes {
            output::talk(&format!("more than {SLOTS_UNASKED} need `--yes`"));
        }
        Ok(())
    }
}

/// `3 slots from … to …, 1 of which is left alone: …`.
fn summary(survey: &BackfillPreview) -> String {
    let slots = match survey.slots {
        1 => "1 slot".to_owned(),
        n => format!("{n} slots"),
    };
    let mut text = format!("{slots} from {} to {}", survey.first, survey.last);
    match survey.slots_skipped {
        0 => {}
        1 => {
            text +=
                ", 1 of which is left alone: it succeeded, is not over, or was skipped by a person"
        }
        n => {
            text += &format!(
                ", {n} of which are left alone: they succeeded, are not over, or were skipped by a person"
            )
        }
    }
    text
}

//! The table of all actions.

use schemars::JsonSchema;
use serde_json::json;

use super::super::Section;
use super::super::bodies::{self, count_query, launches_change, many, many_launches, with};
use super::super::form::Form;
use super::action::{Action, Asks, Count, action, activating, asked, counted_first};
use crate::call::Result;
use campanile_control::orders::alerts::NewSilence;
use campanile_control::orders::backfills::NewBackfill;
use campanile_control::orders::bulk::{BulkPause, BulkQuery, BulkResume};
use campanile_control::orders::bulk_launches::CountLaunches;
use campanile_control::orders::launches::Cancel;
use campanile_control::orders::packages::{ActivationRequest, DecisionRequest};
use campanile_control::orders::schedules::{Pause, Resume, Skip};
use campanile_control::orders::tokens::NewToken;
use campanile_model::json_text::JsonText;

/// The name of the action that tries a channel. Its page waits a moment for the answer.
pub(in super::super) const TEST_CHANNEL: &str = "test_channel";

/// The name of the action that replaces the definition of a schedule.
pub(super) const EDIT: &str = "edit";
/// The name of the action that adds a schedule.
pub(in super::super) const ADD: &str = "add";
/// The name of the action that launches a schedule with a context of its own.
pub(in super::super) const RUN_WITH: &str = "run_with";
/// The name of the action that adds the package of the program.
pub(in super::super) const ADD_HELLO: &str = "add_hello";

/// Returns the fields of a form that double as fields of `O`.
fn body<O: JsonSchema + 'static>(form: &Form) -> Result<JsonText> {
    with::<O>(form, &json!({}))
}

/// Returns a backfill. Only a confirmed form begins one of very many slots.
fn confirmed_backfill(form: &Form) -> Result<JsonText> {
    with::<NewBackfill>(form, &json!({"yes": true}))
}

pub(super) static ACTIONS: &[Action] = &[
    action(
        "pause",
        Section::Schedules,
        "pause_schedule",
        "The schedule is paused.",
        body::<Pause>,
    ),
    action(
        "resume",
        Section::Schedules,
        "resume_schedule",
        "The schedule is resumed.",
        body::<Resume>,
    ),
    action(
        "trigger",
        Section::Schedules,
        "trigger_schedule",
        "The launch was requested.",
        |_| Ok(json!({}).into()),
    ),
    action(
        RUN_WITH,
        Section::Schedules,
        "trigger_schedule",
        "The launch was requested.",
        bodies::trigger,
    ),
    action(
        ADD,
        Section::Schedules,
        "add_schedule",
        "The schedule is added.",
        bodies::definition,
    ),
    action(
        "skip",
        Section::Schedules,
        "skip_slot",
        "The slot will be skipped.",
        |form| with::<Skip>(form, &json!({"scheduled_time": form.get("slot")})),
    ),
    action(
        "restore",
        Section::Schedules,
        "skip_slot",
        "The slot is restored.",
        |form| {
            with::<Skip>(
                form,
                &json!({"scheduled_time": form.get("slot"), "undo": true}),
            )
        },
    ),
    action(
        EDIT,
        Section::Schedules,
        "replace_schedule",
        "The schedule has this definition now.",
        bodies::definition,
    ),
    counted_first(
        action(
            "backfill",
            Section::Schedules,
            "begin_backfill",
            "The backfill has begun.",
            confirmed_backfill,
        ),
        Count {
            route: "preview_backfill",
            asks: Asks::Body(confirmed_backfill),
            says: bodies::backfill_question,
        },
    ),
    action(
        "cancel_backfill",
        Section::Schedules,
        "cancel_backfill",
        "The backfill is cancelled.",
        |_| Ok(json!({}).into()),
    ),
    counted_first(
        action(
            "pause_many",
            Section::Schedules,
            "pause_schedules",
            "The schedules are paused.",
            body::<BulkPause>,
        ),
        Count {
            route: "count_schedules",
            asks: Asks::Query(|form| count_query::<BulkQuery>(form, "pause")),
            says: |answer| {
                many(
                    answer,
                    "Pause",
                    "No slot of them is decided until they are resumed.",
                )
            },
        },
    ),
    counted_first(
        action(
            "resume_many",
            Section::Schedules,
            "resume_schedules",
            "The schedules are resumed.",
            body::<BulkResume>,
        ),
        Count {
            route: "count_schedules",
            asks: Asks::Query(|form| count_query::<BulkQuery>(form, "resume")),
            says: |answer| many(answer, "Resume", "Their slots are decided from now on."),
        },
    ),
    action(
        "cancel",
        Section::Launches,
        "cancel_launch",
        "The launch was asked to end.",
        body::<Cancel>,
    ),
    action(
        "retry",
        Section::Launches,
        "retry_launch",
        "The launch was requested again.",
        |_| Ok(json!({}).into()),
    ),
    counted_first(
        action(
            "retry_many",
            Section::Launches,
            "change_launches",
            "The launches were requested again.",
            |form| launches_change(form, "retry"),
        ),
        Count {
            route: "count_launches",
            asks: Asks::Query(|form| count_query::<CountLaunches>(form, "retry")),
            says: |answer| {
                many_launches(
                    answer,
                    "Run again",
                    "Each slot is launched once more, with its context and today's definition of its schedule.",
                )
            },
        },
    ),
    counted_first(
        action(
            "cancel_many",
            Section::Launches,
            "change_launches",
            "The launches were asked to end.",
            |form| launches_change(form, "cancel"),
        ),
        Count {
            route: "count_launches",
            asks: Asks::Query(|form| count_query::<CountLaunches>(form, "cancel")),
            says: |answer| {
                many_launches(
                    answer,
                    "Cancel",
                    "Those that wait end at once; those that run have the `cancel_grace` of their schedules to end by themselves.",
                )
            },
        },
    ),
    activating(action(
        "approve",
        Section::Packages,
        "approve_version",
        "The version is approved.",
        body::<ActivationRequest>,
    )),
    action(
        "upload",
        Section::Packages,
        "upload_package",
        "The file is in the plugins folder. The host loads it within seconds.",
        |_| Ok(JsonText::null()),
    ),
    action(
        ADD_HELLO,
        Section::Now,
        "upload_package",
        "The package `hello` is in the plugins folder. The host loads it within seconds, and it launches every ten seconds.",
        |_| Ok(JsonText::null()),
    ),
    action(
        "reject",
        Section::Packages,
        "reject_version",
        "The version is rejected.",
        body::<DecisionRequest>,
    ),
    activating(action(
        "roll_back",
        Section::Packages,
        "roll_back_package",
        "The former version is active.",
        body::<ActivationRequest>,
    )),
    asked(
        action(
            "drain",
            Section::Hosts,
            "drain_host",
            "The host claims nothing more.",
            |_| Ok(json!({}).into()),
        ),
        |_| Some("The host claims no launch of any schedule. Launches wait for the other hosts."),
    ),
    action(
        "undrain",
        Section::Hosts,
        "drain_host",
        "The host claims launches again.",
        |_| Ok(json!({"undo": true}).into()),
    ),
    action(
        "resolve",
        Section::Alerts,
        "resolve_alert",
        "The alert is resolved.",
        |_| Ok(json!({}).into()),
    ),
    asked(
        action(
            "silence",
            Section::Alerts,
            "add_silence",
            "The alerts are silenced.",
            body::<NewSilence>,
        ),
        |form| {
            let is_wide = |name| form.given(name).is_none_or(|pattern| pattern.contains('*'));
            (is_wide("rule") && is_wide("subjects"))
                .then_some("The silence can match alerts of many rules and subjects.")
        },
    ),
    action(
        "unsilence",
        Section::Alerts,
        "end_silence",
        "The silence has ended.",
        |_| Ok(json!({}).into()),
    ),
    action(
        TEST_CHANNEL,
        Section::Alerts,
        "test_channel",
        "A message to the channel was recorded. Its answer is below.",
        |_| Ok(json!({}).into()),
    ),
    Action {
        shows_answer: true,
        ..action(
            "create_token",
            Section::Tokens,
            "create_token",
            "The token exists.",
            body::<NewToken>,
        )
    },
    asked(
        action(
            "revoke_token",
            Section::Tokens,
            "revoke_token",
            "The token is revoked. Each host refuses it within 5 seconds.",
            |_| Ok(json!({}).into()),
        ),
        |_| {
            Some(
                "The token is refused from now on, and cannot be given back. Who uses it needs another one.",
            )
        },
    ),
    action(
        "retry_message",
        Section::Outbox,
        "retry_message",
        "The message is delivered again.",
        |_| Ok(json!({}).into()),
    ),
    asked(
        action(
            "discard_message",
            Section::Outbox,
            "discard_message",
            "The message is discarded.",
            |_| Ok(json!({}).into()),
        ),
        |_| Some("The message is never delivered."),
    ),
];

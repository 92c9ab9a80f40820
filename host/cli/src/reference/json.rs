//! The reference of the JSON output: the commands, their objects, and an example of each.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{code, table};
use crate::approval_key::ApprovalKeyReport;
use crate::commands::{
    audit, bench, calendar, config, db, doctor, explain, new, package, schedule, selftest, task,
};
use crate::output;
use campanile_control::admin::alert_admin::{AlertDetail, TestReport};
use campanile_control::admin::host_admin::HostReport;
use campanile_control::admin::package_removal::RemovedPackage;
use campanile_control::admin::schedule_admin::CursorResets;
use campanile_control::admin::token_admin::{CreatedToken, TokenReport};
use campanile_control::records::backfill::{BackfillRecord, CancelledBackfill, SurveyReport};
use campanile_control::records::launch::{CancelReport, LaunchDetail, TriggerReport};
use campanile_control::records::package::{DecisionReport, PackageDetail, PackageRecord};
use campanile_control::records::package_diff::DiffReport;
use campanile_control::records::run::{RunDetail, TaskLogs};
use campanile_control::records::schedule::{
    ChangeReport, NewSchedule, RenameReport, ScheduleDetail, ScheduleRecord, SkipReport,
};
use campanile_control::records::schedules_file::FileReport;
use campanile_control::records::top::TopReport;
use campanile_control::reports::forecast::report::PlanReport;
use campanile_control::reports::health::Health;
use campanile_control::reports::statistics::{ScheduleStatistics, Statistics};
use campanile_control::reports::use_statistics::{DayStatistics, PackageStatistics};
use campanile_control::reports::why::Answer;
use campanile_model::clock::Timestamp;
use campanile_store::alert_messages::AlertMessageRow;
use campanile_store::alerts::{Alert, Silence};
use campanile_store::events::Event;
use campanile_store::launch::LaunchRow;
use campanile_store::outbox::{MessageContent, MessageRow};
use campanile_store::runs::RunRow;

/// The schemas of the JSON output.
#[derive(Default)]
pub(super) struct Shapes {
    generator: SchemaGenerator,
    views: Vec<View>,
}

/// What a command shows and the API answers.
struct View {
    command: &'static str,
    schema: Schema,
    /// Read JSON as the command reads an answer, and write it again.
    round_trip: fn(Value) -> serde_json::Result<Value>,
}

/// A command, and the schema of its JSON.
pub(super) type Shape = (&'static str, Schema);

impl Shapes {
    fn one<T: JsonSchema>(&mut self, command: &'static str) -> Shape {
        (command, self.generator.subschema_for::<T>())
    }

    /// Returns the shape of output that is also an API response.
    fn view<T: JsonSchema + Serialize + DeserializeOwned>(
        &mut self,
        command: &'static str,
    ) -> Shape {
        let shape = self.one::<T>(command);
        self.views.push(View {
            command,
            schema: shape.1.clone(),
            round_trip: |json| serde_json::to_value(serde_json::from_value::<T>(json)?),
        });
        shape
    }

    pub(super) fn commands(&mut self) -> Vec<Shape> {
        vec![
            self.one::<new::NewReport>("new"),
            self.one::<task::TaskReport>("task run"),
            self.one::<task::check::CheckReport>("task check"),
            self.view::<NewSchedule>("schedule add"),
            self.view::<ScheduleRecord>("schedule edit"),
            self.view::<RenameReport<'_>>("schedule rename"),
            self.view::<SkipReport<'_>>("schedule skip"),
            self.view::<Vec<ScheduleRecord>>("schedule list"),
            self.view::<ScheduleDetail>("schedule show"),
            self.one::<Vec<Timestamp>>("schedule next"),
            self.one::<Vec<calendar::Day>>("schedule next --calendar"),
            self.view::<ChangeReport<'_>>("schedule pause"),
            self.view::<ChangeReport<'_>>("schedule resume"),
            self.view::<ChangeReport<'_>>("schedule reset-cursor"),
            self.view::<CursorResets>("schedule reset-cursor --all"),
            self.view::<ChangeReport<'_>>("schedule remove"),
            self.view::<TriggerReport>("schedule trigger"),
            self.one::<schedule::trigger::WaitReport>("schedule trigger --wait"),
            self.view::<BackfillRecord>("schedule backfill"),
            self.view::<SurveyReport>("schedule backfill --dry-run"),
            self.view::<Answer>("schedule why"),
            self.one::<FileReport>("schedule check"),
            self.one::<FileReport>("schedule reconcile"),
            self.one::<schedule::import::ImportReport>("schedule import crontab"),
            self.view::<Vec<BackfillRecord>>("backfill list"),
            self.view::<BackfillRecord>("backfill show"),
            self.view::<CancelledBackfill>("backfill cancel"),
            self.one::<Vec<Timestamp>>("cron next"),
            self.one::<explain::Explanation>("cron explain"),
            self.one::<Vec<calendar::Day>>("cron calendar"),
            self.view::<PlanReport>("plan"),
            self.view::<Vec<LaunchRow>>("launch list"),
            self.view::<LaunchDetail>("launch show"),
            self.view::<Vec<RunRow>>("run list"),
            self.view::<RunDetail>("run show"),
            self.view::<Vec<TaskLogs>>("run logs"),
            self.view::<CancelReport>("run cancel"),
            self.view::<TriggerReport>("run retry"),
            self.one::<schedule::trigger::WaitReport>("run retry --wait"),
            self.view::<Vec<MessageRow>>("outbox list"),
            self.view::<MessageContent>("outbox show"),
            self.view::<MessageRow>("outbox retry"),
            self.view::<MessageRow>("outbox discard"),
            self.view::<Vec<Alert>>("alert list"),
            self.view::<AlertDetail>("alert show"),
            self.view::<AlertDetail>("alert resolve"),
            self.view::<Vec<AlertMessageRow>>("alert deliveries"),
            self.view::<TestReport>("alert test"),
            self.view::<Vec<Silence>>("alert silence"),
            self.view::<Silence>("alert unsilence"),
            self.view::<Vec<Silence>>("alert silences"),
            self.view::<Vec<PackageRecord>>("package list"),
            self.view::<PackageDetail>("package show"),
            self.view::<DiffReport>("package diff"),
            self.view::<DecisionReport>("package approve"),
            self.view::<DecisionReport>("package reject"),
            self.view::<DecisionReport>("package rollback"),
            self.view::<RemovedPackage>("package remove"),
            self.one::<ApprovalKeyReport>("package approval-key"),
            self.one::<package::signing::KeyReport>("package keygen"),
            self.one::<package::signing::SignatureReport>("package sign"),
            self.one::<package::signing::SignatureReport>("package verify"),
            self.view::<Vec<HostReport>>("host list"),
            self.view::<HostReport>("host drain"),
            self.view::<Vec<Event>>("event list"),
            self.view::<CreatedToken>("token create"),
            self.view::<Vec<TokenReport>>("token list"),
            self.view::<TokenReport>("token revoke"),
            self.view::<Statistics>("stats"),
            self.view::<ScheduleStatistics>("stats --schedule"),
            self.view::<Vec<ScheduleStatistics>>("stats --by schedule"),
            self.view::<Vec<PackageStatistics>>("stats --by package"),
            self.view::<Vec<DayStatistics>>("stats --by day"),
            self.view::<TopReport>("top"),
            self.view::<Health>("health"),
            self.one::<db::DbStatus>("db migrate"),
            self.one::<db::status::DbReport>("db status"),
            self.one::<db::backup::BackupReport>("db backup"),
            self.one::<db::restore::RestoreReport>("db restore"),
            self.one::<db::compact::CompactReport>("db compact"),
            self.one::<campanile_control::reports::verify::AuditReport>("audit verify"),
            self.one::<audit::ExportReport>("audit export"),
            self.one::<doctor::DoctorReport>("doctor"),
            self.one::<db::grants::GrantsReport>("db grants"),
            self.one::<config::ConfigReport>("config default"),
            self.one::<config::ConfigReport>("config check"),
            self.one::<bench::launches::LaunchesReport>("bench launches"),
            self.one::<bench::BurstReport>("bench burst"),
            self.one::<bench::load::LoadReport>("bench load"),
            self.one::<bench::growth::GrowthReport>("bench growth"),
            self.one::<bench::api::ApiReport>("bench api"),
            self.one::<bench::outage::OutageReport>("bench outage"),
            self.one::<bench::seals::SealsReport>("bench seals"),
            self.one::<selftest::SelftestReport>("selftest"),
            self.one::<output::Failure>("any command that fails"),
        ]
    }

    pub(super) fn text(&self, commands: &[Shape]) -> String {
        let definitions = self.generator.definitions();
        let mut answers = BTreeSet::new();
        let commands = commands.iter().map(|(command, schema)| {
            answers.extend(reference_of(schema.as_value()));
            answers.extend(reference_of(&schema.as_value()["items"]));
            [code(command), type_text(schema.as_value(), definitions)]
        });
        let mut text = format!("\n## Commands\n\n{}", table(["command", "JSON"], commands));
        text += "\n## Objects\n";
        for (name, schema) in definitions {
            if schema["properties"].is_null() && schema["allOf"].is_null() {
                continue;
            }
            let _ = write!(text, "\n### {name}\n\n{}\n\n", description(schema));
            let mut keys = Vec::new();
            rows(schema, definitions, &mut keys);
            text += &table(["key", "type", "meaning"], keys);
            if answers.contains(name.as_str()) {
                let example = sample("", schema, definitions);
                let _ = write!(text, "\nExample:\n\n```json\n{example:#}\n```\n");
            }
        }
        text
    }

    pub(super) fn schema_file(&self) -> String {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "JSON output of campanile",
            "$defs": self.generator.definitions(),
        });
        format!("{schema:#}\n")
    }
}

fn rows(schema: &Value, definitions: &Map<String, Value>, rows: &mut Vec<[String; 3]>) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    rows.extend(properties.map(|(key, property)| {
        let kind = type_text(property, definitions);
        [code(key), kind, description(property)]
    }));
    for part in schema["allOf"].as_array().into_iter().flatten() {
        self::rows(resolve(part, definitions), definitions, rows);
    }
}

fn description(schema: &Value) -> String {
    schema["description"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Returns the name of the definition that a schema refers to.
fn reference_of(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/$defs/")
}

pub(super) fn resolve<'a>(schema: &'a Value, definitions: &'a Map<String, Value>) -> &'a Value {
    match reference_of(schema) {
        Some(name) => &definitions[name],
        None => schema,
    }
}

/// Returns the schemas among which a value can choose, without null.
fn alternatives(schema: &Value) -> Vec<&Value> {
    let alternatives = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    let alternatives = alternatives.into_iter().flatten();
    alternatives.filter(|one| one["type"] != "null").collect()
}

/// Returns the words of a closed set, each with its description.
pub(super) fn words(schema: &Value) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let plain = schema["enum"].as_array().into_iter().flatten();
    let plain = plain.filter_map(|value| Some((word(value)?, String::new())));
    let described = alternatives(schema).into_iter().flat_map(|one| {
        let mut own = words(one);
        own.extend(word(&one["const"]).map(|word| (word, description(one))));
        own
    });
    plain.chain(described).collect()
}

fn type_text(schema: &Value, definitions: &Map<String, Value>) -> String {
    let or_null = |text: String, is_nullable: bool| {
        if is_nullable {
            format!("{text} or null")
        } else {
            text
        }
    };
    if let Some(name) = reference_of(schema) {
        let words = words(&definitions[name]);
        if words.is_empty() {
            return if definitions[name]["properties"].is_null() {
                type_text(&definitions[name], definitions)
            } else {
                format!("[{name}](#{})", name.to_lowercase())
            };
        }
        let words = words.iter().map(|(word, _)| format!("`{word}`"));
        return words.collect::<Vec<_>>().join(", ");
    }
    let all = schema["anyOf"].as_array().map_or(0, Vec::len);
    if let [only] = alternatives(schema)[..] {
        return or_null(type_text(only, definitions), all > 1);
    }
    let types = types(schema);
    let is_nullable = types.contains(&"null");
    let first = types.into_iter().find(|one| *one != "null");
    let text = match first.unwrap_or("any") {
        "array" => format!("list of {}", type_text(&schema["items"], definitions)),
        "string" if schema["format"] == "date-time" => "time".to_owned(),
        other => other.to_owned(),
    };
    or_null(text, is_nullable)
}

/// Returns the types that a value can have.
fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => Vec::from_iter(one.as_str()),
    }
}

/// Returns an example of a value, chosen by its key or else by its type.
fn sample(key: &str, schema: &Value, definitions: &Map<String, Value>) -> Value {
    let schema = resolve(schema, definitions);
    if schema["properties"].is_object() || schema["allOf"].is_array() {
        let mut object = Map::new();
        for part in schema["allOf"].as_array().into_iter().flatten() {
            if let Value::Object(part) = sample("", part, definitions) {
                object.extend(part);
            }
        }
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            object.insert(key.clone(), sample(key, property, definitions));
        }
        return Value::Object(object);
    }
    if let Some((word, _)) = words(schema).first() {
        return json!(word);
    }
    if let Some(first) = alternatives(schema).first() {
        return sample(key, first, definitions);
    }
    match types(schema).into_iter().find(|one| *one != "null") {
        Some("array") => json!([sample(key, &schema["items"], definitions)]),
        Some("string") if schema["format"] == "date-time" => json!("2026-11-21T08:00:00Z"),
        Some("string") => json!(sample_text(key)),
        Some("integer") => json!(1),
        Some("number") => json!(1.5),
        Some("boolean") => json!(true),
        _ => json!({}),
    }
}

fn sample_text(key: &str) -> &'static str {
    match key {
        "id" | "launch_id" | "run_id" | "schedule_id" | "overlaps" | "retry_of" | "launch"
        | "incarnation" => "01934f6e-6b00-7000-8000-000000000000",
        "schedule" | "name" | "subject" => "nightly",
        "package" => "report",
        "task" => "report",
        "digest" | "pending_digest" | "from" | "to" | "before" | "grants_hash" | "context_hash" => {
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        }
        "expression" | "normal_form" | "resolved" => "0 8 * * *",
        "timezone" => "UTC",
        "scheduled_local" | "local" | "local_last" => "2026-11-21T08:00:00",
        "host" | "decided_by" => "server-1",
        "host_version" | "version" => env!("CARGO_PKG_VERSION"),
        "created_by" | "paused_by" | "principal" => "ada",
        "address" => "192.0.2.7",
        "traceparent" | "caller_traceparent" => {
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        }
        "secret" => "cmp_3q2-7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "date" => "2026-11-21",
        "form" => "typed_component",
        "kind" => "env",
        "database" => "sqlite:campanile.db",
        _ => "text",
    }
}

#[test]
fn what_the_api_answers_is_read_and_written_without_loss() {
    let mut shapes = Shapes::default();
    shapes.commands();
    let definitions = shapes.generator.definitions();
    assert!(shapes.views.len() > 50);
    for view in &shapes.views {
        let schema = view.schema.as_value();
        let example = sample("", schema, definitions);
        let read = (view.round_trip)(example.clone());
        let read = read.unwrap_or_else(|error| panic!("{}: {error}: {example:#}", view.command));
        assert_eq!(read, example, "{}", view.command);
    }
}

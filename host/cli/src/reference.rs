//! The generator of the tables in `docs/src/reference`, and the test that compares them with the committed files.
//!
//! The text comes from the definitions that the program itself uses: clap's commands, the types of the JSON output,
//! the tables of keys, and the closed sets of words. In each file it stands between two marker lines.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::commands::{
    backfill, bench, calendar, config, db, explain, launch, new, package, plan, run, schedule, task,
};
use crate::config::Config;
use crate::{Cli, environment, output};
use campanile_engine::audit::{Health, Statistics};
use campanile_engine::why::Answer;
use campanile_model::clock::Timestamp;
use campanile_model::status::{
    BackfillStatus, Decision, EventKind, LaunchStatus, RunStatus, VersionDecision,
};
use campanile_package::grants;
use campanile_package::reference::KeyHelp;
use campanile_store::events::Event;
use campanile_store::launches::LaunchRow;
use campanile_store::packages::PackageState;
use campanile_store::runs::RunRow;

/// The variable that makes the test write the files instead of comparing them.
const UPDATE: &str = "UPDATE_REFERENCE";

/// The lines around the generated part of a file.
const START: &str = "<!-- Generated: UPDATE_REFERENCE=1 cargo test -p campanile reference -->\n";
const END: &str = "<!-- End of the generated part -->\n";

#[test]
fn the_committed_reference_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference");
    let mut stale = Vec::new();
    for (name, generated) in files() {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let current = match (text.split_once(START), text.split_once(END)) {
            (Some((before, _)), Some((_, after))) => {
                format!("{before}{START}{generated}{END}{after}")
            }
            _ if name.ends_with(".json") => generated,
            _ => panic!("{name} has no markers"),
        };
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(&path, current).unwrap();
        } else if text != current {
            stale.push(name);
        }
    }
    assert!(
        stale.is_empty(),
        "docs/src/reference is not current: {stale:?}; run `{UPDATE}=1 cargo test -p campanile reference` and commit"
    );
}

#[test]
fn every_word_of_a_closed_set_is_in_the_reference() {
    let states = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/states.md"),
    )
    .unwrap();
    for (word, _) in [
        words_of::<Decision>(),
        words_of::<LaunchStatus>(),
        words_of::<RunStatus>(),
        words_of::<BackfillStatus>(),
        words_of::<PackageState>(),
        words_of::<VersionDecision>(),
    ]
    .concat()
    {
        assert!(states.contains(&format!("`{word}`")), "states.md: {word}");
    }
}

#[test]
fn every_field_of_a_record_is_in_its_json() {
    use output::Record;
    /// Check that the schema has every shown key, except keys that the JSON output omits.
    fn check<R: Record + JsonSchema>() {
        let only_text = [
            "rule",
            "paused",
            "size",
            "kept",
            "memory_peak",
            "slots_finished",
            "progress",
            "duration",
            "lag",
        ];
        let mut generator = SchemaGenerator::default();
        let schema = R::json_schema(&mut generator);
        let mut keys = BTreeSet::new();
        collect_keys(schema.as_value(), generator.definitions(), &mut keys);
        let shown = R::LIST
            .split_whitespace()
            .chain(R::DETAIL.split_whitespace());
        for key in shown.filter(|key| !only_text.contains(key)) {
            assert!(keys.contains(key), "{}: {key}", R::schema_name());
        }
    }
    check::<LaunchRow>();
    check::<RunRow>();
    check::<launch::LaunchDetail>();
    check::<run::RunDetail>();
    check::<run::TaskCall>();
    check::<Event>();
    check::<package::record::PackageRecord>();
    check::<package::record::PackageDetail>();
    check::<package::record::VersionRecord>();
    check::<schedule::record::ScheduleRecord>();
    check::<schedule::record::ScheduleDetail>();
    check::<backfill::BackfillRecord>();
    check::<plan::report::ScheduleForecast>();
    check::<plan::report::PlannedLaunch>();
    check::<plan::report::ChangedLaunch>();
    check::<plan::report::SkippedSlots>();
    check::<db::DbStatus>();
    check::<Statistics>();
    check::<bench::LaunchesReport>();
    check::<bench::BurstReport>();
    check::<bench::load::LoadReport>();
}

/// Collect the keys of an object, those of flattened objects included.
fn collect_keys(schema: &Value, definitions: &Map<String, Value>, keys: &mut BTreeSet<String>) {
    let schema = resolve(schema, definitions);
    if let Some(properties) = schema["properties"].as_object() {
        keys.extend(properties.keys().cloned());
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        collect_keys(part, definitions, keys);
    }
}

/// Return the generated part of every file.
fn files() -> Vec<(&'static str, String)> {
    let mut shapes = Shapes::default();
    let commands = shapes.commands();
    vec![
        ("commands.md", commands_text()),
        ("json.md", shapes.text(&commands)),
        ("json-schema.json", shapes.schema_file()),
        ("configuration.md", configuration_text()),
        ("sidecar.md", grants_text()),
        ("events.md", events_text()),
        ("limits.md", limits_text()),
        ("exit-codes.md", exit_codes_text()),
        ("environment.md", environment_text()),
    ]
}

fn exit_codes_text() -> String {
    let mut text = "\n| code | meaning |\n|---|---|\n".to_owned();
    for (code, (_, meaning)) in words_of::<output::Exit>().iter().enumerate() {
        let _ = writeln!(text, "| {code} | {} |", cell(meaning));
    }
    text + "\n"
}

fn environment_text() -> String {
    let mut text = "\n| variable | meaning |\n|---|---|\n".to_owned();
    for (name, meaning) in environment::all() {
        let _ = writeln!(text, "| `{name}` | {} |", cell(meaning));
    }
    text + "\n"
}

#[test]
fn every_variable_of_an_option_is_in_the_reference() {
    fn check(command: &Command) {
        for variable in command.get_arguments().filter_map(Arg::get_env) {
            let is_listed = environment::all().iter().any(|(name, _)| variable == *name);
            assert!(is_listed, "{variable:?} of {}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }
    check(&Cli::command());
}

#[test]
fn the_order_of_the_exit_codes_is_their_value() {
    let words = words_of::<output::Exit>();
    let names: Vec<&str> = words.iter().map(|(word, _)| word.as_str()).collect();
    assert_eq!(names, ["Success", "Failed", "Refused"]);
    let codes = [
        output::Exit::Success,
        output::Exit::Failed,
        output::Exit::Refused,
    ];
    assert_eq!(codes.map(|exit| exit as u8), [0, 1, 2]);
}

/// Return a line of text as a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn limits_text() -> String {
    let mut text = String::from(
        "\n| key in `[limits]` | default | bounds | of one call |\n|---|---|---|---|\n",
    );
    for help in campanile_package::limits::keys() {
        let default = help.default.map(|default| format!("`{default}`"));
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            help.key,
            default.as_deref().unwrap_or("none"),
            help.bounds.unwrap_or_default(),
            cell(&help.meaning)
        );
    }
    text
}

// Commands.

fn commands_text() -> String {
    let mut root = Cli::command();
    root.build();
    let mut text = String::new();
    text += "\n## Global options\n\n";
    text += &arguments(root.get_arguments().filter(|arg| arg.is_global_set()));
    for command in root.get_subcommands() {
        describe(command, "campanile", &mut text);
    }
    text
}

fn describe(command: &Command, parent: &str, text: &mut String) {
    if command.get_name() == "help" || command.is_hide_set() {
        return;
    }
    let path = format!("{parent} {}", command.get_name());
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, "\n## `{path}`\n\n{about}.\n");
    if command.has_subcommands() {
        for below in command.get_subcommands() {
            describe(below, &path, text);
        }
        return;
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let usage: Vec<&str> = usage.lines().map(str::trim).collect();
    let _ = write!(text, "\n```text\n{}\n```\n", usage.join("\n"));
    let own = command.get_arguments().filter(|arg| !arg.is_global_set());
    let table = arguments(own);
    if !table.is_empty() {
        let _ = write!(text, "\n{table}");
    }
}

fn arguments<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let mut rows = String::new();
    for arg in arguments {
        if ["help", "version"].contains(&arg.get_id().as_str()) {
            continue;
        }
        let names = arg.get_value_names().unwrap_or_default();
        let value = names.first().filter(|_| arg.get_action().takes_values());
        let value = value.map(|name| format!("<{name}>")).unwrap_or_default();
        let short = arg.get_short().map(|short| format!("-{short}"));
        let long = arg.get_long().map(|long| format!("--{long}"));
        let flags: Vec<String> = [short, long].into_iter().flatten().collect();
        let name = format!("{} {value}", flags.join(", "));
        let help = arg.get_help().map(ToString::to_string);
        let mut help = help.unwrap_or_default();
        let possible = arg.get_possible_values();
        if arg.get_action().takes_values() && !possible.is_empty() {
            let words = possible.iter().map(|value| match value.get_help() {
                Some(help) => format!("`{}` ({help})", value.get_name()),
                None => format!("`{}`", value.get_name()),
            });
            let _ = write!(help, ": {}", words.collect::<Vec<_>>().join(", "));
        }
        if let Some(default) = arg.get_default_values().first()
            && arg.get_action().takes_values()
        {
            let _ = write!(help, " [default: {}]", default.to_string_lossy());
        }
        if let Some(variable) = arg.get_env() {
            let _ = write!(help, " [environment: {}]", variable.to_string_lossy());
        }
        let _ = writeln!(rows, "| `{}` | {} |", cell(name.trim()), cell(&help));
    }
    match rows.is_empty() {
        true => rows,
        false => format!("| argument | meaning |\n|---|---|\n{rows}"),
    }
}

// JSON output.

/// The schemas of the JSON output.
#[derive(Default)]
struct Shapes {
    generator: SchemaGenerator,
}

/// The JSON of a command.
struct Shape {
    command: &'static str,
    schema: Schema,
}

impl Shapes {
    fn one<T: JsonSchema>(&mut self, command: &'static str) -> Shape {
        Shape {
            command,
            schema: self.generator.subschema_for::<T>(),
        }
    }

    fn list<T: JsonSchema>(&mut self, command: &'static str) -> Shape {
        self.one::<Vec<T>>(command)
    }

    fn commands(&mut self) -> Vec<Shape> {
        vec![
            self.one::<new::NewReport>("new"),
            self.one::<task::TaskReport>("task run"),
            self.one::<task::check::CheckReport>("task check"),
            self.one::<schedule::record::NewSchedule>("schedule add"),
            self.one::<schedule::record::ScheduleRecord>("schedule edit"),
            self.one::<schedule::edit::RenameReport<'_>>("schedule rename"),
            self.one::<schedule::edit::SkipReport<'_>>("schedule skip"),
            self.list::<schedule::record::ScheduleRecord>("schedule list"),
            self.one::<schedule::record::ScheduleDetail>("schedule show"),
            self.list::<Timestamp>("schedule next"),
            self.list::<calendar::Day>("schedule next --calendar"),
            self.one::<schedule::ChangeReport<'_>>("schedule pause"),
            self.one::<schedule::ChangeReport<'_>>("schedule resume"),
            self.one::<schedule::ChangeReport<'_>>("schedule remove"),
            self.one::<schedule::TriggerReport<'_>>("schedule trigger"),
            self.one::<backfill::BackfillRecord>("schedule backfill"),
            self.one::<schedule::backfill::SurveyReport<'_>>("schedule backfill --dry-run"),
            self.one::<Answer>("schedule why"),
            self.one::<schedule::check::FileReport<'_>>("schedule check"),
            self.one::<schedule::import::ImportReport>("schedule import crontab"),
            self.list::<backfill::BackfillRecord>("backfill list"),
            self.one::<backfill::BackfillRecord>("backfill show"),
            self.one::<backfill::BackfillRecord>("backfill cancel"),
            self.list::<Timestamp>("cron next"),
            self.one::<explain::Explanation>("cron explain"),
            self.list::<calendar::Day>("cron calendar"),
            self.one::<plan::report::PlanReport>("plan"),
            self.list::<LaunchRow>("launch list"),
            self.one::<launch::LaunchDetail>("launch show"),
            self.list::<RunRow>("run list"),
            self.one::<run::RunDetail>("run show"),
            self.list::<run::TaskLogs>("run logs"),
            self.list::<package::record::PackageRecord>("package list"),
            self.one::<package::record::PackageDetail>("package show"),
            self.one::<package::compare::DiffReport>("package diff"),
            self.one::<package::DecisionReport>("package approve"),
            self.one::<package::DecisionReport>("package reject"),
            self.one::<package::DecisionReport>("package rollback"),
            self.one::<package::signing::KeyReport>("package keygen"),
            self.one::<package::signing::SignatureReport>("package sign"),
            self.one::<package::signing::SignatureReport>("package verify"),
            self.list::<Event>("event list"),
            self.one::<Statistics>("stats"),
            self.one::<Health>("health"),
            self.one::<db::DbStatus>("db migrate"),
            self.one::<db::status::DbReport>("db status"),
            self.one::<db::backup::BackupReport>("db backup"),
            self.one::<db::restore::RestoreReport>("db restore"),
            self.one::<db::compact::CompactReport>("db compact"),
            self.one::<config::ConfigReport>("config default"),
            self.one::<config::ConfigReport>("config check"),
            self.one::<bench::LaunchesReport>("bench launches"),
            self.one::<bench::BurstReport>("bench burst"),
            self.one::<bench::load::LoadReport>("bench load"),
            self.one::<output::Failure>("any command that fails"),
        ]
    }

    fn text(&self, commands: &[Shape]) -> String {
        let definitions = self.generator.definitions();
        let mut text = String::new();
        text += "\n## Commands\n\n| command | JSON |\n|---|---|\n";
        let mut answers = BTreeSet::new();
        for Shape { command, schema } in commands {
            let kind = type_text(schema.as_value(), definitions);
            let _ = writeln!(text, "| `{command}` | {} |", cell(&kind));
            answers.extend(reference_of(schema.as_value()));
            answers.extend(reference_of(&schema.as_value()["items"]));
        }
        text += "\n## Objects\n";
        for (name, schema) in definitions {
            if schema["properties"].is_null() && schema["allOf"].is_null() {
                continue;
            }
            let _ = write!(text, "\n### {name}\n\n{}\n\n", description(schema));
            text += "| key | type | meaning |\n|---|---|---|\n";
            rows(schema, definitions, &mut text);
            if answers.contains(name.as_str()) {
                let example = sample("", schema, definitions);
                let _ = write!(text, "\nExample:\n\n```json\n{example:#}\n```\n");
            }
        }
        text
    }

    fn schema_file(&self) -> String {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "JSON output of campanile",
            "$defs": self.generator.definitions(),
        });
        format!("{schema:#}\n")
    }
}

fn rows(schema: &Value, definitions: &Map<String, Value>, text: &mut String) {
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let _ = writeln!(
            text,
            "| `{key}` | {} | {} |",
            cell(&type_text(property, definitions)),
            cell(&description(property))
        );
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        rows(resolve(part, definitions), definitions, text);
    }
}

fn description(schema: &Value) -> String {
    schema["description"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Return the name of the definition that a schema refers to.
fn reference_of(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/$defs/")
}

fn resolve<'a>(schema: &'a Value, definitions: &'a Map<String, Value>) -> &'a Value {
    match reference_of(schema) {
        Some(name) => &definitions[name],
        None => schema,
    }
}

/// Return the schemas among which a value can choose, without null.
fn alternatives(schema: &Value) -> Vec<&Value> {
    let alternatives = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    let alternatives = alternatives.into_iter().flatten();
    alternatives.filter(|one| one["type"] != "null").collect()
}

/// Return the words of a closed set, each with its description.
fn words(schema: &Value) -> Vec<(String, String)> {
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
    let or_null = |text: String, is_nullable: bool| match is_nullable {
        true => format!("{text} or null"),
        false => text,
    };
    if let Some(name) = reference_of(schema) {
        let words = words(&definitions[name]);
        if words.is_empty() {
            return match definitions[name]["properties"].is_null() {
                true => type_text(&definitions[name], definitions),
                false => format!("[{name}](#{})", name.to_lowercase()),
            };
        }
        let words = words.iter().map(|(word, _)| format!("`{word}`"));
        return words.collect::<Vec<_>>().join(", ");
    }
    let all = schema["anyOf"].as_array().map_or(0, Vec::len);
    if let [only] = alternatives(schema)[..] {
        return or_null(type_text(only, definitions), all > 1);
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        _ => vec!["any"],
    };
    let is_nullable = types.contains(&"null");
    let first = types.into_iter().find(|one| *one != "null");
    let text = match first.unwrap_or("any") {
        "array" => format!("list of {}", type_text(&schema["items"], definitions)),
        "string" if schema["format"] == "date-time" => "time".to_owned(),
        other => other.to_owned(),
    };
    or_null(text, is_nullable)
}

/// Return an example of a value, chosen by its key or else by its type.
fn sample(key: &str, schema: &Value, definitions: &Map<String, Value>) -> Value {
    let schema = resolve(schema, definitions);
    if schema["properties"].is_object() || schema["allOf"].is_array() {
        let mut object = Map::new();
        let parts = schema["allOf"].as_array().into_iter().flatten();
        for part in parts {
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
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => Vec::from_iter(one.as_str()),
    };
    match types.iter().find(|one| **one != "null") {
        Some(&"array") => json!([sample(key, &schema["items"], definitions)]),
        Some(&"string") if schema["format"] == "date-time" => json!("2026-11-21T08:00:00Z"),
        Some(&"string") => json!(sample_text(key)),
        Some(&"integer") => json!(1),
        Some(&"number") => json!(1.5),
        Some(&"boolean") => json!(true),
        _ => json!({}),
    }
}

fn sample_text(key: &str) -> &'static str {
    match key {
        "id" | "launch_id" | "run_id" | "schedule_id" | "overlaps" | "launch" => {
            "01934f6e-6b00-7000-8000-000000000000"
        }
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
        "created_by" | "paused_by" => "ada",
        "date" => "2026-11-21",
        "form" => "typed_component",
        "database" => "sqlite:campanile.db",
        _ => "text",
    }
}

// The other files.

fn configuration_text() -> String {
    let keys = keys_table(Config::reference());
    format!(
        "{keys}```toml\n{}\n```\n\n",
        Config::default_text().trim_end()
    )
}

fn grants_text() -> String {
    keys_table(grants::KINDS.into_iter().flat_map(|kind| kind.reference()))
}

fn keys_table(keys: impl IntoIterator<Item = KeyHelp>) -> String {
    let mut text =
        "\n| key | type | default | bounds | meaning |\n|---|---|---|---|---|\n".to_owned();
    for help in keys {
        let default = help.default.map(|text| format!("`{text}`"));
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            help.key,
            cell(&help.kind),
            cell(&default.unwrap_or_default()),
            cell(&help.bounds.unwrap_or_default()),
            cell(&help.meaning)
        );
    }
    text + "\n"
}

fn events_text() -> String {
    let mut text = "\n| kind | recorded when |\n|---|---|\n".to_owned();
    for (word, meaning) in words_of::<EventKind>() {
        let _ = writeln!(text, "| `{word}` | {} |", cell(&meaning));
    }
    text + "\n"
}

fn words_of<T: JsonSchema>() -> Vec<(String, String)> {
    words(T::json_schema(&mut SchemaGenerator::default()).as_value())
}

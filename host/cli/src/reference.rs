//! The generator of the tables in `docs/src/reference`, and the test that compares them with the committed files.
//!
//! The text comes from the definitions that the program itself uses: clap's commands, the types of the JSON output,
//! the tables of keys, and the closed sets of words. In each file it stands between two marker lines.

mod json;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::commands::{bench, db, plan};
use crate::config::Config;
use crate::{Cli, environment, output};
use campanile_control::admin::host_admin::{HostReport, HostState};
use campanile_control::records::backfill::BackfillRecord;
use campanile_control::records::launch::LaunchDetail;
use campanile_control::records::package::{PackageDetail, PackageRecord, VersionRecord};
use campanile_control::records::run::{RunDetail, TaskCall};
use campanile_control::records::schedule::{ScheduleDetail, ScheduleRecord};
use campanile_control::reports::forecast::report::{
    ChangedLaunch, PlannedLaunch, ScheduleForecast,
};
use campanile_control::reports::statistics::{ScheduleStatistics, Statistics};
use campanile_control::reports::use_statistics::{DayStatistics, PackageStatistics};
use campanile_model::status::{
    BackfillStatus, Decision, EventKind, LaunchStatus, RunStatus, VersionDecision,
};
use campanile_package::reference::KeyHelp;
use campanile_package::{grants, program};
use campanile_store::events::Event;
use campanile_store::launch::LaunchRow;
use campanile_store::packages::PackageState;
use campanile_store::runs::RunRow;
use json::{Shapes, resolve, words};

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
        words_of::<HostState>(),
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
    check::<HostReport>();
    check::<LaunchDetail>();
    check::<RunDetail>();
    check::<TaskCall>();
    check::<Event>();
    check::<PackageRecord>();
    check::<PackageDetail>();
    check::<VersionRecord>();
    check::<ScheduleRecord>();
    check::<ScheduleDetail>();
    check::<BackfillRecord>();
    check::<ScheduleForecast>();
    check::<PlannedLaunch>();
    check::<ChangedLaunch>();
    check::<plan::report::SkippedSlots>();
    check::<db::DbStatus>();
    check::<Statistics>();
    check::<ScheduleStatistics>();
    check::<PackageStatistics>();
    check::<DayStatistics>();
    check::<bench::launches::LaunchesReport>();
    check::<bench::BurstReport>();
    check::<bench::load::LoadReport>();
    check::<bench::growth::GrowthReport>();
    check::<bench::outage::OutageReport>();
    check::<bench::seals::SealsReport>();
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

/// Returns the generated part of every file.
fn files() -> Vec<(&'static str, String)> {
    let mut shapes = Shapes::default();
    let commands = shapes.commands();
    vec![
        ("commands.md", commands_text()),
        ("json.md", shapes.text(&commands)),
        ("json-schema.json", shapes.schema_file()),
        ("configuration.md", configuration_text()),
        ("sidecar.md", sidecar_text()),
        ("events.md", events_text()),
        ("limits.md", limits_text()),
        ("exit-codes.md", exit_codes_text()),
        ("environment.md", environment_text()),
    ]
}

fn exit_codes_text() -> String {
    let codes = words_of::<output::Exit>().into_iter().enumerate();
    let rows = codes.map(|(code, (_, meaning))| [code.to_string(), meaning]);
    let exits = table(["code", "meaning"], rows);
    let words = words_of::<output::ErrorCode>().into_iter();
    let rows = words.map(|(word, meaning)| [code(&word), meaning]);
    let words = table(["`code`", "meaning"], rows);
    format!(
        "\n{exits}\n## Error codes\n\nWith `--json`, an error is an object with the keys `error`, `hint` and `code`, on stdout. \
         The sentences may change from one version to the next; these words do not.\n\n{words}\n"
    )
}

fn environment_text() -> String {
    let rows = environment::all().map(|(name, meaning)| [code(name), meaning.to_owned()]);
    format!("\n{}\n", table(["variable", "meaning"], rows))
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

/// The commands that show no record.
const WITHOUT_JSON: [&str; 5] = ["serve", "dev", "mcp", "completions", "man"];

#[test]
fn the_json_of_every_command_is_in_the_reference() {
    fn check(command: &Command, name: &str, known: &BTreeSet<&str>) {
        for below in command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
        {
            check(
                below,
                format!("{name} {}", below.get_name()).trim_start(),
                known,
            );
        }
        let is_known = known.contains(name) || WITHOUT_JSON.contains(&name);
        assert!(is_known || command.has_subcommands(), "{name}");
    }
    let shapes = Shapes::default().commands();
    let known = shapes
        .iter()
        .filter_map(|(name, _)| name.split(" --").next());
    check(&Cli::command(), "", &known.collect());
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

/// Returns a Markdown table.
fn table<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut text = format!("| {} |\n{}|\n", headings.join(" | "), "|---".repeat(N));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.map(|text| cell(&text)).join(" | "));
    }
    text
}

/// Returns a line of text as a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn limits_text() -> String {
    let rows = campanile_package::limits::keys().into_iter().map(|help| {
        let default = help.default.as_deref().map_or("none".to_owned(), code);
        let bounds = help.bounds.unwrap_or_default();
        [code(&help.key), default, bounds, help.meaning]
    });
    let headings = ["key in `[limits]`", "default", "bounds", "of one call"];
    format!("\n{}", table(headings, rows))
}

// Commands.

fn commands_text() -> String {
    let mut root = Cli::command();
    root.build();
    let mut text = String::new();
    text += "\n## Global options\n";
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
    *text += &arguments(own);
}

/// Returns the table of arguments after an empty line; nothing when there are none.
fn arguments<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let mut rows = Vec::new();
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
        let name = if arg.is_require_equals_set() {
            format!("{}[={value}]", flags.join(", "))
        } else {
            format!("{} {value}", flags.join(", "))
        };
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
        rows.push([code(name.trim()), help]);
    }
    if rows.is_empty() {
        String::new()
    } else {
        format!("\n{}", table(["argument", "meaning"], rows))
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

fn sidecar_text() -> String {
    let grants = grants::KINDS.into_iter().flat_map(|kind| kind.reference());
    keys_table(grants.chain(program::keys()))
}

fn keys_table(keys: impl IntoIterator<Item = KeyHelp>) -> String {
    let rows = keys.into_iter().map(|help| {
        let default = help.default.as_deref().map(code).unwrap_or_default();
        let bounds = help.bounds.unwrap_or_default();
        [code(&help.key), help.kind, default, bounds, help.meaning]
    });
    let headings = ["key", "type", "default", "bounds", "meaning"];
    format!("\n{}\n", table(headings, rows))
}

fn events_text() -> String {
    let kinds = words_of::<EventKind>().into_iter();
    let rows = kinds.map(|(word, meaning)| [code(&word), meaning]);
    format!("\n{}\n", table(["kind", "recorded when"], rows))
}

fn words_of<T: JsonSchema>() -> Vec<(String, String)> {
    words(T::json_schema(&mut SchemaGenerator::default()).as_value())
}

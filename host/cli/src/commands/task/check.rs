//! `campanile task check`: what a file imports, asks for and is granted, and whether its task may be run twice.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::slice;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};

use super::replies::Script;
use super::{Given, Opened, io_failure, of, print_refused, tell_unanswered};
use crate::Common;
use crate::config::Config;
use crate::output::{self, Failure};
use campanile_model::text::printable;
use campanile_package::grant_record::{self, GrantRecord};
use campanile_package::requests::{Request, denial};
use campanile_trial::{self, EFFECTS_CRASHED, Idempotence, Stage};

#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    given: Given,
    /// What granted HTTP requests are answered: a JSON file with a list of
    /// {"request": "POST https://host/path", "status": 200, "headers": {}, "body": …} [default: 200 and nothing]
    #[arg(long, value_name = "FILE")]
    replies: Option<PathBuf>,
    /// At how many effects the task is crashed: each costs four calls
    #[arg(long, value_name = "N", default_value_t = EFFECTS_CRASHED, value_parser = effects)]
    effects: usize,
    /// Only tell, and do not call the task
    #[arg(long, conflicts_with = "idempotent")]
    no_call: bool,
    /// Only crash the task, and tell where it is not idempotent
    #[arg(long)]
    idempotent: bool,
}

impl Check {
    pub(super) async fn run(self, common: &Common, config: &Config) -> Result<ExitCode, Failure> {
        let replies = match &self.replies {
            Some(path) => Script::read(path)?,
            None => Script::default(),
        };
        let replies = Arc::new(replies);
        let opened = match self.given.open(config).await? {
            Ok(opened) => opened,
            Err(refused) => return print_refused(common, &self.given.file, refused),
        };
        let stage = match self.given.stage(&opened.package, config).await? {
            Ok(stage) => Stage {
                replies: Some(Arc::clone(&replies) as Arc<dyn campanile_sandbox::Replies>),
                ..stage
            },
            Err(error) => return Err(Failure::failed(error.to_string())),
        };
        let subject = opened.subject();
        let missing = subject.missing(&stage);
        let imports = imports(&self.given.file)?;
        let found = match self.no_call || !missing.is_empty() {
            true => None,
            false => {
                let Opened { sandbox, clock, .. } = &opened;
                let check = campanile_trial::check(sandbox, &subject, &stage, clock, self.effects);
                Some(check.await.map_err(io_failure)?)
            }
        };
        let told = Told {
            opened: &opened,
            imports: &imports,
            missing: &missing,
            found: found.as_ref(),
            unanswered: &replies.unanswered(&stage.secrets),
            is_called: !self.no_call,
        };
        match (common.json, self.idempotent) {
            (true, _) => output::json_out(&told.value())?,
            (false, true) => told.crashes()?,
            (false, false) => {
                told.surface()?;
                told.crashes()?;
            }
        }
        let holds = found.as_ref().is_none_or(Idempotence::holds);
        Ok(match holds && (missing.is_empty() || self.no_call) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

fn effects(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("must be a whole number of at least 1".to_owned()),
        Ok(effects) => Ok(effects),
    }
}

/// The interfaces that the file imports.
fn imports(file: &Path) -> Result<Vec<String>, Failure> {
    let unread = |error: String| Failure::failed(format!("{}: {error}", file.display()));
    let bytes = std::fs::read(file).map_err(|error| unread(error.to_string()))?;
    let imports =
        campanile_sandbox::imports_of(&bytes).map_err(|refusal| unread(refusal.to_string()))?;
    Ok(imports.into_iter().collect())
}

/// Everything that is told of a package.
struct Told<'a> {
    opened: &'a Opened,
    imports: &'a [String],
    missing: &'a [Request],
    found: Option<&'a Idempotence>,
    /// The requests that no reply was for.
    unanswered: &'a [String],
    is_called: bool,
}

impl Told<'_> {
    fn value(&self) -> Value {
        let package = &self.opened.package;
        json!({
            "package": of(package),
            "imports": self.imports,
            "granted": self.granted(),
            "missing": self.missing.iter().map(|one| denial(&package.name, slice::from_ref(one))).collect::<Vec<_>>(),
            "unanswered": self.unanswered,
            "idempotence": self.found.map(found_value),
        })
    }

    fn surface(&self) -> Result<(), Failure> {
        let package = &self.opened.package;
        let form = package.artifact.form;
        output::line(&format!(
            "package   {} {} ({form})",
            package.name,
            package.digest.short()
        ))?;
        section("imports", self.imports)?;
        section("granted", &self.granted())?;
        let needs: Vec<String> = self.missing.iter().map(Request::need).collect();
        section("missing", &needs)?;
        output::lines_to_add(&package.name, self.missing)
    }

    /// What the sidecar grants, one line each.
    fn granted(&self) -> Vec<String> {
        let grant_record = GrantRecord::of(&self.opened.package.sidecar.grants);
        grant_record.text.lines().map(grant_record::shown).collect()
    }

    fn crashes(&self) -> Result<(), Failure> {
        tell_unanswered(self.unanswered);
        match self.found {
            Some(found) => {
                if (1..found.undisturbed.effects.len()).contains(&found.tried) {
                    let all = found.undisturbed.effects.len();
                    output::talk(&format!(
                        "not crashed at {} effects; `--effects {all}` crashes it at all of them",
                        all - found.tried
                    ));
                }
                output::line(&printable(&found.to_string()))
            }
            None if !self.is_called => Ok(()),
            None => {
                output::talk("the task was not called: it would be denied for what is missing");
                Ok(())
            }
        }
    }
}

fn section(name: &str, lines: &[String]) -> Result<(), Failure> {
    if lines.is_empty() {
        return output::line(&format!("{name:9} nothing"));
    }
    for (place, line) in lines.iter().enumerate() {
        let name = if place == 0 { name } else { "" };
        let line = printable(line).replace('\n', "\n          ");
        output::line(&format!("{name:9} {line}"))?;
    }
    Ok(())
}

fn found_value(found: &Idempotence) -> Value {
    let differences = |differences: &[campanile_trial::Difference]| -> Vec<Value> {
        let one = |difference: &campanile_trial::Difference| {
            json!({
                "what": difference.what,
                "undisturbed": difference.undisturbed,
                "recovered": difference.recovered,
            })
        };
        differences.iter().map(one).collect()
    };
    let broken = found.broken.iter().map(|crashed| {
        json!({
            "effect": crashed.effect,
            "number": crashed.number,
            "moment": crashed.moment,
            "outcome": crashed.report.outcome,
            "differences": differences(&crashed.differences),
        })
    });
    let unreached = found.unreached.iter().map(|unreached| {
        json!({
            "effect": unreached.effect,
            "number": unreached.number,
            "moment": unreached.moment,
        })
    });
    let undisturbed = &found.undisturbed;
    json!({
        "holds": found.holds(),
        "tried": found.tried,
        "crashes": found.crashes,
        "effects": undisturbed.effects,
        "outcome": undisturbed.report.outcome,
        "failure": undisturbed.report.failure,
        "unlike": differences(&undisturbed.unlike),
        "broken": broken.collect::<Vec<_>>(),
        "unreached": unreached.collect::<Vec<_>>(),
    })
}

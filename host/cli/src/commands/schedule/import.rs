//! `campanile schedule import`: schedules out of a crontab, with a report of every line.

mod told;

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::Common;
use crate::crontab::{self, Entry, Line, Says};
use crate::output::{self, Failure};
use campanile_engine::schedule_admin::{self, ScheduleError, Wanted};
use campanile_model::clock::Timestamp;
use campanile_model::text::printable_line;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{HashKey, Rule, RuleError, RuleKind, RuleText};
use campanile_store::schedules::{self, Schedule};
use campanile_store::{Db, Origin, Tx};
use told::{Became, Told};

/// No crontab may be larger: it is carried over in one transaction.
const FILE_BYTES_MAX: u64 = 64 * 1024;

#[derive(Subcommand)]
pub(crate) enum Import {
    /// The entries of a crontab; exit code 1 when one of them could not be carried over
    Crontab(Crontab),
}

#[derive(Args)]
pub(crate) struct Crontab {
    /// The crontab, or - for standard input
    file: PathBuf,
    /// The package to launch [default: the one named like the program of the entry]
    #[arg(long)]
    package: Option<String>,
    /// It has a user before each command, as /etc/crontab
    #[arg(long)]
    system: bool,
    /// The time zone of entries without a CRON_TZ line before them [default: UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Report what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Import {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let Import::Crontab(crontab) = self;
        crontab.run(common).await
    }
}

impl Crontab {
    async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let file = self.file.display();
        let text = self
            .read()
            .map_err(|error| Failure::refused(format!("{file}: {error}")))?;
        let lines = crontab::read(&text, self.system);
        let is_entry = |line: &&Line| matches!(line.says, Says::Entry(_) | Says::Fault { .. });
        if lines.iter().find(is_entry).is_none() {
            return Err(Failure::refused(format!("{file}: there is no entry in it"))
                .hint("write minute, hour, day-of-month, month, day-of-week and a command"));
        }
        if let Some(zone) = &self.tz {
            // What is wrong in a crontab is told line by line; this is not in it.
            check_zone(zone)?;
        }
        let (db, clock) = common.open_with_clock().await?;
        let told = self.carry_over(&db, &lines, clock.now()).await?;
        self.report(&told, common.json)?;
        let refused = told.iter().any(|told| told.became == Became::Refused);
        Ok(ExitCode::from(u8::from(refused)))
    }

    fn read(&self) -> io::Result<String> {
        let input: Box<dyn io::Read> = match self.file == Path::new("-") {
            true => Box::new(io::stdin().lock()),
            false => Box::new(std::fs::File::open(&self.file)?),
        };
        let mut bytes = Vec::new();
        input.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let most = format!("it has more than {FILE_BYTES_MAX} bytes; import it in parts");
            return Err(io::Error::other(most));
        }
        String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|&&byte| byte == b'\n').count();
            io::Error::other(format!(
                "line {line} is not UTF-8 text; convert the file, for example with iconv"
            ))
        })
    }

    /// Make schedules of the entries, in one transaction; in a dry run, it is not committed.
    async fn carry_over(
        &self,
        db: &Db,
        lines: &[Line],
        now: Timestamp,
    ) -> Result<Vec<Told>, ScheduleError> {
        if self.dry_run {
            let mut tx = db.write().await?;
            return self.lines(&mut tx, lines, now).await;
        }
        schedule_admin::change(db, async |tx| self.lines(tx, lines, now).await).await
    }

    async fn lines(
        &self,
        tx: &mut Tx,
        lines: &[Line],
        now: Timestamp,
    ) -> Result<Vec<Told>, ScheduleError> {
        if let Some(package) = &self.package {
            schedule_admin::known_package(tx, package).await?;
        }
        let rows = schedules::list(tx, None, None).await?;
        let mut target = Target {
            taken: rows.iter().map(|row| row.definition.name.clone()).collect(),
            rows,
            now,
        };
        let mut all = Vec::with_capacity(lines.len());
        for line in lines {
            let told = match &line.says {
                Says::Entry(entry) => self.entry(tx, &mut target, entry).await?,
                Says::Zone(zone) => self.zone(zone.as_deref()),
                Says::Variable(name) => Told::variable(name),
                Says::Fault { message, hint } => Told {
                    error: Some((*message).to_owned()),
                    hint: Some((*hint).to_owned()),
                    ..Told::default()
                },
            };
            all.push(Told {
                line: line.number,
                ..told
            });
        }
        Ok(all)
    }

    fn zone<'a>(&'a self, zone: Option<&'a str>) -> Told {
        let zone = self.zone_or_default(zone);
        let told = Told {
            became: Became::Zone,
            timezone: Some(zone.to_owned()),
            ..Told::default()
        };
        match check_zone(zone) {
            Ok(()) => told,
            Err(error) => Told {
                became: Became::Refused,
                error: Some(error.to_string()),
                hint: Some(error.hint().to_owned()),
                ..told
            },
        }
    }

    fn zone_or_default<'a>(&'a self, zone: Option<&'a str>) -> &'a str {
        zone.or(self.tz.as_deref()).unwrap_or("UTC")
    }

    async fn entry(
        &self,
        tx: &mut Tx,
        target: &mut Target,
        entry: &Entry,
    ) -> Result<Told, ScheduleError> {
        let zone = self.zone_or_default(entry.zone.as_deref());
        let rule = RuleText::new(RuleKind::Cron, &entry.expression, zone);
        let told = Told {
            expression: Some(entry.expression.clone()),
            timezone: Some(zone.to_owned()),
            command: Some(entry.command.clone()),
            notes: self.notes(entry),
            ..Told::default()
        };
        let package = match &self.package {
            Some(package) => package.clone(),
            None => entry.name(),
        };
        let context = Map::from_iter([("command".to_owned(), json!(entry.command))]);
        let wanted = Wanted {
            name: entry.name(),
            package,
            task: None,
            rule,
            policies: Policies::default(),
            context,
        };
        match target.put(tx, wanted).await {
            Ok(put) => Ok(Told {
                became: put.became,
                schedule: Some(put.name),
                package: Some(put.package),
                next_slot: put.next_slot,
                notes: told.notes.into_iter().chain(put.notes).collect(),
                ..told
            }),
            Err(ScheduleError::Db(error)) => Err(error.into()),
            Err(error) => Ok(Told {
                hint: hint(&error),
                error: Some(error.to_string()),
                ..told
            }),
        }
    }

    /// What of an entry is not carried over.
    fn notes(&self, entry: &Entry) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(user) = &entry.user {
            notes.push(format!("the user {user} is left out: tasks have none"));
        }
        if !self.system && entry.command.split_ascii_whitespace().next() == Some("root") {
            notes.push("if `root` is the user, import it with --system".to_owned());
        }
        if entry.has_input {
            notes.push("what follows `%`, standard input for the command, is left out".to_owned());
        }
        if entry.unlogged {
            notes.push("the `-` before it is left out: every launch is on the record".to_owned());
        }
        notes
    }

    fn report(&self, told: &[Told], as_json: bool) -> Result<(), Failure> {
        let count = |became| told.iter().filter(|told| told.became == became).count();
        let (added, exist) = (count(Became::Added), count(Became::Exists));
        let refused = count(Became::Refused);
        if as_json {
            return output::json_out(&json!({
                "dry_run": self.dry_run,
                "added": added,
                "exist": exist,
                "refused": refused,
                "lines": told,
            }));
        }
        for told in told {
            let text = printable_line(&told.text(self.dry_run));
            output::line(&format!("line {}: {text}", told.line))?;
        }
        let would = if self.dry_run { "would be " } else { "" };
        output::talk(&format!(
            "{added} {would}added, {exist} there already, {refused} not carried over"
        ));
        self.talk_of_zones(told);
        Ok(())
    }

    /// That cron reads times in a zone which the file does not name.
    fn talk_of_zones(&self, told: &[Told]) {
        let unnamed = told
            .iter()
            .take_while(|told| told.became != Became::Zone)
            .any(|told| matches!(told.became, Became::Added | Became::Exists));
        if self.tz.is_none() && unnamed {
            output::talk(
                "times are read in UTC, where cron has the zone of its machine; choose with --tz",
            );
        }
    }
}

/// What to do about an entry that could not be carried over.
/// Refuse a time zone that is none, by way of any rule in it.
fn check_zone(zone: &str) -> Result<(), RuleError> {
    let daily = RuleText::new(RuleKind::Cron, "@daily", zone);
    Rule::parse(&daily, HashKey::NONE).map(drop)
}

fn hint(error: &ScheduleError) -> Option<String> {
    match error {
        ScheduleError::Rule(error) => Some(error.hint().to_owned()),
        ScheduleError::Policy(error) => Some(error.hint().to_owned()),
        ScheduleError::UnknownPackage { name, .. } => Some(format!(
            "put {name}.wasm into the plugin folder, or name a package with --package"
        )),
        _ => None,
    }
    .filter(|hint| !hint.is_empty())
}

/// The schedules that are there.
struct Target {
    /// Those from before, without those that an entry was found to be.
    rows: Vec<Schedule>,
    taken: BTreeSet<String>,
    now: Timestamp,
}

/// A schedule that an entry became.
struct Put {
    became: Became,
    name: String,
    package: String,
    next_slot: Option<Timestamp>,
    notes: Vec<String>,
}

impl Target {
    /// Add the schedule, under its name or that with a number, unless it is there.
    async fn put(&mut self, tx: &mut Tx, wanted: Wanted) -> Result<Put, ScheduleError> {
        let rule = Rule::parse(&wanted.rule, HashKey::NONE)?;
        let notes = rule.notes().to_vec();
        if let Some(place) = self.rows.iter().position(|row| is(row, &wanted)) {
            let row = self.rows.swap_remove(place);
            return Ok(Put {
                became: Became::Exists,
                name: row.definition.name,
                package: row.definition.package,
                next_slot: row.state.next_slot,
                notes,
            });
        }
        let wanted = Wanted {
            name: self.free_name(&wanted.name),
            ..wanted
        };
        schedule_admin::add(tx, &wanted, Origin::Operator, self.now).await?;
        self.taken.insert(wanted.name.clone());
        let row = schedule_admin::find(tx, &wanted.name).await?;
        Ok(Put {
            became: Became::Added,
            name: wanted.name,
            package: wanted.package,
            next_slot: row.state.next_slot,
            notes,
        })
    }

    fn free_name(&self, name: &str) -> String {
        let numbered = (2..).map(|number: usize| format!("{name}-{number}"));
        std::iter::once(name.to_owned())
            .chain(numbered)
            .find(|name| !self.taken.contains(name))
            .unwrap_or_default()
    }
}

/// Whether a schedule says what is wanted, whatever its name is.
fn is(row: &Schedule, wanted: &Wanted) -> bool {
    let context = || serde_json::from_str::<Value>(&row.definition.context).ok();
    row.definition.rule == wanted.rule
        && row.definition.package == wanted.package
        && row.definition.task == wanted.task
        && context().is_some_and(|context| context.as_object() == Some(&wanted.context))
}

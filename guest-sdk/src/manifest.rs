//! What a package says of itself: the JSON that `describe` returns, whose schema is `wit/manifest.schema.json`.

use serde::Serialize;
use serde_json::Value;

use crate::package::TaskManifest;

#[derive(Default, Serialize)]
pub(crate) struct Manifest {
    pub name: String,
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    pub tasks: Vec<TaskManifest>,
    pub schedules: Vec<Schedule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_schema: Option<Value>,
    pub requests: Requests,
}

/// A schedule that a package proposes: when it wants to be launched, and with what context.
///
/// ```
/// use campanile_sdk::Schedule;
/// use serde_json::json;
///
/// Schedule::cron("0 2 * * *").timezone("Europe/Rome").name("nightly");
/// Schedule::every("10s");
/// Schedule::at("2027-01-01T00:00:00Z").context(json!({"greeting": "Happy new year"}));
/// Schedule::after_completion("10m");
/// Schedule::cron("30 2 13 * FRI").day_match("and").exclude(["12-25", "2026-12-24..2027-01-01"]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[must_use]
pub struct Schedule {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(flatten)]
    rule: Rule,
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anchor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    day_match: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dst_gap: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dst_fold: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exclude: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Rule {
    Cron(String),
    Every(String),
    At(String),
    AfterCompletion(String),
}

impl Schedule {
    /// By a cron expression of 5 fields, or 6 with seconds first.
    pub fn cron(expression: impl Into<String>) -> Schedule {
        Schedule::by(Rule::Cron(expression.into()))
    }

    /// Again and again, this far apart: a number with a unit, such as `10s`, `15m`, `1d`.
    pub fn every(interval: impl Into<String>) -> Schedule {
        Schedule::by(Rule::Every(interval.into()))
    }

    /// Once, at an RFC 3339 time.
    pub fn at(time: impl Into<String>) -> Schedule {
        Schedule::by(Rule::At(time.into()))
    }

    /// Again and again, each launch this long after the one before has ended: `10m`.
    pub fn after_completion(pause: impl Into<String>) -> Schedule {
        Schedule::by(Rule::AfterCompletion(pause.into()))
    }

    fn by(rule: Rule) -> Schedule {
        Schedule {
            name: None,
            task: None,
            rule,
            timezone: None,
            anchor: None,
            day_match: None,
            dst_gap: None,
            dst_fold: None,
            exclude: Vec::new(),
            context: None,
        }
    }

    /// A name of its own. Without one it has the package's, numbered if there are several.
    pub fn name(mut self, name: impl Into<String>) -> Schedule {
        self.name = Some(name.into());
        self
    }

    /// Launch this one task and those it depends on, rather than the whole package.
    pub fn task(mut self, task: impl Into<String>) -> Schedule {
        self.task = Some(task.into());
        self
    }

    /// The IANA zone in which a cron expression is meant. UTC if not said, never the machine's own.
    pub fn timezone(mut self, zone: impl Into<String>) -> Schedule {
        self.timezone = Some(zone.into());
        self
    }

    /// Where the grid of [`Schedule::every`] begins, as RFC 3339.
    pub fn anchor(mut self, anchor: impl Into<String>) -> Schedule {
        self.anchor = Some(anchor.into());
        self
    }

    /// Which days match when a cron expression restricts both day fields: `or`, as in every cron, or `and`.
    pub fn day_match(mut self, days: impl Into<String>) -> Schedule {
        self.day_match = Some(days.into());
        self
    }

    /// What becomes of a time of day that the clock leaves out: `shift` to the end of the gap, the default, or `skip`.
    pub fn dst_gap(mut self, choice: impl Into<String>) -> Schedule {
        self.dst_gap = Some(choice.into());
        self
    }

    /// In which pass a time of day fires that the clock shows twice: the `first`, the default, the `second` or `both`.
    pub fn dst_fold(mut self, choice: impl Into<String>) -> Schedule {
        self.dst_fold = Some(choice.into());
        self
    }

    /// Local times that are left out: dates (`2026-12-25`), dates of every year (`12-25`), ranges of days
    /// (`2026-12-24..2027-01-01`), or cron expressions of 5 fields.
    pub fn exclude<I: Into<String>>(mut self, times: impl IntoIterator<Item = I>) -> Schedule {
        self.exclude.extend(times.into_iter().map(Into::into));
        self
    }

    /// The context of its launches: a JSON object.
    pub fn context(mut self, context: impl Into<Value>) -> Schedule {
        self.context = Some(context.into());
        self
    }
}

/// Something that a package cannot work without. It grants nothing: only the operator does.
///
/// ```
/// use campanile_sdk::{Package, Request};
///
/// Package::new("backup", "0.1.0")
///     .request(Request::read_directory("/source").because("what is backed up"))
///     .request(Request::write_directory("/snapshots").because("where the snapshots go"))
///     .request(Request::http("https", "api.example.com"))
///     .request(Request::env("REGION"))
///     .request(Request::config("token"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Request(Wanted);

#[derive(Clone, Debug, PartialEq)]
enum Wanted {
    Directory(DirectoryRequest),
    Env(String),
    Http(HttpRequest),
    Config(String),
}

impl Request {
    /// To read a directory, which the task sees at the absolute path `guest`.
    pub fn read_directory(guest: impl Into<String>) -> Request {
        Request::directory(guest.into(), Access::Read)
    }

    /// To read and write a directory, which the task sees at the absolute path `guest`.
    pub fn write_directory(guest: impl Into<String>) -> Request {
        Request::directory(guest.into(), Access::Write)
    }

    fn directory(guest: String, access: Access) -> Request {
        Request(Wanted::Directory(DirectoryRequest {
            guest,
            access,
            reason: None,
        }))
    }

    /// To read an environment variable.
    pub fn env(name: impl Into<String>) -> Request {
        Request(Wanted::Env(name.into()))
    }

    /// To send requests to `host`; `scheme` is `http` or `https`.
    pub fn http(scheme: impl Into<String>, host: impl Into<String>) -> Request {
        Request(Wanted::Http(HttpRequest {
            scheme: scheme.into(),
            host: host.into(),
            reason: None,
        }))
    }

    /// To read a key with [`Run::config`](crate::Run::config).
    pub fn config(key: impl Into<String>) -> Request {
        Request(Wanted::Config(key.into()))
    }

    /// Why, in a few words for the operator. Kept for directories and HTTP hosts; a variable's or key's name speaks for itself.
    pub fn because(mut self, reason: impl Into<String>) -> Request {
        match &mut self.0 {
            Wanted::Directory(directory) => directory.reason = Some(reason.into()),
            Wanted::Http(http) => http.reason = Some(reason.into()),
            Wanted::Env(_) | Wanted::Config(_) => {}
        }
        self
    }
}

#[derive(Default, Serialize)]
pub(crate) struct Requests {
    directories: Vec<DirectoryRequest>,
    env: Vec<String>,
    http: Vec<HttpRequest>,
    config: Vec<String>,
}

impl Requests {
    pub(crate) fn add(&mut self, request: Request) {
        match request.0 {
            Wanted::Directory(directory) => self.directories.push(directory),
            Wanted::Env(name) => self.env.push(name),
            Wanted::Http(http) => self.http.push(http),
            Wanted::Config(key) => self.config.push(key),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct DirectoryRequest {
    guest: String,
    access: Access,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Access {
    Read,
    Write,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct HttpRequest {
    scheme: String,
    host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

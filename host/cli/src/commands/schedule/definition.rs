//! The options that define a schedule: `schedule add` and `schedule edit` have the same ones.

use campanile_model::json_text::JsonObject;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::read_context;
use crate::commands::rule::{RuleOptions, RuleTimes};
use crate::output::{Result, refused};
use crate::times::TypedTime;
use campanile_control::admin::schedule_admin::ScheduleDefinition;
use campanile_schedule::policy::{Coefficient, Policies, Policy, ValueKind};
use campanile_schedule::rule::RuleKind;

#[derive(Args, Default, PartialEq)]
pub(crate) struct DefinitionOptions {
    /// The package to launch: its file name without .wasm
    #[arg(long)]
    package: Option<String>,
    /// Run only this task and the tasks it depends on
    #[arg(long)]
    task: Option<String>,
    /// Five fields (minute hour day-of-month month day-of-week), six with seconds first, or @daily etc.
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    #[command(flatten)]
    rule: RuleOptions,
    /// An argument of the program, in place of those of the sidecar; repeat it for more. `{{ context.KEY }}` stands for a
    /// value of the context
    #[arg(long = "arg", value_name = "TEXT", allow_hyphen_values = true)]
    args: Vec<String>,
    /// The context of the tasks: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    context: Option<String>,
    #[command(flatten)]
    policies: PolicyOptions,
}

/// The options of all policies, read as text. [`Policies::set`] parses them, as it does in files.
#[derive(Default, PartialEq)]
struct PolicyOptions(Vec<(Policy, String)>);

/// The options with their context and policies parsed: the parts of a schedule to set.
pub(crate) struct Changes {
    options: DefinitionOptions,
    times: RuleTimes,
    context: Option<JsonObject>,
    policies: Policies,
    /// The policies to set. One option can set two.
    given: Vec<Policy>,
}

/// Returns the option of a policy, from its entry in the table of policies.
fn option(policy: Policy) -> Arg {
    let spec = policy.spec();
    let (value_name, values) = match spec.kind {
        ValueKind::Word(words) => ("WORD", format!(": {}", words.join(", "))),
        ValueKind::Duration(example) => ("SPAN", format!(", such as {example}")),
        ValueKind::Number(0, most) => ("N", format!(", 0 to {most}")),
        ValueKind::Number(..) => ("N", String::new()),
        ValueKind::Coefficient => {
            let (least, most) = (Coefficient::LEAST, Coefficient::MOST);
            ("N", format!(", {least} to {most}, such as 1.5"))
        }
        ValueKind::FailureKinds(words) => ("KINDS", format!(", of {}", words.join(","))),
        ValueKind::Labels => ("LABELS", ", separated by commas".to_owned()),
        ValueKind::Group => ("NAME", String::new()),
        ValueKind::Instant => (
            "TIME",
            ", such as 2027-01-31T08:00:00Z or 2027-01-31".to_owned(),
        ),
    };
    let needs = spec
        .needs
        .map(|(other, words)| format!(", with --{} {}", other.flag(), words.join(" or ")));
    let needs = needs.unwrap_or_default();
    let mut arg = Arg::new(policy.as_str());
    if is_instant(policy) {
        arg = arg.value_parser(|text: &str| text.parse::<TypedTime>().map(|_| text.to_owned()));
    }
    arg.long(policy.flag())
        .value_name(value_name)
        .help(format!("{}{needs}{values}", spec.meaning))
        .help_heading("Policies")
}

impl Args for PolicyOptions {
    fn augment_args(command: Command) -> Command {
        command.args(Policy::ALL.iter().map(|&policy| option(policy)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        PolicyOptions::augment_args(command)
    }
}

impl FromArgMatches for PolicyOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<PolicyOptions, clap::Error> {
        let given = Policy::ALL.iter().filter_map(|&policy| {
            let text = matches.get_one::<String>(policy.as_str())?;
            Some((policy, text.clone()))
        });
        Ok(PolicyOptions(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = PolicyOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

impl DefinitionOptions {
    /// Returns whether a time differs from zone to zone, and no zone is given.
    pub(crate) fn lacks_zone(&self) -> bool {
        let instants = self
            .policies
            .0
            .iter()
            .filter(|(policy, _)| is_instant(*policy));
        let typed = instants.filter_map(|(_, text)| text.parse::<TypedTime>().ok());
        let mut typed = typed.chain(self.rule.typed_times());
        self.rule.zone().is_none() && typed.any(TypedTime::needs_zone)
    }

    /// Parse the options. Times without an offset are on the clock of `--tz`, or of `zone`.
    pub(crate) fn parse(self, zone: &str) -> Result<Changes> {
        let zone = self.rule.zone().unwrap_or(zone);
        let times = self.rule.times(zone)?;
        let context = read_context(self.context.as_deref())?;
        let mut policies = Policies::default();
        let mut given = Vec::new();
        for (policy, text) in &self.policies.0 {
            let refused = |fault| refused!("--{} {fault}", policy.flag());
            let set = if is_instant(*policy) {
                let time = text.parse::<TypedTime>();
                let time = time.map_err(|fault| refused(format!("is wrong: {fault}")))?;
                policies.set(*policy, &time.in_zone(zone)?.to_string())
            } else {
                policies.set(*policy, text)
            };
            set.map_err(refused)?;
            given.push(*policy);
        }
        given.extend(policies.entries().map(|(policy, _)| policy));
        Ok(Changes {
            options: self,
            times,
            context,
            policies,
            given,
        })
    }
}

fn is_instant(policy: Policy) -> bool {
    matches!(policy.spec().kind, ValueKind::Instant)
}

/// Returns the keys of clearable parts: the policies and a few others.
pub(crate) fn clearable() -> impl Iterator<Item = &'static str> {
    let policies = Policy::ALL.iter().map(|policy| policy.as_str());
    policies.chain(["task", "anchor", "exclude", "args", "context"])
}

/// Clear the part of a schedule that has the key.
pub(crate) fn clear(key: &str, wanted: &mut ScheduleDefinition) {
    match key {
        "task" => wanted.task = None,
        "anchor" => wanted.rule.anchor = None,
        "exclude" => wanted.rule.exclude.clear(),
        "args" => wanted.args = None,
        "context" => wanted.context.clear(),
        policy => {
            if let Ok(policy) = policy.parse() {
                wanted.policies.copy(policy, &Policies::default());
            }
        }
    }
}

impl Changes {
    /// Returns whether the part of that key is set.
    pub(crate) fn sets(&self, key: &str) -> bool {
        match key {
            "task" => self.options.task.is_some(),
            "anchor" => self.options.rule.anchor.is_some(),
            "exclude" => !self.options.rule.exclude.is_empty(),
            "args" => !self.options.args.is_empty(),
            "context" => self.context.is_some(),
            policy => self.given.iter().any(|given| given.as_str() == policy),
        }
    }

    /// Returns whether nothing is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.options == DefinitionOptions::default()
    }

    /// Set the parts in `wanted`. The others stay.
    pub(crate) fn apply_to(&self, wanted: &mut ScheduleDefinition) {
        if let Some(package) = &self.options.package {
            wanted.package.clone_from(package);
        }
        if self.options.task.is_some() {
            wanted.task.clone_from(&self.options.task);
        }
        let (cron, rule) = (self.options.cron.as_deref(), &self.options.rule);
        if let Some((kind, expression)) = rule.expression(cron, &self.times) {
            if kind != RuleKind::Every {
                wanted.rule.anchor = None;
            }
            wanted.rule.kind = kind;
            expression.clone_into(&mut wanted.rule.expression);
        }
        rule.apply_to(&self.times, &mut wanted.rule);
        for &policy in &self.given {
            wanted.policies.copy(policy, &self.policies);
        }
        if !self.options.args.is_empty() {
            wanted.args = Some(self.options.args.clone());
        }
        if let Some(context) = &self.context {
            wanted.context.clone_from(context);
        }
    }
}

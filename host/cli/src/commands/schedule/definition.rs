//! The options that define a schedule: `schedule add` and `schedule edit` have the same ones.

use clap::Args;
use serde_json::{Map, Value};

use super::read_context;
use crate::commands::policy::{GivenPolicies, PolicyOptions};
use crate::commands::rule::RuleOptions;
use crate::output::Result;
use campanile_engine::schedule_admin::ScheduleDefinition;
use campanile_schedule::policy::Policy;
use campanile_schedule::rule::RuleKind;

#[derive(Args)]
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
    /// The context of the tasks: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    context: Option<String>,
    #[command(flatten)]
    policies: PolicyOptions,
}

/// The parsed options: the parts of a schedule to set.
pub(crate) struct Changes {
    package: Option<String>,
    task: Option<String>,
    expression: Option<(RuleKind, String)>,
    rule: RuleOptions,
    context: Option<Map<String, Value>>,
    policies: GivenPolicies,
}

impl DefinitionOptions {
    pub(crate) fn parse(self) -> Result<Changes> {
        Ok(Changes {
            package: self.package,
            task: self.task,
            expression: self.rule.expression(self.cron),
            rule: self.rule,
            context: read_context(self.context.as_deref())?,
            policies: self.policies.parse()?,
        })
    }
}

/// Return the keys of the parts that can be cleared: the policies, and some others.
pub(crate) fn clearable() -> impl Iterator<Item = &'static str> {
    let policies = Policy::ALL.iter().map(|policy| policy.as_str());
    policies.chain(["task", "anchor", "exclude", "context"])
}

/// Clear the part of a schedule that has the key.
pub(crate) fn clear(key: &str, wanted: &mut ScheduleDefinition) {
    match key {
        "task" => wanted.task = None,
        "anchor" => wanted.rule.anchor = None,
        "exclude" => wanted.rule.exclude.clear(),
        "context" => wanted.context.clear(),
        policy => {
            if let Ok(policy) = policy.parse() {
                wanted.policies.clear(policy);
            }
        }
    }
}

impl Changes {
    /// Return whether the part of that key is set.
    pub(crate) fn sets(&self, key: &str) -> bool {
        match key {
            "task" => self.task.is_some(),
            "anchor" => self.rule.anchor.is_some(),
            "exclude" => !self.rule.exclude.is_empty(),
            "context" => self.context.is_some(),
            policy => self
                .policies
                .given
                .iter()
                .any(|given| given.as_str() == policy),
        }
    }

    /// Return whether nothing is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.package.is_none()
            && self.expression.is_none()
            && !self.rule.has_choices()
            && !clearable().any(|key| self.sets(key))
    }

    pub(crate) fn apply_to(&self, wanted: &mut ScheduleDefinition) {
        if let Some(package) = &self.package {
            wanted.package.clone_from(package);
        }
        if self.task.is_some() {
            wanted.task.clone_from(&self.task);
        }
        if let Some((kind, expression)) = &self.expression {
            if *kind != RuleKind::Every {
                wanted.rule.anchor = None;
            }
            wanted.rule.kind = *kind;
            wanted.rule.expression.clone_from(expression);
        }
        self.rule.apply_to(&mut wanted.rule);
        self.policies.apply_to(&mut wanted.policies);
        if let Some(context) = &self.context {
            wanted.context.clone_from(context);
        }
    }
}

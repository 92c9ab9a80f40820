//! A rule of time as the command line says it: the same options wherever one is given.

use clap::{ArgGroup, Args};

use crate::output::{self, Failure};
use campanile_model::clock::{Clock, Timestamp};
use campanile_package::spec::TIMEZONE_DEFAULT;
use campanile_schedule::rule::{DayMatch, DstFold, DstGap, HashKey, Rule, RuleKind, RuleText};

const SECOND_US: i64 = 1_000_000;

/// What says a rule besides a cron expression.
#[derive(Args)]
pub(crate) struct RuleOptions {
    /// A period: 10s, 15m, 2h, 1d, 1w, 1mo, 1y
    #[arg(long, value_name = "PERIOD")]
    every: Option<String>,
    /// One instant, such as 2026-11-21T08:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// The pause between the end of a launch and the next: 10m
    #[arg(long, value_name = "PERIOD")]
    after_completion: Option<String>,
    /// The instant from which periods are counted
    #[arg(long, value_name = "TIME")]
    anchor: Option<Timestamp>,
    /// The time zone whose clock the rule follows, such as Europe/Paris [default: UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Which days match when both day fields are restricted: or, and
    #[arg(long, value_name = "WORD", value_parser = DayMatch::read)]
    day_match: Option<DayMatch>,
    /// What becomes of a time of day that the clock leaves out: shift, skip
    #[arg(long, value_name = "WORD", value_parser = DstGap::read)]
    dst_gap: Option<DstGap>,
    /// In which pass a time of day fires that the clock shows twice: first, second, both
    #[arg(long, value_name = "WORD", value_parser = DstFold::read)]
    dst_fold: Option<DstFold>,
    /// Local times left out, such as 2026-12-25, 12-25, 2026-12-24..2027-01-01 or "* 12 * * *"; may be given again
    #[arg(long, value_name = "TIMES")]
    exclude: Vec<String>,
}

impl RuleOptions {
    /// The rule, which is `cron` if that is given.
    pub(crate) fn rule(self, cron: Option<String>) -> Result<RuleText, Failure> {
        let Some((kind, expression)) = self.expression(cron)? else {
            return Err(Failure::refused("exactly one rule is needed"));
        };
        let mut text = RuleText::new(kind, expression, TIMEZONE_DEFAULT);
        self.rest_over(&mut text);
        Ok(text)
    }

    /// The kind of rule that is given, if one is, and its text.
    pub(crate) fn expression(
        &self,
        cron: Option<String>,
    ) -> Result<Option<(RuleKind, String)>, Failure> {
        let rules = [
            (RuleKind::Cron, cron),
            (RuleKind::Every, self.every.clone()),
            (RuleKind::At, self.at.clone()),
            (RuleKind::AfterCompletion, self.after_completion.clone()),
        ];
        let mut rules = rules
            .into_iter()
            .filter_map(|(kind, text)| Some((kind, text?)));
        match (rules.next(), rules.next()) {
            (_, Some(_)) => Err(Failure::refused("exactly one rule is needed")),
            (rule, None) => Ok(rule),
        }
    }

    pub(crate) fn has_anchor(&self) -> bool {
        self.anchor.is_some()
    }

    pub(crate) fn has_exclusions(&self) -> bool {
        !self.exclude.is_empty()
    }

    /// Whether anything is given besides the expression.
    pub(crate) fn has_rest(&self) -> bool {
        let choices = [
            self.tz.is_some(),
            self.day_match.is_some(),
            self.dst_gap.is_some(),
            self.dst_fold.is_some(),
        ];
        self.has_anchor() || self.has_exclusions() || choices.contains(&true)
    }

    /// Make `text` say what is given besides the expression; the rest of it stays.
    pub(crate) fn rest_over(&self, text: &mut RuleText) {
        text.anchor = self.anchor.or(text.anchor);
        if let Some(zone) = &self.tz {
            text.timezone.clone_from(zone);
        }
        text.day_match = self.day_match.unwrap_or(text.day_match);
        text.dst_gap = self.dst_gap.unwrap_or(text.dst_gap);
        text.dst_fold = self.dst_fold.unwrap_or(text.dst_fold);
        if !self.exclude.is_empty() {
            text.exclude.clone_from(&self.exclude);
        }
    }
}

/// A rule that belongs to no schedule.
#[derive(Args)]
#[command(group = ArgGroup::new("rule").required(true).args(["expression", "every", "at", "after_completion"]))]
pub(crate) struct OwnRule {
    /// In quotes: five fields, minute hour day-of-month month day-of-week, or six with seconds first, or @daily and the like
    expression: Option<String>,
    #[command(flatten)]
    options: RuleOptions,
    /// Show slots after this instant [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
}

/// How the arguments of a command with an [`OwnRule`] are shown.
macro_rules! own_rule_usage {
    ($command:literal) => {
        concat!(
            "campanile cron ",
            $command,
            " [OPTIONS] <EXPRESSION>\n       campanile cron ",
            $command,
            " [OPTIONS] <--every <PERIOD>|--at <TIME>|--after-completion <PERIOD>>"
        )
    };
}
pub(crate) use own_rule_usage;

/// A rule that was understood, with what was written.
pub(crate) struct Understood {
    pub text: RuleText,
    pub rule: Rule,
    /// Slots after this instant are asked for.
    pub from: Timestamp,
}

impl OwnRule {
    /// Read the rule; says so when hashed values are not those of any schedule.
    pub(crate) fn read(self) -> Result<Understood, Failure> {
        let text = self.options.rule(self.expression)?;
        let rule = Rule::parse(&text, HashKey::NONE)?;
        if is_hashed(&rule) {
            output::talk("hashed values differ for each schedule; `schedule next NAME` shows them");
        }
        // Slots are on whole seconds, so none is between this second and now.
        let this_second = || {
            let now = Clock::system().now().micros();
            Timestamp::from_micros(now - now.rem_euclid(SECOND_US))
        };
        Ok(Understood {
            text,
            rule,
            from: self.from.unwrap_or_else(this_second),
        })
    }
}

/// Whether some values of the rule are its schedule's own.
pub(crate) fn is_hashed(rule: &Rule) -> bool {
    rule.normal_form() != rule.resolved_form()
}

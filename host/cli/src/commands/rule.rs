//! The options that describe a rule. Every command that takes a rule has the same ones.

use std::time::Duration;

use clap::{ArgGroup, Args};

use crate::output::{self, Result};
use crate::times::TypedTime;
use campanile_control::records::schedule::{floor, is_hashed};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::time_text::GivenTime;
use campanile_package::spec::TIMEZONE_DEFAULT;
use campanile_schedule::rule::{DayMatch, DstFold, DstGap, HashKey, Rule, RuleKind, RuleText};

/// The options of a rule, except its cron expression.
#[derive(Args, Default, PartialEq)]
pub(crate) struct RuleOptions {
    /// A period: 10s, 15m, 2h, 1d, 1w, 1mo, 1y
    #[arg(long, value_name = "PERIOD")]
    every: Option<String>,
    /// One instant, such as 2026-11-21T08:00:00Z or, in the rule's time zone, "tomorrow 9:00"
    #[arg(long, value_name = "TIME")]
    at: Option<TypedTime>,
    /// The pause between the end of one launch and the start of the next, such as 10m
    #[arg(long, value_name = "PERIOD")]
    after_completion: Option<String>,
    /// The instant from which periods are counted, written as that of --at
    #[arg(long, value_name = "TIME")]
    pub anchor: Option<TypedTime>,
    /// The rule's time zone, such as Europe/Paris [default: UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Which days match when both day fields are restricted: or, and
    #[arg(long, value_name = "WORD", value_parser = DayMatch::read)]
    day_match: Option<DayMatch>,
    /// What to do with a local time that a clock change leaves out: shift, skip
    #[arg(long, value_name = "WORD", value_parser = DstGap::read)]
    dst_gap: Option<DstGap>,
    /// When to fire for a local time that occurs twice: first, second, both
    #[arg(long, value_name = "WORD", value_parser = DstFold::read)]
    dst_fold: Option<DstFold>,
    /// Local times to leave out, such as 2026-12-25, 12-25, 2026-12-24..2027-01-01 or "* 12 * * *"; can be repeated
    #[arg(long, value_name = "TIMES")]
    pub exclude: Vec<String>,
}

/// The times of [`RuleOptions`] as instants.
pub(crate) struct RuleTimes {
    at: Option<String>,
    anchor: Option<Timestamp>,
}

impl RuleOptions {
    /// Returns the given zone.
    pub(crate) fn zone(&self) -> Option<&str> {
        self.tz.as_deref()
    }

    /// Returns the times whose instants may differ from zone to zone.
    pub(crate) fn typed_times(&self) -> impl Iterator<Item = TypedTime> {
        [self.at, self.anchor].into_iter().flatten()
    }

    /// Returns the times as instants. Those without an offset are on the clock of `zone`.
    pub(crate) fn times(&self, zone: &str) -> Result<RuleTimes> {
        let at = self.at.map(|at| at.in_zone(zone)).transpose()?;
        Ok(RuleTimes {
            at: at.map(|at| at.to_string()),
            anchor: self.anchor.map(|at| at.in_zone(zone)).transpose()?,
        })
    }

    /// Returns the kind and the text of the rule, if one is given.
    pub(crate) fn expression<'a>(
        &'a self,
        cron: Option<&'a str>,
        times: &'a RuleTimes,
    ) -> Option<(RuleKind, &'a str)> {
        let rules = [
            (RuleKind::Cron, cron),
            (RuleKind::Every, self.every.as_deref()),
            (RuleKind::At, times.at.as_deref()),
            (RuleKind::AfterCompletion, self.after_completion.as_deref()),
        ];
        let mut given = rules.into_iter();
        given.find_map(|(kind, text)| Some((kind, text?)))
    }

    /// Copy the given options, except the expression, to `text`. A field without an option keeps its value.
    pub(crate) fn apply_to(&self, times: &RuleTimes, text: &mut RuleText) {
        text.anchor = times.anchor.or(text.anchor);
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
pub(crate) struct StandaloneRule {
    /// In quotes: five fields (minute hour day-of-month month day-of-week), six with seconds first, or @daily etc.
    expression: Option<String>,
    #[command(flatten)]
    options: RuleOptions,
    /// Show slots after this instant [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<GivenTime>,
}

/// Returns the usage lines of a command with a [`StandaloneRule`].
pub(crate) fn standalone_rule_usage(command: &str) -> String {
    format!(
        "campanile cron {command} [OPTIONS] <EXPRESSION>\n       \
         campanile cron {command} [OPTIONS] <--every <PERIOD>|--at <TIME>|--after-completion <PERIOD>>"
    )
}

/// A rule with the text that it was parsed from.
pub(crate) struct ParsedRule {
    pub text: RuleText,
    pub rule: Rule,
    /// The command asks for slots after this instant.
    pub from: Timestamp,
}

impl StandaloneRule {
    /// Parse the rule; print a note when it has hashed values, which differ for each schedule.
    pub(crate) fn parse(self) -> Result<ParsedRule> {
        let zone = self.options.zone().unwrap_or(TIMEZONE_DEFAULT);
        let times = self.options.times(zone)?;
        let given = self.options.expression(self.expression.as_deref(), &times);
        let (kind, expression) = given.unwrap_or((RuleKind::Cron, ""));
        let mut text = RuleText::new(kind, expression, TIMEZONE_DEFAULT);
        self.options.apply_to(&times, &mut text);
        let rule = Rule::parse(&text, HashKey::NONE)?;
        if is_hashed(&rule) {
            output::print_message(
                "hashed values differ for each schedule; `schedule next NAME` shows them",
            );
        }
        // Slots are on whole seconds, so none is between this second and now.
        let this_second = || floor(Clock::system().now(), Duration::from_secs(1));
        Ok(ParsedRule {
            text,
            rule,
            from: self.from.map_or_else(this_second, |from| from.0),
        })
    }
}

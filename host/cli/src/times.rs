//! Times as people type them. [`TimeText`] has the forms.

use std::str::FromStr;

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::time_text::TimeText;
use campanile_schedule::rule::{RuleError, instant_in_zone};

/// A time of an option that defines a rule. Without an offset, it is on the clock of the rule's zone.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct TypedTime(TimeText);

impl FromStr for TypedTime {
    type Err = String;

    fn from_str(text: &str) -> Result<TypedTime, String> {
        let time = text.parse().map(TypedTime);
        time.map_err(|error| format!("{error}: {}", TimeText::HINT))
    }
}

impl TypedTime {
    /// Returns whether its instant differs from zone to zone.
    pub(crate) fn needs_zone(self) -> bool {
        matches!(self.0, TimeText::Local(_))
    }

    /// Returns the instant on the clock of a zone.
    pub(crate) fn in_zone(self, zone: &str) -> Result<Timestamp, RuleError> {
        instant_in_zone(self.0, zone, Clock::system().now())
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use clap::{Arg, Command, CommandFactory as _};

    use crate::Cli;
    use campanile_model::time_text::{GivenTime, Moment};

    const FORMS: [&str; 8] = [
        "2099-01-01T08:00:00+02:00",
        "2099-01-01",
        "2099-01-01 08:00",
        "today",
        "yesterday 14:00",
        "tomorrow 9:00",
        "now+2h",
        "now-2h",
    ];

    /// Returns each option of a time, with the words of its command.
    fn time_options(command: &Command, words: &[String]) -> Vec<(Vec<String>, Arg)> {
        let mut found = Vec::new();
        for arg in command.get_arguments() {
            let names = arg.get_value_names().unwrap_or_default();
            if ["TIME", "TIME|SPAN", "SLOT"]
                .map(|name| names == [name])
                .contains(&true)
            {
                found.push((words.to_vec(), arg.clone()));
            }
        }
        for command in command.get_subcommands() {
            let words = [words, &[command.get_name().to_owned()]].concat();
            found.extend(time_options(command, &words));
        }
        found
    }

    /// Returns whether clap refuses the value of an option.
    fn is_refused(words: &[String], arg: &Arg, value: &str) -> bool {
        let mut words = words.to_vec();
        match arg.get_long() {
            Some(long) => words.push(format!("--{long}={value}")),
            // The only one without a flag follows the name of its schedule.
            None => words.extend(["name".to_owned(), value.to_owned()]),
        }
        let parsed = Cli::command().try_get_matches_from(words);
        parsed.is_err_and(|error| {
            let kind = error.kind();
            assert_ne!(kind, ErrorKind::UnknownArgument, "{error}");
            kind == ErrorKind::ValueValidation
        })
    }

    #[test]
    fn every_option_of_a_time_reads_the_same_forms() {
        let options = time_options(&Cli::command(), &["campanile".to_owned()]);
        assert!(options.len() > 30, "{}", options.len());
        for (words, arg) in options {
            for form in FORMS {
                assert!(!is_refused(&words, &arg, form), "{words:?} {arg} {form}");
            }
            // The command `why` parses its option later and prints another hint; tests/cli/why.rs tests that.
            let is_why = words.last().is_some_and(|word| word == "why");
            assert_eq!(is_refused(&words, &arg, "noon"), !is_why, "{words:?} {arg}");
        }
    }

    #[test]
    fn a_text_that_is_no_time_is_refused_with_examples() {
        let error = "14:00".parse::<GivenTime>().unwrap_err();
        assert_eq!(
            error,
            "`14:00` is not a time: write an RFC 3339 time such as 2026-11-21T08:00:00Z, or `2026-11-21`, \
             `2026-11-21 08:00`, `yesterday 14:00` or `now-2h`"
        );
        let error = "often".parse::<Moment>().unwrap_err();
        assert!(
            error.ends_with("or `now-2h`, or a span such as 2h"),
            "{error}"
        );
    }
}

//! `--watch`: run a command again and again, and redraw what it prints.

use std::time::{Duration, Instant};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches};

use crate::output::{ErrorCode, Failure, Result, Rounds};
use crate::signals::StopSignals;
use crate::{Command, Common};

/// The pause between two rounds, unless one is given.
pub(crate) const SECONDS: &str = "2";

/// The names of the arguments.
const WATCH: &str = "watch";
const ONCE: &str = "once";
const SECONDS_LEAST: f64 = 0.1;
const SECONDS_MOST: f64 = 86_400.0;

/// Returns the argument of repeatable commands.
pub(crate) fn arg() -> Arg {
    Arg::new(WATCH)
        .long(WATCH)
        .value_name("SECONDS")
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value(SECONDS)
        .value_parser(pause)
        .help("Repeat the command every 2 seconds, or as given, until Ctrl-C; with `--json` each answer on one line")
}

/// Returns the argument of a command that repeats by default.
pub(crate) fn once() -> Arg {
    Arg::new(ONCE)
        .long(ONCE)
        .action(ArgAction::SetTrue)
        .conflicts_with(WATCH)
        .help("Show it once")
}

fn pause(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let within = seconds.filter(|seconds| (SECONDS_LEAST..=SECONDS_MOST).contains(seconds));
    let pause = within.map(Duration::from_secs_f64);
    pause.ok_or_else(|| {
        format!("must be a number of seconds from {SECONDS_LEAST} to {SECONDS_MOST}, such as 5")
    })
}

/// Add to an error how to give the pause, if it was given after a space.
pub(crate) fn suggest(error: &mut clap::Error) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else {
        return;
    };
    let is_pause = error.kind() == ErrorKind::UnknownArgument && given.parse::<f64>().is_ok();
    if is_pause && std::env::args_os().any(|arg| arg == "--watch") {
        let tip = format!("to repeat it every {given} seconds, write '--watch={given}'");
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![tip.into()]),
        );
    }
}

/// Returns the pause between two rounds, if the command of `matches` is to be repeated.
pub(crate) fn interval(matches: &ArgMatches) -> Option<Duration> {
    let mut leaf = matches;
    while let Some((_, inner)) = leaf.subcommand() {
        leaf = inner;
    }
    let is_once = leaf.try_get_one(ONCE).ok().flatten() == Some(&true);
    let pause = leaf.try_get_one(WATCH).ok().flatten().copied();
    pause.filter(|_| !is_once)
}

/// Run `command`, and again after each `pause`, until Ctrl-C or until the reader of stdout has closed it.
///
/// # Errors
///
/// An error ends it, unless the database cannot be reached in a later round: the next round tries again.
pub(crate) async fn repeat(common: &Common, command: Command, pause: Duration) -> Result {
    let mut stop = StopSignals::listen()?;
    let mut rounds = Rounds::begin(pause, common.json);
    let mut command = command;
    let mut is_first = true;
    loop {
        let started = Instant::now();
        rounds.open();
        let done = tokio::select! {
            done = command.run(common) => done,
            () = stop.wait() => return Ok(()),
        };
        if let Err(failure) = done {
            let is_passing = failure.code == ErrorCode::Unavailable && !is_first;
            // The message is empty when the round has printed what it found, such as bad health.
            if !failure.message.is_empty() && !is_passing {
                return Err(failure);
            }
            failure.report(common.json);
        }
        if !rounds.show()? {
            return Ok(());
        }
        is_first = false;
        tokio::select! {
            () = tokio::time::sleep(pause.saturating_sub(started.elapsed())) => {}
            () = stop.wait() => return Ok(()),
        }
        command = again()?;
    }
}

/// Read the arguments again: a time such as `now-2h` means another instant in each round.
fn again() -> Result<Command> {
    let (cli, _) = crate::read_arguments().map_err(Failure::from)?;
    Ok(cli.command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory as _;

    fn interval_of(line: &str) -> Option<Duration> {
        let args = line.split(' ');
        let matches = Cli::command().try_get_matches_from(args);
        interval(&matches.unwrap_or_else(|error| panic!("{line}: {error}")))
    }

    #[test]
    fn a_command_is_repeated_as_often_as_asked() {
        for (line, expected) in [
            ("campanile health", None),
            ("campanile health --watch", Some(2_000)),
            ("campanile launch list --watch=0.5 --limit 3", Some(500)),
            ("campanile event list --watch --json", Some(2_000)),
            ("campanile top", Some(2_000)),
            ("campanile top --watch=5", Some(5_000)),
            ("campanile top --once", None),
            ("campanile serve", None),
        ] {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(interval_of(line), expected, "{line}");
        }
    }

    #[test]
    fn a_pause_that_is_no_number_of_seconds_is_refused() {
        for text in ["", "0", "-1", "often", "NaN", "inf", "1e9"] {
            let error = pause(text).unwrap_err();
            assert!(error.contains("from 0.1 to 86400"), "{text}: {error}");
        }
        let line = ["campanile", "schedule", "pause", "x", "--watch"];
        assert!(Cli::command().try_get_matches_from(line).is_err());
    }
}

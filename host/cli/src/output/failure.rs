//! The error of a command: its exit code, its code in JSON, and the errors that become one.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use serde::Serialize;

use super::{print_json, print_message};
use campanile_control::admin::approval::PackageError;
use campanile_control::admin::schedule_admin::ScheduleError;
pub(crate) use campanile_control::problem::ErrorCode;
use campanile_control::problem::Problem;
use campanile_engine::StartError;
use campanile_schedule::rule::RuleError;
use campanile_store::DbError;

/// The exit codes from 0 on. The documentation of each is its row in the reference.
#[derive(Clone, Copy, Debug, schemars::JsonSchema)]
pub(crate) enum Exit {
    /// the command is done
    Success,
    /// the command ran, and the thing that it did or checked failed.
    /// [Commands](commands.md) says what that means for each
    Failed,
    /// the arguments or the input are refused, and the command changed nothing. stderr names the mistake, its place, and its fix
    Refused,
}

/// The error of a command: one sentence, perhaps a hint, and the exit code. With `--json` it is also on stdout.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "ErrorReport")]
pub(crate) struct Failure {
    /// Empty when the command has already printed what failed.
    #[serde(rename = "error")]
    pub message: String,
    /// What the operator can do next.
    pub hint: Option<String>,
    /// The kind of error, for programs.
    pub code: ErrorCode,
    #[serde(skip)]
    exit: Exit,
}

impl Failure {
    /// Make the error of a command that was tried and failed.
    pub fn failed(message: impl ToString) -> Failure {
        Failure {
            message: message.to_string(),
            hint: None,
            code: ErrorCode::Failed,
            exit: Exit::Failed,
        }
    }

    /// Make the error of a command whose arguments or input are refused. The command has changed nothing.
    pub fn refused(message: impl ToString) -> Failure {
        Failure {
            code: ErrorCode::InvalidArgument,
            exit: Exit::Refused,
            ..Failure::failed(message)
        }
    }

    /// Makes the error that the configuration or the environment is wrong.
    pub fn misconfigured(why: impl ToString) -> Failure {
        Failure::refused(why).code(ErrorCode::InvalidConfiguration)
    }

    /// Make the error that a file which was given cannot be read. `place` names the file, and perhaps the option.
    pub fn unreadable(place: impl Display, error: &io::Error) -> Failure {
        let (why, hint) = match error.kind() {
            io::ErrorKind::NotFound => ("it does not exist".to_owned(), "correct the path"),
            io::ErrorKind::PermissionDenied => (
                "its permissions do not allow it".to_owned(),
                "change the permissions, or run the command as another user",
            ),
            io::ErrorKind::IsADirectory => ("it is a folder".to_owned(), "name a file in it"),
            _ => (error.to_string(), ""),
        };
        Failure::refused(format!("{place} cannot be read: {why}")).hint(hint)
    }

    /// Add what the operator can do next, unless `hint` is empty.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        Failure { hint, ..self }
    }

    /// Set the kind of the error.
    pub fn code(self, code: ErrorCode) -> Failure {
        Failure { code, ..self }
    }

    /// Print the failure, unless it is printed already, and return the exit code.
    pub fn report(&self, as_json: bool) -> ExitCode {
        if !self.message.is_empty() {
            print_message!("error: {}", self.message);
            if let Some(hint) = &self.hint {
                print_message!("\nhint: {hint}");
            }
            if as_json {
                // If stdout is closed too, there is no place left to report to.
                let _ = print_json(self);
            }
        }
        ExitCode::from(self.exit as u8)
    }
}

/// The text of a wrong command line, without its styles. On a terminal, clap prints it.
impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Failure {
        let without_command = [
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ErrorKind::MissingSubcommand,
        ];
        if without_command.contains(&error.kind()) {
            return Failure::refused("the command line has no command")
                .hint("`campanile --help` lists the commands");
        }
        let text = error.render().to_string();
        let mut paragraphs = text.split("\n\n").map(one_line);
        let message = paragraphs.next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        let tips = paragraphs.filter_map(|text| Some(text.strip_prefix("tip: ")?.to_owned()));
        let tips: Vec<String> = tips.collect();
        let hint = match (tips.is_empty(), error.get(ContextKind::Usage)) {
            (false, _) => tips.join("; "),
            (true, Some(usage)) => one_line(&usage.to_string()),
            (true, None) => "`campanile --help` shows the usage".to_owned(),
        };
        Failure::refused(message).hint(hint)
    }
}

/// Returns a text on one line, with single spaces.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let problem = Problem::new(failure.code, failure.message);
        problem.hint(failure.hint.unwrap_or_default())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        let exit = match problem.code {
            ErrorCode::Internal => Exit::Failed,
            // Nothing was changed, and the operator must act first.
            _ => Exit::Refused,
        };
        Failure {
            message: problem.message,
            hint: problem.hint,
            code: problem.code,
            exit,
        }
    }
}

impl From<DbError> for Failure {
    fn from(error: DbError) -> Failure {
        Problem::from(error).into()
    }
}

impl From<ScheduleError> for Failure {
    fn from(error: ScheduleError) -> Failure {
        Problem::from(error).into()
    }
}

impl From<PackageError> for Failure {
    fn from(error: PackageError) -> Failure {
        Problem::from(error).into()
    }
}

impl From<RuleError> for Failure {
    fn from(error: RuleError) -> Failure {
        Problem::from(error).into()
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        let code = match error {
            StartError::Db(error) => return error.into(),
            StartError::FileIsServed(_) | StartError::NameIsTaken(_) => ErrorCode::Conflict,
            StartError::Engine(_) => ErrorCode::Failed,
        };
        Failure::refused(error).code(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn of(args: &[&str]) -> Failure {
        match crate::Cli::try_parse_from(args) {
            Ok(_) => panic!("{args:?} was accepted"),
            Err(error) => error.into(),
        }
    }

    #[test]
    fn a_wrong_command_line_is_one_sentence_and_a_hint() {
        let missing = of(&["campanile", "schedule", "pause"]);
        let expected = "the following required arguments were not provided: <NAME>";
        assert_eq!(missing.message, expected);
        let hint = missing.hint.unwrap();
        assert!(
            hint.starts_with("Usage: campanile schedule pause"),
            "{hint}"
        );
        let misspelt = of(&["campanile", "launch", "list", "--limt", "3"]);
        assert_eq!(misspelt.message, "unexpected argument '--limt' found");
        assert!(misspelt.hint.unwrap().contains("'--limit'"));
        let nothing = of(&["campanile"]);
        assert_eq!(nothing.message, "the command line has no command");
        assert_eq!(nothing.code, ErrorCode::InvalidArgument);
    }
}

//! The arguments of programs that schedules and launches have: stored as a JSON list of templates.

use serde_json::json;

use campanile_sandbox::{Form, Template};

/// Returns `args` as they are stored.
pub(crate) fn stored(args: &[String]) -> String {
    json!(args).to_string()
}

/// Returns the sentence that a package takes no arguments.
pub fn no_program(package: &str, form: Form) -> String {
    format!(
        "arguments are for a program with a main function, and the package `{package}` is a {form}: leave `args` out, and put values into the context"
    )
}

/// Read arguments; the error is a sentence.
pub fn parse(args: &[String]) -> Result<Vec<Template>, String> {
    let args = args.iter().zip(1..).map(|(text, number)| {
        Template::parse(text).map_err(|what| format!("argument {number} of the program {what}"))
    });
    args.collect()
}

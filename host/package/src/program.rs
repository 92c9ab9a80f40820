//! `[program]` of a sidecar: what a program gets at its start.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::grants::check_variable;
use super::reference::KeyHelp;
use crate::files::is_package_file;
use crate::host_rules::{HostRules, OwnPath};
use crate::toml_reader::{Error, Section};
use campanile_sandbox::{
    ContextKey, Form, Grants, ProgramInput, Stdin, Template, check_stdin_file,
};

/// The ways to write `stdin`.
const STDIN: &str = "write \"context\", \"none\", { text = \"…\" } or { file = \"input.txt\" }";

/// The keys of the table, as rows for [`KeyHelp::read`].
const KEYS: [&str; 8] = [
    "args | list of texts | | values of the context: 1 MiB in all arguments and variables | The arguments after the program's name. `{{ context.KEY }}` stands for a value of the context: a text without its quotes, another value as JSON. `{{{{` stands for `{{`.",
    "argv0 | text | the task's name | | The program's own name, its first argument.",
    "stdin | \"context\" or \"none\" | \"context\" | | What the program reads from stdin: its context as one line of JSON, or nothing.",
    "stdin.text | text | | | This text in place of the context.",
    "stdin.file | text | | at most 16 MiB | The content of this file in place of the context. The file is beside the sidecar, and no link. It is read for each call.",
    "env_from_context | table of texts | | | Variables with values of the context: the variable, and the key, such as `URL = \"url\"`.",
    "campanile_env | true or false | true | | Whether the program gets the variables that begin with `CAMPANILE_`, and `TRACEPARENT`.",
    "cwd | path | | | The directory in which relative paths begin, which is also the variable `PWD`: the `guest` of a grant. No other directory may be granted as `/`.",
];

/// List the keys of the table, for the reference.
pub fn keys() -> impl Iterator<Item = KeyHelp> {
    let rows = KEYS.iter();
    rows.map(|row| KeyHelp::read(&format!("program.{row}")))
}

/// Read the table `[program]` of a sidecar in `folder` that gives `grants`.
pub(super) fn read(
    mut section: Section<'_>,
    folder: &Path,
    grants: &Grants,
    rules: &HostRules,
) -> Result<ProgramInput, Error> {
    let defaults = ProgramInput::default();
    let program = ProgramInput {
        argv0: section.parsed("argv0", |name| {
            if name.contains('\0') {
                Err("holds a NUL character, which no argument can have".to_owned())
            } else {
                Ok(name.to_owned())
            }
        })?,
        args: section.list("args", Template::parse)?.unwrap_or_default(),
        stdin: read_stdin(&mut section, folder, rules)?,
        env_from_context: defaults.env_from_context,
        campanile_env: (section.boolean("campanile_env")?).unwrap_or(defaults.campanile_env),
        cwd: section.parsed("cwd", |path| check_directory(path, grants))?,
    };
    let env_from_context = section.text_map("env_from_context", |name, key| {
        check_variable(name)?;
        if grants.sets_variable(name) {
            return Err(format!(
                "sets {name}, which `grants` also sets: leave one out"
            ));
        }
        ContextKey::parse(key)
    })?;
    section.finish()?;
    Ok(ProgramInput {
        env_from_context,
        ..program
    })
}

fn read_stdin(section: &mut Section<'_>, folder: &Path, rules: &HostRules) -> Result<Stdin, Error> {
    let Some(mut table) = section.table_unless_text("stdin")? else {
        let word = section.parsed("stdin", |word| match word {
            "context" => Ok(Stdin::Context),
            "none" => Ok(Stdin::Empty),
            other => Err(format!("is {other:?}: {STDIN}")),
        });
        return Ok(word?.unwrap_or_default());
    };
    let text = table.text("text")?;
    let file = table.parsed("file", |name| {
        let is_beside = Path::new(name).file_name() == Some(name.as_ref());
        if is_beside && !name.contains('\0') {
            return Ok(folder.join(name));
        }
        Err(format!(
            "is {name:?}: write the name of a file beside the sidecar, without a folder"
        ))
    })?;
    let stdin = match (text, file) {
        (Some(text), None) => Stdin::Bytes(text.into()),
        (None, Some(path)) => {
            let checked = check_stdin_file(&path).and_then(|()| check_is_not_own(&path, rules));
            checked.map_err(|what| {
                table.error("file", format_args!("is {}, which {what}", path.display()))
            })?;
            Stdin::File(path)
        }
        _ => return Err(table.error_of_table("needs either `text` or `file`")),
    };
    table.finish()?;
    Ok(stdin)
}

/// Refuse a package, a sidecar, and a file that the host itself uses, also by a hard link; the error is a clause.
fn check_is_not_own(path: &Path, rules: &HostRules) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if is_package_file(&name) {
        return Err("is a file of a package: give the text in a file of another name".to_owned());
    }
    let identity = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    let found = identity(path);
    let is_found = |own: &&OwnPath| found.is_some() && identity(&own.path) == found;
    match rules.own_paths.iter().find(is_found) {
        Some(own) => Err(format!(
            "is {own}, a path that the host uses: a task must not read it"
        )),
        None => Ok(()),
    }
}

/// Check that relative paths can begin in the directory at `path`; the error is a clause.
///
/// Few programs ask the host for a working directory. Their libraries begin relative paths in the directory that is named
/// `.`, which is the same to them as `/`.
///
/// # Errors
/// When the directory is not granted, or another one is granted as `/`.
pub fn check_directory(path: &str, grants: &Grants) -> Result<String, String> {
    let is_granted = |guest: &str| grants.directories.iter().any(|grant| grant.guest == guest);
    if !is_granted(path) {
        return Err(format!(
            "is {path:?}, which is no granted directory: write the `guest` of one of `[[grants.directories]]`"
        ));
    }
    if path != "/" && is_granted("/") {
        return Err(format!(
            "is {path:?}, and another directory is granted as \"/\", where relative paths begin: write \"/\", or grant that directory under another path"
        ));
    }
    Ok(path.to_owned())
}

/// Refuse a `[program]` for a package that is none; the error is a sentence.
pub(super) fn check_form(form: Form) -> Result<(), String> {
    if form.is_command() {
        return Ok(());
    }
    Err(format!(
        "`[program]` is for a program with a main function, and this package is a {form}: leave the table out, and put values into `[context]`"
    ))
}

#[cfg(test)]
mod tests;

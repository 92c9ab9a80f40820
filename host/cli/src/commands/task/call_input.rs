//! What the flags of `task run` give to one call, beside the sidecar: grants, arguments and stdin.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use crate::commands::serve;
use crate::config::Config;
use crate::output::{Result, refused};
use campanile_model::text::size_text;
use campanile_package::Package;
use campanile_package::files;
use campanile_package::grants::call::CallGrants;
use campanile_package::program::check_directory;
use campanile_sandbox::{ProgramInput, STDIN_BYTES_MAX, Sandbox, Stdin, Template};
use campanile_trial::Stage;

/// The end of `--dir` that makes the directory read-only.
const READ_ONLY: &str = ":ro";

/// Grants and input for this call alone.
#[derive(Args)]
pub(super) struct CallInput {
    /// An argument of the program, in place of those of the sidecar; repeat it for more. `{{ context.KEY }}` stands for a
    /// value of the context
    #[arg(long = "arg", value_name = "TEXT", allow_hyphen_values = true)]
    args: Vec<String>,
    /// Grant an environment variable: NAME=VALUE, or NAME to take the value from this environment
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    variables: Vec<String>,
    /// Grant a directory of this machine under a path of the task, for reading alone with `:ro`
    #[arg(long = "dir", value_name = "HOST::GUEST[:ro]")]
    directories: Vec<String>,
    /// Grant a device below /dev, which the host serves: null, random, urandom, zero
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
    /// Give the program the content of this file as its stdin, in place of the context
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// Grant requests to a host by HTTPS; http://HOST:PORT names another scheme or port
    #[arg(long = "http", value_name = "HOST")]
    hosts: Vec<String>,
}

impl CallInput {
    /// Add this input to `stage`, which has that of the sidecar.
    pub(super) fn add_to(
        &self,
        stage: &mut Stage,
        package: &Package,
        config: &Config,
        sandbox: &Sandbox,
    ) -> Result {
        self.add_grants(stage, config, sandbox)?;
        self.check_program(stage)?;
        let flag = match (self.args.is_empty(), &self.stdin) {
            (false, _) => "--arg",
            (true, Some(_)) => "--stdin",
            (true, None) => return Ok(()),
        };
        let form = package.artifact.form;
        if !form.is_command() {
            return Err(refused!(
                "{flag} is for a program with a main function, and this package is a {form}"
            )
            .hint("give a task component its values with --context"));
        }
        let mut program = ProgramInput::clone(&stage.program);
        if !self.args.is_empty() {
            let args = self.args.iter().map(|text| {
                Template::parse(text).map_err(|what| refused!("--arg {text:?} {what}"))
            });
            program.args = args.collect::<Result<_>>()?;
        }
        if let Some(path) = &self.stdin {
            let bytes = read_stdin(path);
            let bytes = bytes.map_err(|why| {
                let most = size_text(STDIN_BYTES_MAX);
                refused!("--stdin {}: {why}", path.display())
                    .hint(format!("name a regular file of at most {most}"))
            })?;
            program.stdin = Stdin::Bytes(bytes.into());
        }
        stage.program = Arc::new(program);
        Ok(())
    }

    /// Apply the flags to the sidecar's `[program]`: `--env` replaces a variable of `env_from_context`, and `--dir` may
    /// leave its `cwd` without a meaning.
    fn check_program(&self, stage: &mut Stage) -> Result {
        let mut program = ProgramInput::clone(&stage.program);
        for entry in &self.variables {
            let name = entry
                .split_once('=')
                .map_or(entry.as_str(), |(name, _)| name);
            program.env_from_context.remove(name);
        }
        if let Some(cwd) = &program.cwd {
            check_directory(cwd, &stage.grants)
                .map_err(|what| refused!("with these flags `program.cwd` of the sidecar {what}"))?;
        }
        stage.program = Arc::new(program);
        Ok(())
    }

    fn add_grants(&self, stage: &mut Stage, config: &Config, sandbox: &Sandbox) -> Result {
        let rules = serve::rules(config, sandbox);
        let grants = std::mem::take(&mut stage.grants);
        let mut grants = CallGrants::new(grants, &config.files.plugins, &rules);
        for entry in &self.variables {
            // The error does not show the value, which may be secret.
            let added = grants.add_variable(entry);
            added.map_err(|what| refused!("--env {what}"))?;
        }
        for text in &self.directories {
            let (host, guest, writable) = read_directory(text)
                .ok_or_else(|| refused!("--dir {text} has no path of the task: write HOST::GUEST, such as data::/data, or data::/data{READ_ONLY} to read alone"))?;
            let added = grants.add_directory(host, guest, writable);
            added.map_err(|(part, what)| refused!("--dir {text}: its {part} path {what}"))?;
        }
        for name in &self.devices {
            let added = grants.add_device(name);
            added.map_err(|what| refused!("--device {what}"))?;
        }
        for address in &self.hosts {
            let added = grants.add_http(address);
            added.map_err(|what| refused!("--http {address} {what}"))?;
        }
        stage.grants = grants.finish();
        Ok(())
    }
}

/// Split `HOST::GUEST[:ro]` into both paths, and whether the task may write.
fn read_directory(text: &str) -> Option<(&Path, &str, bool)> {
    let (host, guest) = text.split_once("::").filter(|(host, _)| !host.is_empty())?;
    let read_only = guest.strip_suffix(READ_ONLY);
    let guest = read_only.unwrap_or(guest);
    Some((Path::new(host), guest, read_only.is_none()))
}

/// Returns the content of a regular file; the error is a sentence.
fn read_stdin(path: &Path) -> Result<Vec<u8>, String> {
    let stamp = files::inspect(path).ok_or("it does not exist")??;
    let bytes = files::read(path, stamp.of_at_most(STDIN_BYTES_MAX)?)?;
    Ok(bytes.ok_or("it changed while it was read: try again")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_two_paths_and_an_access() {
        for (text, expected) in [
            ("data::/data", Some(("data", "/data", true))),
            ("/srv/a b::/:ro", Some(("/srv/a b", "/", false))),
            ("a::b::/c", Some(("a", "b::/c", true))),
            ("data:/data", None),
            ("data", None),
            ("::/data", None),
        ] {
            let expected =
                expected.map(|(host, guest, writable)| (Path::new(host), guest, writable));
            assert_eq!(read_directory(text), expected, "{text}");
        }
    }
}

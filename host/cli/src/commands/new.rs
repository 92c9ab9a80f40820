//! `campanile new`: a project of one's own, in the language of one's choice.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::Common;
use crate::output::{self, Failure};
use campanile_package::package_name_fault;

mod language;
mod template;

use language::Language;
use template::File;

#[derive(Args)]
pub(crate) struct New {
    /// What the package is to be called: 1 to 64 letters, digits, `_` or `-`, a letter first
    name: String,
    /// The language, and in Rust the way
    #[arg(long, value_enum, value_name = "LANGUAGE", default_value_t)]
    lang: Language,
    /// The folder to write into, empty or not there yet [default: ./NAME]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

impl New {
    pub fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        check_name(&self.name)?;
        let folder = self.into.unwrap_or_else(|| PathBuf::from(&self.name));
        check_folder(&folder)?;
        let files = self.lang.files(&self.name);
        for file in &files {
            write(&folder, file).map_err(|error| {
                let path = folder.join(&file.path);
                Failure::failed(format!("{} cannot be written: {error}", path.display()))
            })?;
        }
        let next = next_steps(&folder, self.lang, &self.name);
        if common.json {
            let files: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
            output::json_out(&json!({
                "name": self.name, "language": self.lang, "folder": folder, "files": files, "next": next,
            }))?;
        } else {
            let count = files.len();
            output::line(&format!("{}: {count} files", folder.display()))?;
            if self.lang == Language::Go {
                output::line("Go is documented only: README.md tells the steps")?;
            }
            output::line("\nnext:")?;
            for step in &next {
                output::line(&format!("  {step}"))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Refuse what no package or no crate can be called.
fn check_name(name: &str) -> Result<(), Failure> {
    // A crate's name begins with a letter, and nothing is lost if the others' do as well.
    if package_name_fault(name).is_none() && name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Ok(());
    }
    let hint = "choose 1 to 64 letters, digits, `_` or `-`, a letter first";
    Err(Failure::refused(format!("{name:?} cannot name a project")).hint(hint))
}

/// Refuse a folder in which something would be overwritten, or mixed up with what is there.
fn check_folder(folder: &Path) -> Result<(), Failure> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries,
    };
    let path = folder.display();
    match entries.map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::refused(format!("{path} is not empty"))
            .hint("choose another folder with --into, or empty this one")),
        Err(error) => Err(
            Failure::refused(format!("{path} cannot hold a project: {error}"))
                .hint("choose another folder with --into"),
        ),
    }
}

fn write(folder: &Path, file: &File) -> io::Result<()> {
    let path = folder.join(&file.path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&path, &file.text)?;
    if file.is_script() {
        set_executable(&path)?;
    }
    Ok(())
}

fn set_executable(path: &Path) -> io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    // Whoever may read it may run it: the umask has its say.
    let readable = permissions.mode() & 0o444;
    permissions.set_mode(permissions.mode() | (readable >> 2));
    fs::set_permissions(path, permissions)
}

/// What to type now: to the folder, then test, build, run once, deploy.
fn next_steps(folder: &Path, lang: Language, name: &str) -> Vec<String> {
    let mut steps = vec![format!("cd {}", folder.display())];
    steps.extend(lang.build_steps(name));
    if let Some(built) = lang.built(name) {
        let context = lang.context();
        steps.push(format!("campanile task run {built} --context '{context}'"));
        steps.push(format!("cp {built} YOUR_PLUGIN_FOLDER/"));
    }
    steps
}

//! `campanile new`: create a project in one of several languages.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::Common;
use crate::output::{self, ErrorCode, Record, Result, failed, refused};
use campanile_package::package_name_fault;

mod template;

#[derive(Args)]
pub(crate) struct New {
    /// The name of the package: 1 to 64 letters, digits, `_` or `-`, a letter first
    name: String,
    /// The language of the project
    #[arg(long, value_enum, value_name = "LANGUAGE", default_value_t)]
    lang: Language,
    /// The project's folder: empty, or a new one [default: ./NAME]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

/// The language of a project.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Language {
    /// A typed component, with campanile-sdk
    #[default]
    #[value(alias = "rs")]
    Rust,
    /// A program with a `main`
    RustMain,
    /// A typed component, with generated bindings instead of the SDK
    RustWit,
    /// A typed component, with the SDK for Python, by componentize-py
    #[value(alias = "py")]
    Python,
    /// A typed component, by jco
    #[value(alias = "js")]
    Javascript,
    /// A typed component, with the SDK for TypeScript, by jco
    #[value(alias = "ts")]
    Typescript,
    /// A program, by `zig cc`
    C,
    /// A program, by `zig c++`
    #[value(aliases = ["c++", "cxx"])]
    Cpp,
    /// A program
    Zig,
    /// A program, by Go's own toolchain
    Go,
}

impl Language {
    fn is_program(self) -> bool {
        match self {
            Language::RustMain | Language::C | Language::Cpp | Language::Zig | Language::Go => true,
            Language::Rust
            | Language::RustWit
            | Language::Python
            | Language::Javascript
            | Language::Typescript => false,
        }
    }
}

/// The result of `new`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct NewReport {
    name: String,
    language: Language,
    folder: PathBuf,
    /// The paths of the files in the folder.
    files: Vec<String>,
    /// The next commands.
    next: Vec<String>,
}

impl New {
    pub fn run(self, common: &Common) -> Result {
        check_name(&self.name)?;
        let folder = self.into.unwrap_or_else(|| PathBuf::from(&self.name));
        check_folder(&folder)?;
        let files = template::example(self.lang).files(&self.name);
        for (path, text) in &files {
            let path = folder.join(path);
            write(&path, text)
                .map_err(|error| failed!("{} cannot be written: {error}", path.display()))?;
        }
        let next = next_steps(&folder, self.lang, &self.name);
        common.print(&NewReport {
            name: self.name,
            language: self.lang,
            files: files.into_iter().map(|(path, _)| path).collect(),
            folder,
            next,
        })
    }
}

impl Record for NewReport {
    fn print(&self) -> Result {
        output::print_line!("{}: {} files", self.folder.display(), self.files.len())?;
        output::print_line("\nnext:")?;
        for step in &self.next {
            output::print_line!("  {step}")?;
        }
        Ok(())
    }
}

/// Refuse a name that is not valid for a package and a crate.
fn check_name(name: &str) -> Result {
    // The name of a crate must start with a letter. For simplicity, all languages have that rule.
    if package_name_fault(name).is_none() && name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Ok(());
    }
    let hint = "choose 1 to 64 letters, digits, `_` or `-`, a letter first";
    Err(refused!("{name:?} is not a valid project name").hint(hint))
}

/// Refuse a folder that is not empty: its files would be overwritten or mixed with new ones.
fn check_folder(folder: &Path) -> Result {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries,
    };
    let path = folder.display();
    match entries.map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(refused!("{path} is not empty")
            .code(ErrorCode::Conflict)
            .hint("choose another folder with --into, or empty this one")),
        Err(error) => Err(refused!("{path} cannot hold a project: {error}")
            .hint("choose another folder with --into")),
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)?;
    let is_script = text.starts_with("#!");
    if !is_script {
        return Ok(());
    }
    let mut permissions = fs::metadata(path)?.permissions();
    // Each user who may read the file may execute it, so that the umask applies.
    let readable = permissions.mode() & 0o444;
    permissions.set_mode(permissions.mode() | (readable >> 2));
    fs::set_permissions(path, permissions)
}

/// Returns the next commands: enter the folder, test, build, call once, deploy, launch.
fn next_steps(folder: &Path, lang: Language, name: &str) -> Vec<String> {
    const TARGET: &str = "rustup target add wasm32-wasip2";
    const BUILD: &str = "./build  # runs the tests first";
    let build: &[&str] = match lang {
        Language::Rust | Language::RustMain | Language::RustWit => &[TARGET, BUILD],
        _ => &[BUILD],
    };
    let mut steps = vec![format!("cd {}", folder.display())];
    steps.extend(build.iter().map(|step| (*step).to_owned()));
    let built = format!("target/{name}.wasm");
    let context = match lang {
        Language::Rust => r#"{"text": "to be or not"}"#,
        _ => r#"{"below": 100000}"#,
    };
    steps.push(format!("campanile task run {built} --context '{context}'"));
    steps.push(format!("mkdir -p plugins && cp {built} plugins/"));
    steps.push(
        "campanile serve  # the next commands in another terminal, in the same folder".into(),
    );
    if lang.is_program() {
        // A program proposes no schedule.
        steps.push(format!(
            "campanile schedule add {name} --package {name} --every 10m"
        ));
    }
    steps.push(format!("campanile schedule trigger {name} --wait"));
    steps
}

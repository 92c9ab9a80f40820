//! `campanile dev`: build a project, or take a .wasm file, and run its task at each change.

mod sources;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use super::task::Call;
use crate::Common;
use crate::config::Config;
use crate::output::{self, Failure, Result, failed, refused};
use crate::signals::StopSignals;
use sources::Sources;

#[derive(Args)]
pub(crate) struct Dev {
    /// A project's folder with a `build` script, or a .wasm file
    path: PathBuf,
    #[command(flatten)]
    call: Call,
}

/// The script of a project, which writes a .wasm file into [`BUILT`].
const BUILD: &str = "build";
const BUILT: &str = "target";

/// What is built and run.
enum Project {
    Folder(PathBuf),
    File(PathBuf),
}

impl Dev {
    /// Build and run the task now and at each change, until Ctrl-C or SIGTERM.
    pub async fn run(self, common: &Common) -> Result {
        let mut stop = StopSignals::listen()?;
        let config = common.config()?;
        self.call.check()?;
        let project = Project::at(&self.path)?;
        let mut sources = project.sources(&config)?;
        sources.also(self.call.sidecar());
        tokio::select! {
            ended = follow(&project, &mut sources, &self.call, common, &config) => ended,
            () = stop.wait() => Ok(()),
        }
    }
}

async fn follow(
    project: &Project,
    sources: &mut Sources,
    call: &Call,
    common: &Common,
    config: &Config,
) -> Result {
    loop {
        // A failure is shown, and the next change may repair it.
        if let Err(failure) = build_and_run(project, call, common, config).await {
            let _ = failure.report(common.json);
        }
        output::print_message!(
            "waiting for a change of {}; Ctrl-C ends\n",
            project.path().display()
        );
        sources.changed().await?;
    }
}

async fn build_and_run(project: &Project, call: &Call, common: &Common, config: &Config) -> Result {
    let file = match project {
        Project::Folder(folder) => build(folder).await?,
        Project::File(file) => file.clone(),
    };
    call.run(&file, common, config).await
}

/// Run the build script. Return the file that it wrote.
async fn build(folder: &Path) -> Result<PathBuf> {
    let script = folder.join(BUILD);
    output::print_message!("building: {}", script.display());
    let began = Instant::now();
    let script = script
        .canonicalize()
        .map_err(|error| failed!("{} cannot be run: {error}", script.display()))?;
    // Stdout is for the task's output.
    let mut child = Command::new(&script)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .process_group(0)
        .spawn()
        .map_err(|error| failed!("{} cannot be run: {error}", script.display()))?;
    let group = ProcessGroup::of(&child);
    let status = child.wait().await;
    let status =
        status.map_err(|error| failed!("{} cannot be waited for: {error}", script.display()))?;
    group.forget();
    if !status.success() {
        return Err(failed!("the build failed: {status}"));
    }
    let built = newest_package(&folder.join(BUILT))?;
    let seconds = began.elapsed().as_secs_f64();
    output::print_message!("built {} in {seconds:.1} s", built.display());
    Ok(built)
}

/// A build and the processes that it started. A drop ends them.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &tokio::process::Child) -> ProcessGroup {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        ProcessGroup(id.and_then(Pid::from_raw))
    }

    /// Leave the processes alone: the build has ended.
    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // They may have ended just now.
            let _ = kill_process_group(group, Signal::TERM);
        }
    }
}

/// Returns the newest .wasm file in `folder`.
fn newest_package(folder: &Path) -> Result<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let packages = files.filter_map(|entry| {
        let path = entry.path();
        let is_package = path.extension().is_some_and(|found| found == "wasm");
        let written = entry.metadata().ok()?.modified().ok()?;
        is_package.then_some((written, path))
    });
    let newest = packages.max().map(|(_, path)| path);
    newest.ok_or_else(|| failed!("the build left no .wasm file in {}", folder.display()))
}

impl Project {
    fn at(path: &Path) -> Result<Project> {
        let shown = path.display();
        let found = std::fs::metadata(path);
        let found = found.map_err(|error| Failure::unreadable(&shown, &error))?;
        if found.is_dir() {
            return if path.join(BUILD).is_file() {
                Ok(Project::Folder(path.to_owned()))
            } else {
                Err(refused!("{shown} has no script `{BUILD}`")
                    .hint("name the .wasm file; `campanile new` writes projects with a script"))
            };
        }
        if found.is_file() {
            Ok(Project::File(path.to_owned()))
        } else {
            Err(refused!("{shown} is neither a folder nor a file"))
        }
    }

    fn path(&self) -> &Path {
        match self {
            Project::Folder(path) | Project::File(path) => path,
        }
    }

    fn sources(&self, config: &Config) -> Result<Sources> {
        match self {
            Project::Folder(folder) => Sources::of_folder(folder, config.watch.mode),
            Project::File(file) => {
                let mut sources = Sources::of_file(file, config.watch.mode);
                // The file's sidecar, which applies in the plugins folder.
                sources.also(Some(&file.with_extension("toml")));
                Ok(sources)
            }
        }
    }
}

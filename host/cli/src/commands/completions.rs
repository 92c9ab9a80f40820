//! `campanile completions` and `campanile man`: what a shell and `man` know of the commands.

use std::path::PathBuf;

use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;

use crate::output::{self, Failure, Result, failed};
use crate::{Cli, Common};

#[derive(Args)]
pub(crate) struct Completions {
    /// The shell: its script completes commands, options and their values
    shell: Shell,
}

#[derive(Args)]
pub(crate) struct Man {
    /// The folder for a page of each command; without it, the page of `campanile` goes to stdout
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

impl Completions {
    pub fn run(self) -> Result {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut shown_commands(), "campanile", &mut script);
        output::print_line(String::from_utf8_lossy(&script).trim_end())
    }
}

/// Returns the command line without its hidden commands, which the program calls itself.
fn shown_commands() -> Command {
    let all = Cli::command();
    let shown = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let shown: Vec<Command> = shown.cloned().collect();
    let options = all.get_arguments().cloned().collect::<Vec<_>>();
    Command::new("campanile").args(options).subcommands(shown)
}

impl Man {
    pub fn run(self, common: &Common) -> Result {
        let command = Cli::command();
        let Some(folder) = self.into else {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(command).render(&mut page);
            rendered.map_err(Failure::failed)?;
            return output::print_line(String::from_utf8_lossy(&page).trim_end());
        };
        let path = folder.display();
        std::fs::create_dir_all(&folder)
            .and_then(|()| clap_mangen::generate_to(command, &folder))
            .map_err(|error| {
                failed!("the pages cannot be written to {path}: {error}")
                    .hint("name a folder that you can write with --into")
            })?;
        common.print_report(
            &serde_json::json!({ "folder": folder }),
            &format!("wrote the pages to {path}"),
        )
    }
}

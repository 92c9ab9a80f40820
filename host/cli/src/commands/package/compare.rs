//! `campanile package diff`: what changes from one version of a package to another.

use clap::Args;

use crate::Common;
use crate::output::{self, Record, Result};
use campanile_control::admin::approval::approve_command;
use campanile_control::questions::packages::DiffPackage;
use campanile_control::records::package_diff::DiffReport;
use campanile_model::text::printable_line;

#[derive(Args)]
pub(crate) struct Compare {
    /// The package's name: its file name without .wasm
    name: String,
    #[command(flatten)]
    question: DiffPackage,
}

impl Compare {
    pub(crate) async fn run(self, common: &Common) -> Result {
        let report = common.ask(&self.name, &self.question).await?;
        if let Some(why) = report.why_without_imports() {
            output::print_message!("{why}");
        }
        common.print(&report)
    }
}

impl Record for DiffReport {
    fn print(&self) -> Result {
        let DiffReport { package, diff, .. } = self;
        let (from, to) = (diff.from.short(), diff.to.short());
        output::print_line!("{package}: from {from} to {to}")?;
        let lines = self.lines();
        if lines.is_empty() {
            output::print_line("  only the bytes differ")?;
        }
        for line in &lines {
            // Text of an author must not look like a line of Campanile.
            output::print_line(&printable_line(line))?;
        }
        output::print_sidecar_lines(package, self.missing())?;
        if self.is_pending {
            let approve = approve_command(package, &diff.to);
            output::print_message!("hint: `{approve}` activates it with the grants that it has");
        }
        Ok(())
    }
}

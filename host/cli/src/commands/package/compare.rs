//! `campanile package diff`: what changes from one version of a package to another.

use clap::Args;

use crate::Common;
use crate::output::{self, Record, Result};
use campanile_control::approval::approve_command;
use campanile_control::records::package_diff::DiffReport;
use campanile_model::text::printable_line;

#[derive(Args)]
pub(crate) struct Compare {
    /// The package's name: its file name without .wasm
    name: String,
    /// The first digits of a version's digest [default: the active version]
    from: Option<String>,
    /// The first digits of another version's digest [default: the pending version, or with FROM the active one]
    to: Option<String>,
}

impl Compare {
    pub(crate) async fn run(self, common: &Common) -> Result {
        let (from, to) = (self.from.as_deref(), self.to.as_deref());
        let report: DiffReport = match common.client()? {
            Some(client) => {
                let call = client.get(&["packages", &self.name, "diff"]);
                call.query("from", from).query("to", to).send().await?
            }
            None => DiffReport::read(&mut common.read().await?, &self.name, from, to).await?,
        };
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

//! `campanile schedule reconcile`: apply a schedules file now, also where no host follows one.

use std::path::PathBuf;

use clap::Args;

use super::By;
use super::check::{self, FileReport};
use crate::Common;
use crate::output::Result;
use campanile_engine::schedules_file;

#[derive(Args)]
pub(crate) struct Reconcile {
    /// The schedules file [default: the configured one]
    file: Option<PathBuf>,
    #[command(flatten)]
    by: By,
}

impl Reconcile {
    pub(crate) async fn run(self, common: &Common) -> Result {
        let config = common.config()?;
        let file = self.file.unwrap_or(config.files.schedules);
        let wanted = check::read(&file, &config.groups)?;
        let (shown, by) = (file.display().to_string(), self.by.by);
        let diff = common
            .change(async |tx, now| schedules_file::apply_for(tx, &shown, &wanted, &by, now).await)
            .await?;
        common.print(&FileReport::new(&diff, Vec::new()))
    }
}

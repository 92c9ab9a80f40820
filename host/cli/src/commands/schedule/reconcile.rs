//! `campanile schedule reconcile`: apply a schedules file now, also where no host follows one.

use std::path::PathBuf;

use clap::Args;

use super::By;
use super::check::{self, PrintedReport};
use crate::Common;
use crate::output::Result;
use campanile_control::orders::files::ReconcileFile;

#[derive(Args)]
pub(crate) struct Reconcile {
    /// The schedules file [default: the configured one]
    file: Option<PathBuf>,
    #[command(flatten)]
    by: By,
}

impl Reconcile {
    pub(crate) async fn run(self, common: &Common) -> Result {
        let (file, wanted) = check::read_for(common, self.file)?;
        let order = ReconcileFile(check::named_file(&file, &wanted)?);
        let report = common.order("", &order, &*self.by.by).await?;
        let wanted = &wanted;
        common.print(&PrintedReport { report, wanted })
    }
}

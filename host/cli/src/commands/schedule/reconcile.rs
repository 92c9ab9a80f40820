//! `campanile schedule reconcile`: apply a schedules file now, also where no host follows one.

use std::path::PathBuf;

use clap::Args;

use super::By;
use super::check::{self, PrintedReport};
use crate::Common;
use crate::output::Result;
use campanile_control::records::schedules_file::FileReport;
use campanile_control::schedules_file;
use campanile_store::Tx;

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
        let report = match common.client()? {
            Some(client) => {
                let body = check::named_file(&file, &wanted);
                let path = ["schedules-file", "reconcile"];
                client.post(&path, &body)?.send().await?
            }
            None => {
                let (shown, by) = (file.display().to_string(), self.by.by);
                let apply = async |tx: &mut Tx, now| {
                    schedules_file::apply_for(tx, &shown, &wanted, &by, now).await
                };
                FileReport::new(common.change(apply).await?, Vec::new())
            }
        };
        let wanted = &wanted;
        common.print(&PrintedReport { report, wanted })
    }
}

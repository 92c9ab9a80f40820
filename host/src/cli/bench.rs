//! `campanile bench`: how fast launches are on this machine, against the floors they stand on.
use std::process::ExitCode;

use clap::Subcommand;

use super::Common;
use super::output::Failure;

#[derive(Subcommand)]
pub(super) enum Bench {}

impl Bench {
    pub async fn run(self, _common: &Common) -> Result<ExitCode, Failure> {
        match self {}
    }
}

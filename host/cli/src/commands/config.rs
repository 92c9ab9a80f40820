//! `campanile config`: the configuration.

use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use super::serve::foreign_writers;
use crate::Common;
use crate::config::Config;
use crate::output::{Result, failed, print_message};
use campanile_package::foreign_files;

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the default configuration with a comment on every key
    Default,
    /// Check the configuration and print the values that apply
    Check,
}

/// A configuration.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ConfigReport {
    /// The file that was read. Null when there is none.
    file: Option<PathBuf>,
    /// Every key with its value.
    config: Value,
}

impl ConfigCommand {
    pub fn run(self, common: &Common) -> Result {
        let (file, text) = match self {
            ConfigCommand::Default => (None, Config::default_text()),
            ConfigCommand::Check => {
                let config = common.config()?;
                let warnings = foreign_writers(&config)?;
                for warning in warnings.iter().chain(&foreign_files(&config.files.plugins)) {
                    print_message!("warning: {warning}");
                }
                let text = config.to_string();
                (config.file, text)
            }
        };
        let config = toml::from_str(&text)
            .map_err(|error| failed!("the printed configuration is not TOML: {error}"))?;
        let report = ConfigReport { file, config };
        common.print_report(&report, text.trim_end())
    }
}

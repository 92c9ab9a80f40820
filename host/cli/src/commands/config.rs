//! `campanile config`: the configuration.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use crate::Common;
use crate::config::Config;
use crate::output::{self, Failure};

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the default configuration with a comment on every key
    Default,
    /// Check the configuration and print what is in force
    Check,
}

impl ConfigCommand {
    pub fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let (file, text) = match self {
            ConfigCommand::Default => (None, Config::default_text().to_owned()),
            ConfigCommand::Check => {
                let config = common.config()?;
                let text = config.to_string();
                (config.file, text)
            }
        };
        if common.json {
            // The file is TOML; as JSON it is the same tree.
            let tree: serde_json::Value = toml::from_str(&text).map_err(|error| {
                Failure::failed(format!("the printed configuration is not TOML: {error}"))
            })?;
            output::json_out(&json!({ "file": file, "config": tree }))?;
        } else {
            output::line(text.trim_end())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

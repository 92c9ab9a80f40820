//! `campanile config`: the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use super::serve::{self, check_files};
use crate::Common;
use crate::config::Config;
use crate::output::{self, Failure, Result, failed, print_message};
use campanile_control::settings::ConfigOrigin;
use campanile_model::clock::Clock;
use campanile_model::text::printable_line;
use campanile_package::{Change, Packages, PluginsFolder, foreign_files};

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the default configuration with a comment on every key
    Default,
    /// Check the configuration, print the values that apply, and list the packages that a host with it would refuse
    Check,
}

/// A configuration.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ConfigReport {
    /// The file that was read. Null when there is none.
    file: Option<PathBuf>,
    /// Every key with its value.
    config: Value,
    /// The keys that aren't left at their defaults, such as `host.runs_max`, and what set each.
    set: BTreeMap<String, ConfigOrigin>,
    /// The packages in the plugins folder that a host refuses. `config default` looks at none.
    refused: Vec<RefusedPackage>,
}

/// A package that a host refuses.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct RefusedPackage {
    package: String,
    /// One sentence.
    error: String,
}

impl ConfigCommand {
    pub async fn run(self, common: &Common) -> Result {
        let (file, text, set, refused) = match self {
            ConfigCommand::Default => (None, Config::default_text(), BTreeMap::new(), Vec::new()),
            ConfigCommand::Check => {
                let config = common.config()?;
                config
                    .api_server()
                    .check()
                    .map_err(Failure::misconfigured)?;
                let warnings = check_files(&config)?;
                let wrong = config.unreadable_secrets(config.alerts.secrets()).await;
                if !wrong.is_empty() {
                    return Err(Failure::misconfigured(wrong.join("; ")));
                }
                for warning in warnings.iter().chain(&foreign_files(&config.files.plugins)) {
                    print_message!("warning: {warning}");
                }
                let text = config.to_string();
                let refused = refused_packages(&config).await?;
                let set = config.set_keys();
                (config.file, text, set, refused)
            }
        };
        let config = toml::from_str(&text)
            .map_err(|error| failed!("the printed configuration is not TOML: {error}"))?;
        let report = ConfigReport {
            file,
            config,
            set,
            refused,
        };
        common.print_report(&report, text.trim_end())?;
        for RefusedPackage { package, error } in report.refused.iter().filter(|_| !common.json) {
            let [package, error] = [package, error].map(|text| printable_line(text));
            print_message!("refused: {package}: {error}");
        }
        output::check(report.refused.is_empty())
    }
}

/// Returns the packages in the plugins folder that a host refuses, as its first scan would.
///
/// A version that would wait for an approval is not among them: the database knows which versions are approved.
async fn refused_packages(config: &Config) -> Result<Vec<RefusedPackage>> {
    let plugins = &config.files.plugins;
    if !plugins.exists() {
        return Ok(Vec::new());
    }
    let mut config = config.clone();
    config.host.runs_max = 1;
    let loader = serve::loader(&config, &Clock::system())?;
    let rules = serve::rules(&config, loader.sandbox());
    let folder = PluginsFolder::open(plugins, loader, rules);
    let mut folder = folder.map_err(Failure::misconfigured)?;
    let active = Packages::default();
    let mut refused = Vec::new();
    loop {
        let Some(mut scan) = folder.scan(&active).await else {
            let plugins = plugins.display();
            let why = format!("the plugins folder {plugins} cannot be read");
            return Err(Failure::misconfigured(why));
        };
        while let Some(change) = folder.next_change(&mut scan, &active).await {
            if let Change::Rejected { name, error, .. } = change {
                let package = name;
                refused.push(RefusedPackage { package, error });
            }
        }
        if !folder.is_loading() {
            return Ok(refused);
        }
        folder.load_ended().await;
    }
}

//! The options of a schedule's policies.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::output::{Result, refused};
use campanile_schedule::policy::{Policies, Policy, ValueKind};

/// The options of all policies, read as text. [`Policies::set`] parses them, as it does in files.
pub(crate) struct PolicyOptions(Vec<(Policy, String)>);

/// Return the option of a policy, from its entry in the table of policies.
fn option(policy: Policy) -> Arg {
    let spec = policy.spec();
    let (value_name, values) = match spec.kind {
        ValueKind::Word(words) => ("WORD", format!(": {}", words.join(", "))),
        ValueKind::Duration(example) => ("SPAN", format!(", such as {example}")),
        ValueKind::Number(_) => ("N", String::new()),
        ValueKind::Instant => ("TIME", ", such as 2027-01-31T08:00:00Z".to_owned()),
    };
    let needs = spec
        .needs
        .map(|(other, words)| format!(", with --{} {}", other.flag(), words.join(" or ")));
    let needs = needs.unwrap_or_default();
    Arg::new(spec.key)
        .long(policy.flag())
        .value_name(value_name)
        .help(format!("{}{needs}{values}", spec.meaning))
        .help_heading("Policies")
}

impl Args for PolicyOptions {
    fn augment_args(command: Command) -> Command {
        command.args(Policy::ALL.iter().map(|&policy| option(policy)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        PolicyOptions::augment_args(command)
    }
}

impl FromArgMatches for PolicyOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<PolicyOptions, clap::Error> {
        let given = Policy::ALL.iter().filter_map(|&policy| {
            let text = matches.get_one::<String>(policy.as_str())?;
            Some((policy, text.clone()))
        });
        Ok(PolicyOptions(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = PolicyOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The policies that were given.
pub(crate) struct GivenPolicies {
    pub policies: Policies,
    pub given: Vec<Policy>,
}

impl PolicyOptions {
    /// Parse the options. One option can set two policies, so the result may have more of them.
    pub(crate) fn parse(&self) -> Result<GivenPolicies> {
        let mut policies = Policies::default();
        let mut given = Vec::new();
        for (policy, text) in &self.0 {
            let set = policies.set(*policy, text);
            set.map_err(|fault| refused!("--{} {fault}", policy.flag()))?;
            given.push(*policy);
        }
        given.extend(policies.entries().map(|(policy, _)| policy));
        Ok(GivenPolicies { policies, given })
    }
}

impl GivenPolicies {
    /// Copy the policies that were given to `policies`; the others stay.
    pub(crate) fn apply_to(&self, policies: &mut Policies) {
        for &policy in &self.given {
            policies.copy(policy, &self.policies);
        }
    }
}

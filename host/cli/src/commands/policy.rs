//! The options of a schedule's policies.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::output::Failure;
use campanile_schedule::policy::{Policies, Policy};

/// The heading of the policies in a command's help.
const HEADING: &str = "Policies";

/// The options of all policies, read as text. [`Policies::set`] parses them, as it does in files.
pub(crate) struct PolicyOptions(Vec<(Policy, String)>);

/// The flag of each policy, the name of its value, and its help.
const OPTIONS: &str = "\
catchup|WORD|Which missed slots are launched after an outage: latest, none, earliest, all
catchup-window|SPAN|Do not catch up slots that were missed by more than this, such as 24h
catchup-max|N|Catch up at most so many missed slots, the newest, with --catchup all
catchup-spread|SPAN|The time between launches that are caught up, such as 30s
misfire-grace|SPAN|A slot that is later than this was missed, such as 5m
overlap|WORD|What to do with a slot while a launch is unfinished: skip, buffer_one, buffer_all, cancel_other, terminate_other, allow
max-buffered|N|The most launches that wait, with --overlap buffer_all
keep|WORD|Which launch waits, with --overlap buffer_one: first, latest
max-concurrent|N|The most unfinished launches at one time, with --overlap allow
cancel-grace|SPAN|How long a cancelled launch may still run, with --overlap cancel_other, such as 30s
delivery|WORD|What to do with a launch whose run was lost: at_least_once runs it again, at_most_once does not
jitter|SPAN|Each slot fires up to this long after its time, such as 30s
start-at|TIME|No slot before this time, such as 2027-01-31T08:00:00Z
end-at|TIME|No slot after this time
max-launches|N|End the schedule after so many launches; manual launches do not count
pause-on-failure|N|Pause the schedule after so many failed launches in a row";

/// Return the flag of a policy, the name of its value, and its help.
fn option(policy: Policy) -> (&'static str, &'static str, &'static str) {
    let options = OPTIONS.lines().filter_map(|line| {
        let (flag, rest) = line.split_once('|')?;
        let (value_name, help) = rest.split_once('|')?;
        Some((flag, value_name, help))
    });
    let mut options = options.filter(|(flag, ..)| flag.replace('-', "_") == policy.as_str());
    options.next().unwrap_or_default()
}

impl Args for PolicyOptions {
    fn augment_args(command: Command) -> Command {
        command.args(Policy::ALL.iter().map(|&policy| {
            let (flag, value_name, help) = option(policy);
            Arg::new(policy.as_str())
                .long(flag)
                .value_name(value_name)
                .help(help)
                .help_heading(HEADING)
        }))
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
    pub(crate) fn parse(&self) -> Result<GivenPolicies, Failure> {
        let mut policies = Policies::default();
        let mut given = Vec::new();
        for (policy, text) in &self.0 {
            policies.set(*policy, text).map_err(|fault| {
                let (flag, ..) = option(*policy);
                Failure::refused(format!("--{flag} {fault}"))
            })?;
            given.push(*policy);
        }
        for (policy, _) in policies.said() {
            if !given.contains(&policy) {
                given.push(policy);
            }
        }
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

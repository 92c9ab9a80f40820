//! Policies as the command line says them.

use clap::Args;

use crate::output::Failure;
use campanile_schedule::policy::{Policies, Policy};

/// Under this the help shows the policies.
const POLICIES: &str = "Policies";

/// What a schedule says besides its rule. Read by [`Policies::set`], as in files, so all of it is text here.
#[derive(Args)]
#[command(next_help_heading = POLICIES)]
pub(crate) struct PolicyOptions {
    /// Which missed slots are launched after all: latest, none, earliest, all
    #[arg(long, value_name = "WORD")]
    catchup: Option<String>,
    /// A slot missed by more than this is not caught up, such as 24h
    #[arg(long, value_name = "SPAN")]
    catchup_window: Option<String>,
    /// How many missed slots are caught up at most, the newest, with --catchup all
    #[arg(long, value_name = "N")]
    catchup_max: Option<String>,
    /// The time between launches that are caught up, such as 30s
    #[arg(long, value_name = "SPAN")]
    catchup_spread: Option<String>,
    /// A slot later than this was missed, such as 5m
    #[arg(long, value_name = "SPAN")]
    misfire_grace: Option<String>,
    /// What becomes of a slot while a launch goes on: skip, buffer_one, buffer_all, cancel_other, terminate_other, allow
    #[arg(long, value_name = "WORD")]
    overlap: Option<String>,
    /// How many launches wait at most, with --overlap buffer_all
    #[arg(long, value_name = "N")]
    max_buffered: Option<String>,
    /// Which launch waits, with --overlap buffer_one: first, latest
    #[arg(long, value_name = "WORD")]
    keep: Option<String>,
    /// How many launches go on at the same time at most, with --overlap allow
    #[arg(long, value_name = "N")]
    max_concurrent: Option<String>,
    /// How long a launch may take that was asked to end, with --overlap cancel_other, such as 30s
    #[arg(long, value_name = "SPAN")]
    cancel_grace: Option<String>,
    /// What becomes of a launch whose run was lost: at_least_once runs it again, at_most_once does not
    #[arg(long, value_name = "WORD")]
    delivery: Option<String>,
    /// Each slot fires up to this long after its time, such as 30s
    #[arg(long, value_name = "SPAN")]
    jitter: Option<String>,
    /// No slot before this, such as 2027-01-31T08:00:00Z
    #[arg(long, value_name = "TIME")]
    start_at: Option<String>,
    /// No slot after this
    #[arg(long, value_name = "TIME")]
    end_at: Option<String>,
    /// It ends after so many launches, those by hand not counted
    #[arg(long, value_name = "N")]
    max_launches: Option<String>,
    /// It is paused when so many launches in a row have failed for good
    #[arg(long, value_name = "N")]
    pause_on_failure: Option<String>,
}

/// Policies that were given, and which.
pub(crate) struct Given {
    pub policies: Policies,
    pub which: Vec<Policy>,
}

impl PolicyOptions {
    fn text(&self, policy: Policy) -> Option<&str> {
        let text = match policy {
            Policy::Catchup => &self.catchup,
            Policy::CatchupWindow => &self.catchup_window,
            Policy::CatchupMax => &self.catchup_max,
            Policy::CatchupSpread => &self.catchup_spread,
            Policy::MisfireGrace => &self.misfire_grace,
            Policy::Overlap => &self.overlap,
            Policy::MaxBuffered => &self.max_buffered,
            Policy::Keep => &self.keep,
            Policy::MaxConcurrent => &self.max_concurrent,
            Policy::CancelGrace => &self.cancel_grace,
            Policy::Delivery => &self.delivery,
            Policy::Jitter => &self.jitter,
            Policy::StartAt => &self.start_at,
            Policy::EndAt => &self.end_at,
            Policy::MaxLaunches => &self.max_launches,
            Policy::PauseOnFailure => &self.pause_on_failure,
        };
        text.as_deref()
    }

    /// Read what was given. One word may say two policies, so there may be more of them than flags.
    pub(crate) fn read(&self) -> Result<Given, Failure> {
        let mut given = Given {
            policies: Policies::default(),
            which: Vec::new(),
        };
        for &policy in Policy::ALL {
            let Some(text) = self.text(policy) else {
                continue;
            };
            let flag = policy.as_str().replace('_', "-");
            let set = given.policies.set(policy, text);
            set.map_err(|what| Failure::refused(format!("--{flag} {what}")))?;
            given.which.push(policy);
        }
        for (policy, _) in given.policies.said() {
            if !given.which.contains(&policy) {
                given.which.push(policy);
            }
        }
        Ok(given)
    }
}

impl Given {
    /// Make `policies` say what was given; the others stay.
    pub(crate) fn over(&self, policies: &mut Policies) {
        for &policy in &self.which {
            policies.copy(policy, &self.policies);
        }
    }
}

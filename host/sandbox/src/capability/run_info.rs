//! `campanile:task/run-info`: the host's facts of the run, and reports of progress.

use std::sync::Arc;

use campanile_model::clock::Timestamp;

use crate::bindings::campanile::task::{run_info, types};
use crate::capability::logs::Logs;
use crate::capability::shared::Shared;

/// The facts of one call, and its log.
pub(crate) struct RunInfo {
    pub(crate) shared: Arc<Shared>,
    pub(crate) logs: Logs,
}

impl types::Host for RunInfo {}

impl run_info::Host for RunInfo {
    fn execution_id(&mut self) -> String {
        self.shared.call.facts.execution_id.to_string()
    }

    fn run_id(&mut self) -> String {
        self.shared.call.facts.run_id.to_string()
    }

    fn task_name(&mut self) -> String {
        self.shared.call.task.clone()
    }

    fn attempt(&mut self) -> u32 {
        self.shared.call.facts.attempt
    }

    fn is_recovery(&mut self) -> bool {
        self.shared.call.facts.is_recovery
    }

    fn scheduled_for(&mut self) -> types::Instant {
        instant(self.shared.call.facts.scheduled_time)
    }

    fn original_scheduled_time(&mut self) -> types::Instant {
        instant(self.shared.call.facts.original_scheduled_time)
    }

    fn deadline(&mut self) -> Option<types::Instant> {
        Some(instant(self.shared.deadline))
    }

    fn cancel_requested(&mut self) -> bool {
        self.shared.call.stop.is_requested()
    }

    fn report_progress(&mut self, percent: Option<u8>, message: String) {
        let message = match percent {
            Some(percent) => format!("{} % {message}", percent.min(100)),
            None => message,
        };
        self.logs.add("info", "progress".to_owned(), message);
    }
}

fn instant(time: Timestamp) -> types::Instant {
    let micros = time.micros();
    types::Instant {
        seconds: micros.div_euclid(1_000_000),
        // Below 1 000 000, so below 10⁹ when in nanoseconds.
        nanoseconds: micros.rem_euclid(1_000_000) as u32 * 1_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_before_the_epoch_count_their_fraction_upwards() {
        let time = instant(Timestamp::from_micros(-1));
        assert_eq!((time.seconds, time.nanoseconds), (-1, 999_999_000));
        let time = instant(Timestamp::from_micros(1_500_000));
        assert_eq!((time.seconds, time.nanoseconds), (1, 500_000_000));
    }
}

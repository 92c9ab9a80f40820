//! The values that all hosts share, as they are on record at one moment.

use campanile_control::reports::statistics;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use campanile_control::reports::health::CURSOR_AHEAD;
use campanile_control::reports::statistics::Rates;
use campanile_control::rules::lateness::OVERDUE;
use campanile_model::clock::Timestamp;
use campanile_store::stats::{self, Counts, HealthSigns, ScheduleCount, ScheduleTimes, Unfinished};
use campanile_store::{DbError, Tx, hosts, outbox};

/// The rates are those of the launches that were decided in this span.
const SPAN: Duration = Duration::from_secs(60);

type FloatGauge = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HostLabel {
    host: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScheduleLabel {
    schedule: String,
}

/// What is on record about schedules, launches and hosts at one moment.
pub struct RecordMetrics {
    schedules: ScheduleCount,
    signs: HealthSigns,
    unfinished: Unfinished,
    dead_messages: i64,
    /// Of the launches of the last minute.
    counts: Counts,
    rates: Rates,
    /// The live hosts, each with its last heartbeat.
    heartbeats: Vec<(String, Timestamp)>,
    /// At most the number that was asked for.
    times: Vec<ScheduleTimes>,
    has_more_schedules: bool,
}

impl RecordMetrics {
    /// Read the values at `now`, and those of at most `schedules_max` schedules by name.
    ///
    /// No statement reads the whole record. The rates read the launches of the last minute, as the audit does.
    pub async fn read(
        tx: &mut Tx,
        now: Timestamp,
        schedules_max: u32,
    ) -> Result<RecordMetrics, DbError> {
        let limit = i64::from(schedules_max);
        let mut times = match limit {
            0 => Vec::new(),
            _ => stats::schedule_times(tx, limit + 1).await?,
        };
        let has_more_schedules = times.len() as i64 > limit;
        times.truncate(schedules_max as usize);
        let live = hosts::live(tx).await?.into_iter();
        let (counts, rates) = statistics::counts_and_rates(tx, now, SPAN).await?;
        Ok(RecordMetrics {
            schedules: stats::schedule_count(tx).await?,
            signs: stats::health_signs(tx, now.minus(OVERDUE), now, now.plus(CURSOR_AHEAD)).await?,
            unfinished: stats::unfinished_by_status(tx).await?,
            dead_messages: outbox::count_dead(tx).await?,
            counts,
            rates,
            heartbeats: live.map(|host| (host.name, host.heartbeat_at)).collect(),
            times,
            has_more_schedules,
        })
    }

    /// Returns the values in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut registry = super::registry();
        self.add_counts(&mut registry);
        self.add_rates(&mut registry);
        self.add_heartbeats(&mut registry);
        if !self.times.is_empty() {
            self.add_schedules(&mut registry);
        }
        super::encoded(&registry)
    }

    fn add_counts(&self, registry: &mut Registry) {
        let schedules: Family<StateLabel, Gauge> = Family::default();
        let ScheduleCount { total, active } = self.schedules;
        for (state, count) in [("active", active), ("inactive", total - active)] {
            schedules.get_or_create(&StateLabel { state }).set(count);
        }
        let unfinished: Family<StatusLabel, Gauge> = Family::default();
        for (status, count) in [
            ("running", self.unfinished.running),
            ("open", self.unfinished.open),
            ("queued", self.unfinished.queued),
        ] {
            unfinished.get_or_create(&StatusLabel { status }).set(count);
        }
        let value = |count: i64| ConstGauge::new(count as f64);
        register! { registry;
            "schedules", "Schedules: active ones have a next slot, inactive ones are paused or have no more slots" => schedules;
            "unfinished_launches", "Launches that have not ended: running or waiting for a retry, open for a host, queued behind another launch"
                => unfinished;
            "overdue_slots", "Schedules whose next slot no host has decided for more than a minute; more than 10 are unhealthy"
                => value(self.signs.overdue_schedules);
            "stalled_launches", "Launches and runs that have stood still for more than a minute; more than 5 are unhealthy"
                => value(self.signs.stalled);
            "cursors_ahead", "Schedules that have decided slots ahead of the clock" => value(self.signs.cursors_ahead);
            "live_hosts", "Hosts whose lease has not ended" => value(self.signs.live_hosts);
            "dead_messages", "Messages of the outbox that were given up" => value(self.dead_messages);
        }
    }

    /// Add what the launches of the last minute come to. A share of nothing is left out.
    fn add_rates(&self, registry: &mut Registry) {
        let (counts, rates) = (&self.counts, &self.rates);
        register! { registry, if known;
            "executions_per_minute", "Launches of the last minute that succeeded or failed" => Some(rates.executions_per_minute);
            "average_time_seconds", "The mean time from start to end of the executions of the last minute"
                => rates.average_time_ms.map(|ms| ms / 1e3);
            "success_ratio", "The share of the ended launches of the last minute that succeeded" => rates.success_rate;
            "failed_ratio", "The share of the ended launches of the last minute that failed" => rates.failed_rate;
            "recovery_success_ratio", "The share of the recovered launches of the last minute that succeeded"
                => rates.recovery_success_rate;
            "recent_recoveries", "Recoveries of launches of the last minute" => Some(counts.recovery_attempts as f64);
            "recent_lost", "How often launches of the last minute lost their host" => Some(rates.lost as f64);
        }
    }

    fn add_heartbeats(&self, registry: &mut Registry) {
        let heartbeats: Family<HostLabel, FloatGauge> = Family::default();
        for (host, at) in &self.heartbeats {
            let host = host.clone();
            heartbeats
                .get_or_create(&HostLabel { host })
                .set(seconds(*at));
        }
        register! { registry;
            "host_last_heartbeat_timestamp_seconds", "The last heartbeat of a host that has not ended, in seconds since 1970"
                => heartbeats;
        }
    }

    fn add_schedules(&self, registry: &mut Registry) {
        let successes: Family<ScheduleLabel, FloatGauge> = Family::default();
        let slots: Family<ScheduleLabel, FloatGauge> = Family::default();
        let paused: Family<ScheduleLabel, Gauge> = Family::default();
        for times in &self.times {
            let schedule = times.schedule.clone();
            let label = ScheduleLabel { schedule };
            if let Some(at) = times.success_scheduled_time {
                successes.get_or_create(&label).set(seconds(at));
            }
            if let Some(at) = times.next_slot {
                slots.get_or_create(&label).set(seconds(at));
            }
            paused.get_or_create(&label).set(i64::from(!times.enabled));
        }
        let left_out = f64::from(u8::from(self.has_more_schedules));
        register! { registry;
            "schedule_last_success_timestamp_seconds", "The newest slot of a schedule that succeeded, in seconds since 1970"
                => successes;
            "schedule_next_slot_timestamp_seconds", "The next slot of a schedule, in seconds since 1970" => slots;
            "schedule_paused", "1 while a schedule is paused" => paused;
            "schedules_left_out", "1 when there are more schedules than the metrics of single schedules may have"
                => ConstGauge::new(left_out);
        }
    }
}

/// Returns the seconds since 1970.
fn seconds(at: Timestamp) -> f64 {
    at.micros() as f64 / 1e6
}

#[cfg(test)]
impl RecordMetrics {
    /// Values in which every metric appears.
    pub(super) fn example() -> RecordMetrics {
        let at = |second: i64| Timestamp::from_micros(second * 1_000_000);
        let counts = Counts {
            launches: 4,
            succeeded: 3,
            failed: 1,
            recovered: 1,
            recovery_attempts: 1,
            recovery_successes: 1,
            ..Counts::default()
        };
        RecordMetrics {
            schedules: ScheduleCount {
                total: 3,
                active: 2,
            },
            signs: HealthSigns {
                overdue_schedules: 11,
                live_hosts: 1,
                ..HealthSigns::default()
            },
            unfinished: Unfinished::default(),
            dead_messages: 0,
            counts,
            rates: Rates::of(&counts, SPAN, &[(at(1), at(3))]),
            heartbeats: vec![("one".to_owned(), at(1_800_000_000))],
            times: vec![ScheduleTimes {
                schedule: "night \"ly\"".to_owned(),
                next_slot: Some(at(1_800_000_060)),
                enabled: true,
                success_scheduled_time: Some(at(1_800_000_000)),
            }],
            has_more_schedules: true,
        }
    }

    /// Leave nothing of which there is a rate, and no single schedule.
    pub(super) fn clear_launches_and_schedules(&mut self) {
        self.counts = Counts::default();
        self.rates = Rates::of(&self.counts, SPAN, &[]);
        self.times.clear();
    }
}

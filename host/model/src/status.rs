//! The closed sets of words that the record keeps.

use crate::ids::LaunchId;
use crate::words;

words! {
    /// What a rule for alerts watches.
    AlertKind {
        /// Launches of a schedule failed.
        Failed => "failed",
        /// A launch did not start in time.
        LateStart => "late_start",
        /// A launch runs for too long.
        TooLong => "too_long",
        /// A launch succeeded suspiciously fast.
        TooShort => "too_short",
        /// No launch of a schedule has succeeded for some time.
        NoSuccessFor => "no_success_for",
        /// No launch has succeeded within the schedule's policy `expect_within`.
        ExpectWithin => "expect_within",
        /// The last launch of a schedule was abandoned.
        Abandoned => "abandoned",
        /// The last launch of a schedule ended as unknown.
        Unknown => "unknown",
        /// A host died, or lost its connection to the database.
        HostSilent => "host_silent",
        /// Too few recovered launches succeed.
        RecoveryRate => "recovery_rate",
        /// The record is near its greatest size.
        RecordFull => "record_full",
        /// The newest file of a package cannot be used.
        PackageRejected => "package_rejected",
    }
}

words! {
    /// The state of an alert.
    AlertStatus {
        /// The condition holds, and not yet for the rule's `for`.
        Pending => "pending",
        Firing => "firing",
        /// The condition has not held for the rule's `resolve_after`. This is final.
        Resolved => "resolved",
    }
}

words! {
    /// How much an alert matters.
    #[derive(Default)]
    Severity {
        Info => "info",
        #[default]
        Warning => "warning",
        Critical => "critical",
    }
}

words! {
    /// What a message about alerts says.
    AlertMessageKind {
        Firing => "firing",
        Resolved => "resolved",
        /// An operator tried the channel.
        Test => "test",
    }
}

words! {
    /// What was decided about a slot.
    Decision {
        Launched => "launched",
        /// Waits for other launches of its schedule, or for its fire time; then it is launched or skipped.
        Queued => "queued",
        Skipped => "skipped",
    }
}

words! {
    /// The status of a launch. ARCHITECTURE.md has a diagram.
    LaunchStatus {
        /// Decided, and waiting for a host with free capacity.
        Open => "open",
        /// Waits for other launches of its schedule, or for its fire time.
        Queued => "queued",
        /// A host runs it.
        Running => "running",
        /// A task failed and is to be called again at a stored time.
        Waiting => "waiting",
        Succeeded => "succeeded",
        Failed => "failed",
        /// Ended early, for another launch or by an operator. A launch that had not started is skipped instead.
        Cancelled => "cancelled",
        /// Its delivery is at most once, and its run was lost: its tasks may or may not have run.
        Unknown => "unknown",
        /// Recovery gave it up, for the recorded reason.
        Abandoned => "abandoned",
        /// It was decided not to launch it, for the recorded reason.
        Skipped => "skipped",
    }
}

words! {
    /// The status of a run.
    RunStatus {
        Running => "running",
        /// Holds no capacity until a task's retry is due.
        Waiting => "waiting",
        Succeeded => "succeeded",
        Failed => "failed",
        /// Ended early, because it was asked to end.
        Cancelled => "cancelled",
        /// Its host died, or gave it back when it stopped.
        Lost => "lost",
    }
}

words! {
    /// The status of a backfill.
    BackfillStatus {
        Running => "running",
        /// Every slot was launched or skipped, and every launch has ended.
        Done => "done",
        /// An operator cancelled it. Launches that had not started are skipped.
        Cancelled => "cancelled",
    }
}

words! {
    /// The status of a message of the outbox.
    MessageStatus {
        /// Is delivered until the receiver accepts it.
        Pending => "pending",
        /// The receiver has accepted it.
        Delivered => "delivered",
        /// No delivery succeeded in time, or the receiver wants none. An operator can retry it.
        Dead => "dead",
        /// An operator decided that it is not delivered.
        Discarded => "discarded",
    }
}

words! {
    /// The source of a schedule's definition.
    Origin {
        /// The command line.
        Operator => "operator",
        /// The schedules file beside the configuration.
        File => "file",
        /// The file beside the package.
        Sidecar => "sidecar",
        /// The package's own proposal.
        Package => "package",
    }
}

words! {
    /// Why a call of a task failed.
    FailureKind {
        Failed => "failed",
        Trapped => "trapped",
        TimedOut => "timed_out",
        MemoryExceeded => "memory_exceeded",
        Denied => "denied",
        InvalidOutput => "invalid_output",
        /// Its package has used up its quota of the day.
        QuotaExceeded => "quota_exceeded",
        HostError => "host_error",
        Refused => "refused",
        Cancelled => "cancelled",
        Lost => "lost",
    }
}

words! {
    /// What an event reports.
    EventKind {
        /// A host started.
        HostStarted => "host_started",
        /// A host shut down in order.
        HostStopped => "host_stopped",
        /// A host was marked as dead.
        HostDied => "host_died",
        /// An operator asked a host to claim nothing.
        HostDrained => "host_drained",
        /// An operator let a drained host claim launches again.
        HostResumed => "host_resumed",
        /// A version was loaded, or replaced another.
        PackageLoaded => "package_loaded",
        /// A file or a sidecar cannot be used.
        PackageRejected => "package_rejected",
        /// A package's file is gone.
        PackageMissing => "package_missing",
        /// A package's file was gone for `forget_after`: the schedules ended that it or its sidecar defined.
        PackageForgotten => "package_forgotten",
        /// A person uploaded the file of a package to a host.
        PackageUploaded => "package_uploaded",
        /// An operator removed a package from the record.
        PackageRemoved => "package_removed",
        /// The tasks of a package have used up its record quota of the day.
        QuotaExceeded => "quota_exceeded",
        /// A new file waits for an approval.
        VersionPending => "version_pending",
        /// A file whose version was rejected or rolled back stays inactive.
        VersionBlocked => "version_blocked",
        /// A version with a lower version number than the active one became active by itself.
        VersionDowngraded => "version_downgraded",
        /// A run was refused: its version is not pinned, approved or signed as it must be, or was decided against.
        VersionRefused => "version_refused",
        /// The database holds other bytes than those that the digest of a version names. They are not run.
        VersionAltered => "version_altered",
        /// An operator approved a version.
        VersionApproved => "version_approved",
        /// An operator rejected a version.
        VersionRejected => "version_rejected",
        /// An operator activated a former version.
        PackageRolledBack => "package_rolled_back",
        /// A schedule was added.
        ScheduleAdded => "schedule_added",
        /// A schedule was edited.
        ScheduleChanged => "schedule_changed",
        /// A schedule was renamed.
        ScheduleRenamed => "schedule_renamed",
        /// A schedule was paused.
        SchedulePaused => "schedule_paused",
        /// A schedule was resumed.
        ScheduleResumed => "schedule_resumed",
        /// A schedule was removed.
        ScheduleRemoved => "schedule_removed",
        /// A schedule of a file, a sidecar or a package was refused.
        ScheduleRefused => "schedule_refused",
        /// A proposal of a package isn't used any more: a definition with more authority has its name.
        ProposalReplaced => "proposal_replaced",
        /// An operator skipped a slot.
        SlotSkipped => "slot_skipped",
        /// An operator restored a skipped slot.
        SlotRestored => "slot_restored",
        /// A changed schedules file was applied.
        SchedulesFileApplied => "schedules_file_applied",
        /// The schedules file has an error, or is gone.
        SchedulesFileRejected => "schedules_file_rejected",
        /// The audit corrected a next slot.
        ScheduleReconciled => "schedule_reconciled",
        /// The zone database of a host changed.
        TzdataChanged => "tzdata_changed",
        /// A host started whose configuration gives other policies to schedules that do not set them.
        DefaultsChanged => "defaults_changed",
        /// Recovery opened a launch again.
        LaunchRecovered => "launch_recovered",
        /// Recovery gave a launch up.
        LaunchAbandoned => "launch_abandoned",
        /// A launch was cancelled, or asked to end.
        LaunchCancelled => "launch_cancelled",
        /// An operator asked for a launch now.
        LaunchTriggered => "launch_triggered",
        /// An operator asked to run a launch again.
        LaunchRetried => "launch_retried",
        /// A launch at most once was lost.
        LaunchUnknown => "launch_unknown",
        /// A message of the outbox was given up.
        MessageDead => "message_dead",
        /// An operator asked to deliver a message again.
        MessageRetried => "message_retried",
        /// An operator discarded a message.
        MessageDiscarded => "message_discarded",
        /// Requests to the API or to a page were refused: no proof of who makes them, or a role that is not enough.
        RequestRefused => "request_refused",
        /// An alert began to fire.
        AlertFired => "alert_fired",
        /// An alert was resolved.
        AlertResolved => "alert_resolved",
        /// An operator silenced alerts.
        AlertSilenced => "alert_silenced",
        /// An operator ended a silence.
        AlertUnsilenced => "alert_unsilenced",
        /// A message about alerts was given up.
        AlertMessageDead => "alert_message_dead",
        /// A backfill started.
        BackfillStarted => "backfill_started",
        /// A backfill ended.
        BackfillDone => "backfill_done",
        /// A backfill was cancelled.
        BackfillCancelled => "backfill_cancelled",
        /// The record exceeds `max_bytes`, so launches are removed before their age; or it does not any more.
        RecordSizeChanged => "record_size_changed",
        /// The result of the health check changed.
        HealthChanged => "health_changed",
        /// A host decides and claims nothing, because the disk of the database is nearly full.
        DiskLow => "disk_low",
        /// The disk of the database has room again.
        DiskFreed => "disk_freed",
        /// A host decides and claims nothing until it is started again, because the database is damaged.
        DatabaseDamaged => "database_damaged",
        /// The clock of a host's machine or of the database stepped. The host pauses until its time is known.
        ClockStepped => "clock_stepped",
        /// A host knows the time again, and works.
        ClockKnown => "clock_known",
        /// The database lost the record of runs that a host had begun, as a standby does that lagged when it was promoted.
        RunsRepeated => "runs_repeated",
        /// A wrong clock has decided slots of a schedule that are to come.
        CursorAhead => "cursor_ahead",
        /// An operator reset the cursor of a schedule.
        CursorReset => "cursor_reset",
        /// A token was created.
        TokenCreated => "token_created",
        /// A token was revoked.
        TokenRevoked => "token_revoked",
        /// The database was copied. Only the copy has this event.
        BackupTaken => "backup_taken",
        /// The database was restored from a copy.
        DatabaseRestored => "database_restored",
    }
}

words! {
    /// Why a host ended.
    EndReason {
        /// It shut down in order.
        Stopped => "stopped",
        /// It was marked as dead.
        Died => "died",
    }
}

words! {
    /// An operator's decision about one version of a package. It applies to every host.
    VersionDecision {
        /// It may become active, whatever it requests.
        Approved => "approved",
        /// It never becomes active.
        Rejected => "rejected",
        /// It was active or pending when an operator activated another version. It stays inactive until it is approved.
        RolledBack => "rolled_back",
    }
}

words! {
    /// What happens to a launch while another launch of its schedule is active.
    #[derive(Default)]
    Overlap {
        /// Skip the new launch.
        #[default]
        Skip => "skip",
        /// Queue one launch; skip the others.
        BufferOne => "buffer_one",
        /// Queue the new launch.
        BufferAll => "buffer_all",
        /// Ask the active launch to end, and queue the new launch.
        CancelOther => "cancel_other",
        /// End the active launch, and start the new launch.
        TerminateOther => "terminate_other",
        /// Start the new launch beside the active launch.
        Allow => "allow",
    }
}

/// A launch that is displaced by another launch of its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Displaced {
    pub launch: LaunchId,
    pub by: LaunchId,
}

words! {
    /// Why no host executes a launch any more.
    OrphanCause {
        CancelRequested => "cancel_requested",
        RetryNotClaimed => "retry_not_claimed",
        HostStopped => "host_stopped",
        HostDied => "host_died",
        LeaseExpired => "lease_expired",
        DecidingHostDied => "deciding_host_died",
        NotClaimed => "not_claimed",
    }
}

impl OrphanCause {
    /// Returns the cause as a clause, for events and messages.
    pub fn clause(self) -> &'static str {
        match self {
            OrphanCause::CancelRequested => "it was asked to end",
            OrphanCause::RetryNotClaimed => "no host claimed its retry in time",
            OrphanCause::HostStopped => "its host was stopped",
            OrphanCause::HostDied => "its host died",
            OrphanCause::LeaseExpired => "its lease expired",
            OrphanCause::DecidingHostDied => "the host that decided it died",
            OrphanCause::NotClaimed => "no host claimed it in time",
        }
    }
}

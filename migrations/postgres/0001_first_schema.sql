-- Campanile's first schema. The two databases have the same tables, columns and
-- constraints; only the spelling of the types differs.
--
--   identities   UUID
--   instants     TIMESTAMPTZ
--   SHA-256      BYTEA
--   JSON         TEXT, exactly as it was written
--
-- The comment before an index names the functions that need it.
--
-- The tables that every launch writes have no foreign keys. A row is written in one transaction with the row that
-- it refers to, or after that row was read under a lock. A foreign key would make the database look up, and on
-- Postgres lock, one more row for each row. Only retention deletes such rows: a launch in one transaction with its
-- lost runs and its calls.

-- One row for each `campanile serve` process.
CREATE TABLE host (
    id UUID NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    -- The processes of one name are numbered. The one with the greatest number has the name.
    number BIGINT NOT NULL CHECK (number >= 1),
    version TEXT NOT NULL,
    wasmtime_version TEXT NOT NULL,
    tzdata_version TEXT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    heartbeat_at TIMESTAMPTZ NOT NULL,
    -- When the host counts as dead unless a heartbeat comes before.
    lease_until TIMESTAMPTZ NOT NULL,
    -- The most runs at once.
    runs_max BIGINT NOT NULL CHECK (runs_max >= 1),
    -- Its labels, sorted and separated by commas; empty for none.
    labels TEXT NOT NULL,
    -- Set by the host itself when it stops, or by another host that marks it as dead.
    ended_at TIMESTAMPTZ,
    end_reason TEXT CHECK (end_reason IN ('stopped', 'died')),
    -- Set while an operator wants the host to claim nothing. The next process of the same name inherits it.
    drained_at TIMESTAMPTZ,
    drained_by TEXT,
    -- When the drained host had committed its last claim.
    claims_ended_at TIMESTAMPTZ,
    -- While it has trouble with the database: the last failure, and since when.
    trouble TEXT,
    trouble_since TIMESTAMPTZ,
    CHECK ((trouble IS NULL) = (trouble_since IS NULL)),
    CHECK ((ended_at IS NULL) = (end_reason IS NULL)),
    CHECK ((drained_at IS NULL) = (drained_by IS NULL)),
    CHECK (drained_at IS NOT NULL OR claims_ended_at IS NULL)
);
-- hosts::register, hosts::lock_name, hosts::is_replaced, hosts::lives
CREATE UNIQUE INDEX host_number ON host (name, number);
-- hosts::mark_predecessors_dead, hosts::live
CREATE INDEX host_live ON host (name) WHERE ended_at IS NULL;
-- hosts::newest
CREATE INDEX host_ended ON host (name, started_at) WHERE ended_at IS NOT NULL;

-- The bytes of every artifact that a launch may need. A launch runs the digest it was
-- decided with, also when the file has changed since. Retention removes the bytes of old versions and keeps their rows.
CREATE TABLE artifact (
    digest BYTEA NOT NULL PRIMARY KEY,
    form TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    -- None when retention has removed them.
    bytes BYTEA,
    stored_at TIMESTAMPTZ NOT NULL,
    removed_at TIMESTAMPTZ,
    CHECK ((bytes IS NULL) = (removed_at IS NOT NULL))
);

CREATE TABLE package (
    name TEXT NOT NULL PRIMARY KEY,
    -- The active version; none when no version was ever active.
    digest BYTEA REFERENCES artifact (digest),
    manifest TEXT NOT NULL,
    -- When a host last loaded the active version.
    loaded_at TIMESTAMPTZ,
    -- What the sidecar that a host published last grants, one a line, without values.
    grants TEXT NOT NULL DEFAULT '',
    -- The version of the newest file, while it is not active.
    pending_digest BYTEA REFERENCES artifact (digest),
    pending_since TIMESTAMPTZ,
    -- Set while no live host has the package in its folder.
    missing_since TIMESTAMPTZ,
    -- Why the newest file, or its sidecar, cannot be used.
    rejection TEXT,
    rejected_at TIMESTAMPTZ,
    -- The host that has that file in its folder.
    rejected_by UUID REFERENCES host (id),
    -- The file, if the host could read it: each host that has it rejects it.
    rejected_digest BYTEA,
    -- Set while a host loads the newest file, once that has taken a second.
    loading_since TIMESTAMPTZ,
    loading_by UUID REFERENCES host (id),
    CHECK ((digest IS NULL) = (loaded_at IS NULL)),
    CHECK ((pending_digest IS NULL) = (pending_since IS NULL)),
    CHECK (pending_digest IS NULL OR ((digest IS NULL OR digest <> pending_digest) AND rejection IS NULL)),
    CHECK ((rejection IS NULL) = (rejected_at IS NULL)),
    CHECK ((rejection IS NULL) = (rejected_by IS NULL)),
    CHECK (rejected_digest IS NULL OR rejection IS NOT NULL),
    CHECK ((loading_since IS NULL) = (loading_by IS NULL))
);

-- The versions of a package that a host has seen, and a person's decision about each. It holds for every host.
CREATE TABLE package_version (
    package TEXT NOT NULL REFERENCES package (name),
    digest BYTEA NOT NULL REFERENCES artifact (digest),
    manifest TEXT NOT NULL,
    first_seen_at TIMESTAMPTZ NOT NULL,
    -- When it last became active; none when it never was.
    activated_at TIMESTAMPTZ,
    decision TEXT CHECK (decision IN ('approved', 'rejected', 'rolled_back')),
    decided_at TIMESTAMPTZ,
    decided_by TEXT,
    note TEXT,
    -- HMACs of the decision with keys that hosts have and the database doesn't. Without one of its own, a host ignores an approval.
    seal TEXT,
    -- The signature file beside the package, if a key that a host trusts made it.
    signature TEXT,
    -- Its launches, as far as they're sealed. Those that were abandoned, or whose end is unknown, have failed.
    succeeded BIGINT NOT NULL DEFAULT 0,
    failed BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (package, digest),
    CHECK ((decision IS NULL) = (decided_at IS NULL)),
    CHECK ((decision IS NULL) = (decided_by IS NULL)),
    CHECK (decision IS NOT NULL OR note IS NULL),
    CHECK (decision IS NOT NULL OR seal IS NULL)
);

-- Which live host has which package. A run goes only to a host where the operator put the package and its grants.
CREATE TABLE package_host (
    package TEXT NOT NULL REFERENCES package (name),
    host_id UUID NOT NULL REFERENCES host (id),
    digest BYTEA NOT NULL,
    -- The only digest that its sidecar accepts.
    pin TEXT,
    PRIMARY KEY (package, host_id)
);

-- What the sidecar that a host last used says about contexts. The sidecar itself is the host's own file.
CREATE TABLE package_sidecar (
    package TEXT NOT NULL REFERENCES package (name),
    -- The host's name, which outlives its processes.
    host TEXT NOT NULL,
    -- JSON; empty without a table [context].
    context TEXT NOT NULL,
    PRIMARY KEY (package, host)
);

-- What the tasks of a package have added to the record on a day: outputs, logs and messages.
CREATE TABLE package_record (
    package TEXT NOT NULL,
    -- Days since 1970, in UTC.
    day BIGINT NOT NULL,
    bytes BIGINT NOT NULL CHECK (bytes >= 0),
    -- When the package had used up its quota of the day.
    exceeded_at TIMESTAMPTZ,
    PRIMARY KEY (package, day)
);

-- The state of a schedule, which changes with time. Its definition is in schedule_revision.
CREATE TABLE schedule (
    id UUID NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    package TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('operator', 'file', 'sidecar', 'package')),
    revision BIGINT NOT NULL CHECK (revision >= 1),
    enabled BOOLEAN NOT NULL,
    -- The last decided slot, or the instant before which no slot is decided: creation, resume, edit. It never goes back.
    cursor_at TIMESTAMPTZ NOT NULL,
    -- The first slot after the cursor; none when the schedule is paused, removed or has no more slots.
    next_slot TIMESTAMPTZ,
    -- Launches besides manual and backfill ones. max_launches limits this number.
    launches BIGINT NOT NULL DEFAULT 0 CHECK (launches >= 0),
    -- When a slot was last caught up, and when that launch fires. The next catch-up is spread from it.
    last_catchup_at TIMESTAMPTZ,
    last_catchup_fire_time TIMESTAMPTZ,
    -- The slots that a person skipped, a JSON list; none when there are none.
    skips TEXT,
    -- While the schedule is paused: when and by whom, the note, and when the pause ends by itself.
    paused_at TIMESTAMPTZ,
    paused_by TEXT,
    pause_note TEXT,
    paused_until TIMESTAMPTZ,
    -- When the last pause ended. pause_on_failure does not count failures before it.
    resumed_at TIMESTAMPTZ,
    -- Days since 1970, in UTC: retention has removed counts of slots before this day; a backfill skips them all. None
    -- before that.
    uncounted_before BIGINT,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    deleted_at TIMESTAMPTZ,
    CHECK (next_slot IS NULL OR (deleted_at IS NULL AND enabled)),
    CHECK (next_slot IS NULL OR next_slot > cursor_at),
    CHECK ((last_catchup_at IS NULL) = (last_catchup_fire_time IS NULL)),
    CHECK (enabled = (paused_at IS NULL)),
    CHECK (paused_at IS NOT NULL OR (paused_by IS NULL AND pause_note IS NULL AND paused_until IS NULL))
);
-- A name is free again when its schedule is removed.
CREATE UNIQUE INDEX schedule_name ON schedule (name) WHERE deleted_at IS NULL;
-- troubles::paused
CREATE INDEX schedule_paused ON schedule (name) WHERE deleted_at IS NULL AND NOT enabled;
-- schedules::removed
CREATE INDEX schedule_removed ON schedule (name) WHERE deleted_at IS NOT NULL;
-- schedules::defined_by_package, schedules::defined_by_file, schedules::is_any_of_file
CREATE INDEX schedule_defined ON schedule (origin, package) WHERE deleted_at IS NULL AND origin <> 'operator';
-- schedules::names_of_package, schedules::others_of_package, schedules::tasks_of_package
CREATE INDEX schedule_package ON schedule (package, name) WHERE deleted_at IS NULL;
-- schedules::due, schedules::newest_due, the same of operators, which pass over the proposed ones by the index alone,
-- schedules::next_due, stats::health_signs, which counts cursors by the index alone
CREATE INDEX schedule_due ON schedule (next_slot, cursor_at DESC, origin) WHERE next_slot IS NOT NULL;
-- schedules::expired_pause, schedules::next_due
CREATE INDEX schedule_paused_until ON schedule (paused_until) WHERE paused_until IS NOT NULL;

-- The definitions of schedules. Rows are only added: launches refer to the revision that decided them.
CREATE TABLE schedule_revision (
    schedule_id UUID NOT NULL REFERENCES schedule (id),
    revision BIGINT NOT NULL,
    name TEXT NOT NULL,
    package TEXT NOT NULL,
    task TEXT,
    kind TEXT NOT NULL CHECK (kind IN ('cron', 'every', 'at', 'after_completion')),
    expression TEXT NOT NULL,
    anchor TIMESTAMPTZ,
    timezone TEXT NOT NULL,
    day_match TEXT NOT NULL CHECK (day_match IN ('or', 'and')),
    dst_gap TEXT NOT NULL CHECK (dst_gap IN ('shift', 'skip')),
    dst_fold TEXT NOT NULL CHECK (dst_fold IN ('first', 'second', 'both')),
    -- A JSON list.
    exclude TEXT NOT NULL,
    -- A JSON object of the policies that the definition sets.
    policies TEXT NOT NULL,
    -- A JSON object of the policies that the configuration set, of those that the definition does not set.
    defaults TEXT NOT NULL,
    -- The arguments of a program, a JSON list of templates; none for those of the sidecar.
    args TEXT,
    context TEXT NOT NULL,
    since TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (schedule_id, revision)
);
-- history::schedules_named
CREATE INDEX schedule_revision_name ON schedule_revision (name);
-- schedules::after_completion
CREATE INDEX schedule_revision_counting ON schedule_revision (schedule_id) WHERE kind = 'after_completion';
-- schedules::at_host_start
CREATE INDEX schedule_revision_at_start ON schedule_revision (schedule_id) WHERE kind = 'cron' AND expression LIKE '%@reboot%';
-- retention::policies_with_age
CREATE INDEX schedule_revision_retention ON schedule_revision (schedule_id) WHERE policies LIKE '%"retention"%';
-- alert_facts::expecting_after
CREATE INDEX schedule_revision_expect_within ON schedule_revision (schedule_id) WHERE policies LIKE '%"expect_within"%';

-- The decision about one slot, or about a range of slots that were skipped for one reason; and the newest run of the launch.
CREATE TABLE launch (
    -- Made of the schedule, the slot and the kind: a slot has one decision, whichever host makes it. Ids sort by time.
    id UUID NOT NULL PRIMARY KEY,
    schedule_id UUID NOT NULL,
    schedule_revision BIGINT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('schedule', 'catchup', 'manual', 'backfill', 'startup')),
    status TEXT NOT NULL CHECK (status IN ('open', 'queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled', 'unknown', 'abandoned', 'skipped')),
    scheduled_time TIMESTAMPTZ NOT NULL,
    -- By how many seconds the clock of the schedule's zone was ahead of UTC.
    utc_offset BIGINT NOT NULL,
    -- The last slot of a range and the number of its slots; none for a single slot.
    last_scheduled_time TIMESTAMPTZ,
    slot_count BIGINT CHECK (slot_count >= 1),
    -- Why the launch was skipped, abandoned or cancelled.
    reason TEXT,
    -- The launch that it overlapped, when it was skipped or cancelled for that.
    overlaps_id UUID,
    -- The launch that an operator asked to run again.
    retry_of UUID,
    package TEXT NOT NULL,
    digest BYTEA,
    -- By these, hosts choose what to claim when they cannot claim all: whether it is a slot of a schedule that its
    -- package proposed, the priority of its revision, and the concurrency group, if its revision has one.
    proposed BOOLEAN NOT NULL,
    priority BIGINT NOT NULL CHECK (priority BETWEEN 0 AND 9),
    group_name TEXT,
    -- The labels that a host must have to claim it, sorted and separated by commas; none for any host.
    run_on TEXT,
    -- The context of a manual or backfill launch. It is merged over the schedule's context.
    context TEXT,
    -- The arguments that a person gave for this launch, in place of the schedule's.
    args TEXT,
    -- The overlap policy that a person gave for this launch.
    overlap TEXT CHECK (overlap IN ('skip', 'buffer_one', 'buffer_all', 'cancel_other', 'terminate_other', 'allow')),
    -- The trace context that the caller gave for this launch; none for a trace of its own.
    caller_traceparent TEXT,
    backfill_id UUID,
    interval_start TIMESTAMPTZ NOT NULL,
    fire_time TIMESTAMPTZ NOT NULL,
    decided_by UUID,
    decided_at TIMESTAMPTZ NOT NULL,
    -- When it left the queue, if it was queued.
    opened_at TIMESTAMPTZ,
    -- The host that claimed the newest run; none when the launch is open or has never been claimed.
    host_id UUID,
    -- How often the launch was claimed, for a run or for a retry. It is the fence of the newest claim.
    attempts BIGINT NOT NULL DEFAULT 0,
    -- The SHA-256 of the grants and of the context of the newest run at its last claim.
    grants_hash BYTEA,
    context_hash BYTEA,
    -- While it runs: when the claim ends unless the host renews it.
    lease_until TIMESTAMPTZ,
    retry_at TIMESTAMPTZ,
    -- Set when the run was asked to end: by when it must end.
    cancel_deadline TIMESTAMPTZ,
    -- How often it was opened again because no host executed it. The number of its newest run is one more.
    recoveries BIGINT NOT NULL DEFAULT 0 CHECK (recoveries BETWEEN 0 AND 254),
    -- Its lost runs since the last one that was lost long after its start. They count towards the limit of recovery.
    lost_runs BIGINT NOT NULL DEFAULT 0 CHECK (lost_runs >= 0),
    recovered_at TIMESTAMPTZ,
    -- After a recovery: before this, no host claims the launch.
    not_before TIMESTAMPTZ,
    -- When the newest run was claimed for the first time.
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    failure TEXT,
    message TEXT,
    CHECK ((last_scheduled_time IS NULL) = (slot_count IS NULL)),
    CHECK ((kind = 'backfill') = (backfill_id IS NOT NULL)),
    CHECK (overlap IS NULL OR kind = 'manual'),
    CHECK (args IS NULL OR kind = 'manual'),
    CHECK (caller_traceparent IS NULL OR kind = 'manual'),
    CHECK ((finished_at IS NULL) = (status IN ('open', 'queued', 'running', 'waiting'))),
    CHECK ((lease_until IS NOT NULL) = (status = 'running')),
    CHECK ((retry_at IS NOT NULL) = (status = 'waiting')),
    CHECK (host_id IS NOT NULL OR status NOT IN ('running', 'waiting', 'succeeded', 'failed')),
    CHECK (host_id IS NULL OR status NOT IN ('open', 'queued', 'skipped')),
    CHECK ((host_id IS NULL) = (started_at IS NULL))
);
-- launch::of_schedule, which reads newest first
CREATE INDEX launch_schedule ON launch (schedule_id, scheduled_time);
-- launch::unfinished, launch::orphaned_runs, alert_facts::runs_after
CREATE INDEX launch_active ON launch (schedule_id) WHERE status IN ('running', 'waiting');
-- launch::retries
CREATE INDEX launch_retry ON launch (retry_at) WHERE status = 'waiting';
-- launch::running_in_group
CREATE INDEX launch_running_group ON launch (group_name) WHERE status = 'running' AND group_name IS NOT NULL;
-- launch::claimable, launch::claimable_on_time, launch::next_wake
CREATE INDEX launch_open ON launch (fire_time) WHERE status = 'open' AND group_name IS NULL;
-- launch::waiting_packages, launch::open_of_package
--
-- The last condition is always true. It keeps the databases from using this index in place of launch_open.
CREATE INDEX launch_share ON launch (priority, proposed, package, fire_time)
    WHERE status = 'open' AND group_name IS NULL AND priority IS NOT NULL;
-- launch::waiting_groups, launch::open_of_group
CREATE INDEX launch_group ON launch (priority, proposed, group_name, fire_time) WHERE status = 'open' AND group_name IS NOT NULL;
-- stats::missing_labels
CREATE INDEX launch_labels ON launch (run_on, fire_time) WHERE status = 'open' AND run_on IS NOT NULL;
-- launch::unfinished
--
-- The last condition is always true. It keeps the databases from using this index in place of launch_open.
CREATE INDEX launch_unclaimed ON launch (schedule_id) WHERE status = 'open' AND schedule_id IS NOT NULL;
-- launch::unfinished, launch::queued_schedules
CREATE INDEX launch_queued ON launch (schedule_id) WHERE status = 'queued';
-- launch::next_wake
CREATE INDEX launch_queued_fire ON launch (fire_time) WHERE status = 'queued' AND fire_time IS NOT NULL;
-- backfills::launch_totals, launch::withdraw_backfill
CREATE INDEX launch_backfill ON launch (backfill_id) WHERE backfill_id IS NOT NULL;
-- launch::window_of_failures, launch::newest_failures
CREATE INDEX launch_failed ON launch (id) WHERE status IN ('failed', 'cancelled', 'unknown', 'abandoned');
-- launch::list
CREATE INDEX launch_decided ON launch (decided_at);
-- alert_facts::recoveries
CREATE INDEX launch_recovered ON launch (recovered_at) WHERE recovered_at IS NOT NULL;

-- A run that was lost before its launch was opened again. Rows are added, and deleted with their launch.
CREATE TABLE lost_run (
    launch_id UUID NOT NULL,
    -- Runs of a launch are numbered from 1.
    number BIGINT NOT NULL CHECK (number >= 1),
    -- As they were in the launch.
    host_id UUID NOT NULL,
    grants_hash BYTEA,
    context_hash BYTEA,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ NOT NULL,
    -- Why it was taken as lost.
    message TEXT NOT NULL,
    PRIMARY KEY (launch_id, number)
);

-- The launches that retention removed: one row for each schedule, day of the slot, day of the decision and status.
-- A transaction that removes launches changes it, so that statistics stay whole. Retention deletes rows of old days.
CREATE TABLE removed_launches (
    schedule_id UUID NOT NULL,
    -- Days since 1970, in UTC: of the slot, and of the decision.
    slot_day BIGINT NOT NULL,
    decided_day BIGINT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('succeeded', 'failed', 'cancelled', 'unknown', 'abandoned', 'skipped')),
    launches BIGINT NOT NULL CHECK (launches >= 1),
    -- More than the launches where one of them stands for a range of slots.
    slots BIGINT NOT NULL,
    -- The launches that were recovered at least once, and all recoveries.
    recovered BIGINT NOT NULL,
    recoveries BIGINT NOT NULL,
    -- The launches for whose slots backfills::slots_to_skip returned them.
    settled BIGINT NOT NULL,
    -- When launches were removed last.
    removed_at TIMESTAMPTZ NOT NULL,
    -- A chain over the removed launches: the SHA-256 of the hash before in hexadecimal digits, followed by the launch as JSON.
    hash BYTEA NOT NULL,
    PRIMARY KEY (schedule_id, slot_day, decided_day, status)
);
-- removed_launches::counts
CREATE INDEX removed_launches_decided ON removed_launches (decided_day);

-- What the calls used that retention removed: one row for each schedule, day of the slot, day of the decision and package.
-- A transaction that removes calls changes it, so that sums of use stay whole. Retention deletes rows of old days.
CREATE TABLE removed_calls (
    schedule_id UUID NOT NULL,
    -- Days since 1970, in UTC: of the slot, and of the decision.
    slot_day BIGINT NOT NULL,
    decided_day BIGINT NOT NULL,
    package TEXT NOT NULL,
    calls BIGINT NOT NULL CHECK (calls >= 1),
    cpu_us BIGINT NOT NULL,
    -- The greatest of one call.
    memory_peak_bytes BIGINT NOT NULL,
    -- Outputs, contexts, messages, logs, and what the tasks printed.
    record_bytes BIGINT NOT NULL,
    http_requests BIGINT NOT NULL,
    PRIMARY KEY (schedule_id, slot_day, decided_day, package)
);
-- task_use::removed, task_use::remove_sums
CREATE INDEX removed_calls_decided ON removed_calls (decided_day);

-- Cursors that an operator moved back: slots up to `from_at` may be decided again. `audit verify` explains by it why a slot has
-- two decisions.
CREATE TABLE cursor_reset (
    schedule_id UUID NOT NULL REFERENCES schedule (id),
    reset_at TIMESTAMPTZ NOT NULL,
    from_at TIMESTAMPTZ NOT NULL,
    to_at TIMESTAMPTZ NOT NULL,
    revision BIGINT NOT NULL,
    PRIMARY KEY (schedule_id, reset_at)
);

-- Clocks of hosts that went back from `until` to `since`. `audit verify` explains by it why a launch has ended before it began.
CREATE TABLE clock_set_back (
    host TEXT NOT NULL,
    since TIMESTAMPTZ NOT NULL,
    until TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (host, since)
);

-- A chain of hashes over finished launches and events. Rows are added; retention removes the leaves of old ones.
CREATE TABLE seal (
    -- 1, 2, 3 and so on.
    number BIGINT NOT NULL PRIMARY KEY,
    -- The end of its span, which begins at the end of the one before.
    until_at TIMESTAMPTZ NOT NULL,
    -- After the clock was set back: its span ends with that of the seal before, and rows that were decided since, up to this
    -- time, are sealed. None otherwise.
    late_at TIMESTAMPTZ,
    sealed_at TIMESTAMPTZ NOT NULL,
    launches BIGINT NOT NULL CHECK (launches >= 0),
    events BIGINT NOT NULL CHECK (events >= 0),
    -- For each sealed row its id and the first 16 bytes of its SHA-256: the launches, then the events.
    leaves BYTEA,
    leaves_hash BYTEA NOT NULL,
    -- The ids of launches that were decided before the end and had not ended.
    unfinished BYTEA NOT NULL,
    hash BYTEA NOT NULL
);
-- seals::remove_leaves
CREATE INDEX seal_leaves ON seal (until_at) WHERE leaves IS NOT NULL;

-- How the launches of a schedule went, by the hour and by the day (in UTC) of their slots. The transaction that seals a launch
-- counts it. Retention deletes the rows of old periods.
CREATE TABLE schedule_rollup (
    schedule_id UUID NOT NULL,
    period TEXT NOT NULL CHECK (period IN ('hour', 'day')),
    starts_at TIMESTAMPTZ NOT NULL,
    succeeded BIGINT NOT NULL,
    -- Also those that were abandoned, or whose end is unknown.
    failed BIGINT NOT NULL,
    -- Slots: a range has several.
    skipped BIGINT NOT NULL,
    cancelled BIGINT NOT NULL,
    -- Caught up, or started too late to be on time.
    late BIGINT NOT NULL,
    -- The sum of the times that the launches took which succeeded or failed, in microseconds.
    run_us BIGINT NOT NULL,
    -- Histograms of these times, and of how late launches started: for each bucket that isn't empty its place, then its count.
    durations BYTEA NOT NULL,
    lags BYTEA NOT NULL,
    PRIMARY KEY (schedule_id, period, starts_at)
);
-- rollup::remove_schedules
CREATE INDEX schedule_rollup_starts ON schedule_rollup (period, starts_at);

-- The same of the launches of a package.
CREATE TABLE package_rollup (
    package TEXT NOT NULL,
    period TEXT NOT NULL CHECK (period IN ('hour', 'day')),
    starts_at TIMESTAMPTZ NOT NULL,
    succeeded BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    skipped BIGINT NOT NULL,
    cancelled BIGINT NOT NULL,
    late BIGINT NOT NULL,
    run_us BIGINT NOT NULL,
    durations BYTEA NOT NULL,
    lags BYTEA NOT NULL,
    PRIMARY KEY (package, period, starts_at)
);
-- rollup::remove_packages, rollup::results_of_hours
CREATE INDEX package_rollup_starts ON package_rollup (period, starts_at);

-- One call of one task that has ended. Rows are added, and deleted by retention, with their launch or before it.
CREATE TABLE task_run (
    launch_id UUID NOT NULL,
    task TEXT NOT NULL,
    -- The number of the call of this task, over all runs of the launch.
    attempt BIGINT NOT NULL,
    -- The number of its run.
    run_number BIGINT NOT NULL,
    succeeded BOOLEAN NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ NOT NULL,
    -- When the task is called again, if a retry is due.
    retry_at TIMESTAMPTZ,
    output TEXT,
    context TEXT,
    failure TEXT,
    message TEXT,
    -- What the host says about a failure of the task's own. The message is the task's then.
    note TEXT,
    stdout TEXT NOT NULL,
    -- The bytes beyond the limit, which were dropped.
    stdout_bytes_dropped BIGINT NOT NULL DEFAULT 0,
    stderr TEXT NOT NULL,
    stderr_bytes_dropped BIGINT NOT NULL DEFAULT 0,
    logs TEXT NOT NULL,
    wall_ms DOUBLE PRECISION NOT NULL,
    cpu_ms DOUBLE PRECISION NOT NULL,
    memory_peak_bytes BIGINT NOT NULL,
    -- JSON object: for each limited resource, the amount used and the limit.
    usage TEXT NOT NULL,
    PRIMARY KEY (launch_id, task, attempt)
);

-- What the next launches of a schedule get in their context. The table is apart from schedule, so that
-- a finish does not wait for a transaction that decides.
CREATE TABLE schedule_result (
    schedule_id UUID NOT NULL PRIMARY KEY,
    -- The newest slot that succeeded, and its output.
    success_scheduled_time TIMESTAMPTZ,
    result TEXT,
    -- The failure of the newest slot that failed, if no later slot has succeeded.
    failure_scheduled_time TIMESTAMPTZ,
    failure TEXT,
    -- When the newest success was recorded.
    last_success_at TIMESTAMPTZ,
    -- When the first failure since then was recorded, and how many there are. The schedule fails now, unless it's null.
    failing_since TIMESTAMPTZ,
    streak BIGINT NOT NULL DEFAULT 0 CHECK (streak >= 0),
    CHECK ((failing_since IS NULL) = (failure IS NULL)),
    CHECK ((streak = 0) = (failure IS NULL))
);
-- troubles::failing, troubles::attention
CREATE INDEX schedule_result_failing ON schedule_result (failing_since, streak) WHERE failing_since IS NOT NULL;

-- The schedules whose runs use much more than a week before, each in the median of a week. A chore adds and deletes rows.
CREATE TABLE schedule_growth (
    schedule_id UUID NOT NULL PRIMARY KEY,
    -- When the pass began that noted it last.
    checked_at TIMESTAMPTZ NOT NULL,
    cpu_us_before BIGINT NOT NULL,
    cpu_us BIGINT NOT NULL,
    memory_peak_bytes_before BIGINT NOT NULL,
    memory_peak_bytes BIGINT NOT NULL
);

-- A request to launch the slots of a past range.
CREATE TABLE backfill (
    id UUID NOT NULL PRIMARY KEY,
    schedule_id UUID NOT NULL REFERENCES schedule (id),
    -- The revision whose rule yields the slots.
    schedule_revision BIGINT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'done', 'cancelled')),
    -- The requested range, both ends included. Slots after created_at do not belong to it.
    from_at TIMESTAMPTZ NOT NULL,
    to_at TIMESTAMPTZ NOT NULL,
    -- The least time between two launches.
    spread_ms BIGINT NOT NULL CHECK (spread_ms >= 0),
    -- Whether all slots are launched, also those that backfills::slots_to_skip returns.
    forced BOOLEAN NOT NULL,
    -- A JSON object that is merged over the schedule's context.
    context TEXT,
    -- The last slot that was considered, and when the next launch may fire.
    cursor_at TIMESTAMPTZ NOT NULL,
    next_fire TIMESTAMPTZ NOT NULL,
    -- The number of slots, and of those up to the cursor how many were launched and how many skipped.
    slots BIGINT NOT NULL,
    launched BIGINT NOT NULL DEFAULT 0,
    slots_skipped BIGINT NOT NULL DEFAULT 0,
    created_at TIMESTAMPTZ NOT NULL,
    created_by TEXT NOT NULL,
    finished_at TIMESTAMPTZ,
    CHECK ((finished_at IS NULL) = (status = 'running'))
);
-- backfills::running
CREATE INDEX backfill_running ON backfill (created_at) WHERE status = 'running';

-- Changes of hosts, packages, schedules, launches and health. Rows are added, and deleted by retention.
CREATE TABLE event (
    id UUID NOT NULL PRIMARY KEY,
    at TIMESTAMPTZ NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    -- The launch that it's about, if it's about one.
    launch_id UUID,
    detail TEXT NOT NULL,
    -- Who made the change, on which way, and from which network address. None of a host that acts by itself.
    principal TEXT,
    channel TEXT NOT NULL CHECK (channel IN ('cli', 'api', 'mcp', 'page', 'proxy', 'host')),
    address TEXT,
    -- From when to when a schedule's cursor was reset.
    from_at TIMESTAMPTZ,
    to_at TIMESTAMPTZ,
    CHECK ((principal IS NULL) = (channel = 'host')),
    CHECK (address IS NULL OR channel <> 'host'),
    CHECK ((from_at IS NULL) = (kind <> 'cursor_reset')),
    CHECK ((to_at IS NULL) = (kind <> 'cursor_reset'))
);
-- events::list
CREATE INDEX event_at ON event (at);
-- stats::clock_steps
CREATE INDEX event_clock ON event (at) WHERE kind = 'clock_stepped';
-- stats::damage
CREATE INDEX event_damage ON event (at) WHERE kind = 'database_damaged';
-- history::events. A subject may be longer than an entry of an index on Postgres.
CREATE INDEX event_subject ON event (substr(subject, 1, 200), at);

-- The tokens with which people and programs prove who they are. Only the hash of a secret is stored.
CREATE TABLE token (
    -- The SHA-256 of the secret.
    hash BYTEA NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'editor', 'approver', 'admin')),
    -- The only namespace that it sees; none for the whole installation.
    namespace TEXT CHECK (namespace <> ''),
    created_at TIMESTAMPTZ NOT NULL,
    -- From when it is refused; none when it does not expire.
    expires_at TIMESTAMPTZ,
    -- When it was last used, to the minute.
    last_used_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    -- HMACs with keys that hosts have and the database doesn't. Without one of its own, a host takes an approver or
    -- administrator for an editor.
    seal TEXT,
    CHECK (expires_at > created_at)
);
-- A name is free again when its token is revoked.
CREATE UNIQUE INDEX token_name ON token (name) WHERE revoked_at IS NULL;

-- Buckets, which tasks write to. A transaction that changes entries of a bucket has locked its row.
CREATE TABLE bucket (
    -- `package/bucket` for a bucket of one package; a shared bucket has no slash.
    namespace TEXT NOT NULL PRIMARY KEY,
    -- The bytes of all entries: keys, values, and a fixed number for each.
    bytes BIGINT NOT NULL CHECK (bytes >= 0),
    last_position BIGINT NOT NULL
);
CREATE TABLE bucket_entry (
    namespace TEXT NOT NULL,
    -- UTF-8.
    key BYTEA NOT NULL,
    -- The order in which keys were first set. Keys are listed by it, a page at a time.
    position BIGINT NOT NULL,
    value BYTEA NOT NULL,
    PRIMARY KEY (namespace, key)
);
-- buckets::keys
CREATE UNIQUE INDEX bucket_entry_position ON bucket_entry (namespace, position);

-- Messages of tasks to other systems, recorded with the success of a call. Hosts deliver them.
CREATE TABLE outbox_message (
    -- Follows from the launch, the task and the number. Each delivery has it as its idempotency key.
    id UUID NOT NULL PRIMARY KEY,
    status TEXT NOT NULL CHECK (status IN ('pending', 'delivered', 'dead', 'discarded')),
    launch_id UUID NOT NULL,
    package TEXT NOT NULL,
    task TEXT NOT NULL,
    -- Among the messages of the call, from 0.
    number BIGINT NOT NULL CHECK (number >= 0),
    method TEXT NOT NULL,
    url TEXT NOT NULL,
    -- A JSON list of pairs. A secret is its placeholder.
    headers TEXT NOT NULL,
    body BYTEA NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    -- No delivery begins later.
    give_up_at TIMESTAMPTZ NOT NULL,
    -- The deliveries that have begun. A host claims a message by increasing it.
    attempts BIGINT NOT NULL CHECK (attempts >= 0),
    -- When the next delivery is due. Of a claimed message, when the claim ends.
    next_attempt_at TIMESTAMPTZ,
    -- The host that delivers it now.
    host_id UUID,
    -- The status of the receiver's last answer, and why the last delivery failed.
    answer BIGINT,
    error TEXT,
    finished_at TIMESTAMPTZ,
    CHECK ((next_attempt_at IS NULL) = (status <> 'pending')),
    CHECK ((finished_at IS NULL) = (status = 'pending')),
    CHECK (host_id IS NULL OR status = 'pending')
);
-- outbox::due
CREATE INDEX outbox_message_due ON outbox_message (package, next_attempt_at) WHERE status = 'pending';
-- outbox::due_packages, outbox::count_pending
CREATE INDEX outbox_message_next ON outbox_message (next_attempt_at) WHERE status = 'pending';
-- messages::give_up
CREATE INDEX outbox_message_give_up ON outbox_message (give_up_at) WHERE status = 'pending';
-- messages::has_orphans, messages::release_orphans
CREATE INDEX outbox_message_host ON outbox_message (host_id) WHERE host_id IS NOT NULL;
-- outbox::remove_old
CREATE INDEX outbox_message_old ON outbox_message (finished_at) WHERE status IN ('delivered', 'discarded');
-- outbox::count_dead, outbox::list
CREATE INDEX outbox_message_dead ON outbox_message (id) WHERE status = 'dead';

-- An alert: one incident of a rule, about one schedule, package or host, or about the record.
CREATE TABLE alert (
    id UUID NOT NULL PRIMARY KEY,
    -- The name of the rule in the configuration.
    rule TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('failed', 'late_start', 'too_long', 'too_short', 'no_success_for', 'expect_within', 'abandoned', 'unknown', 'host_silent', 'recovery_rate', 'record_full', 'package_rejected')),
    severity TEXT NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
    status TEXT NOT NULL CHECK (status IN ('pending', 'firing', 'resolved')),
    -- The name of the schedule, package or host, or `record`.
    subject TEXT NOT NULL,
    -- The id of the schedule; of another subject its name.
    subject_id TEXT NOT NULL,
    -- One sentence. It stays as it was when the alert began to fire.
    detail TEXT NOT NULL,
    -- Incremented by each change. A host changes the row only if it is as the host has read it.
    version BIGINT NOT NULL CHECK (version >= 1),
    -- When a host first saw the condition.
    since_at TIMESTAMPTZ NOT NULL,
    fired_at TIMESTAMPTZ,
    -- When the messages about it were recorded; none while it is silenced.
    notified_at TIMESTAMPTZ,
    -- While it fires: when a host first saw that the condition does not hold any more.
    clear_at TIMESTAMPTZ,
    resolved_at TIMESTAMPTZ,
    -- How often the condition came back before the alert was resolved.
    flaps BIGINT NOT NULL CHECK (flaps >= 0),
    CHECK ((status = 'pending') = (fired_at IS NULL)),
    CHECK ((status = 'resolved') = (resolved_at IS NOT NULL))
);
-- alerts::insert, alerts::unresolved_of
CREATE UNIQUE INDEX alert_unresolved_subject ON alert (rule, subject_id) WHERE status <> 'resolved';
-- alerts::unresolved, alerts::count_firing
CREATE INDEX alert_unresolved ON alert (id) WHERE status <> 'resolved';
-- alerts::insert, alerts::remove_old, alerts::resolved_since
CREATE INDEX alert_resolved ON alert (resolved_at) WHERE resolved_at IS NOT NULL;

-- Messages about alerts to the channels of the configuration. Hosts deliver them, those of a channel and a rule in the
-- order of their ids.
CREATE TABLE alert_message (
    -- Each delivery has it as its `webhook-id`.
    id UUID NOT NULL PRIMARY KEY,
    channel TEXT NOT NULL,
    rule TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('firing', 'resolved', 'test')),
    status TEXT NOT NULL CHECK (status IN ('pending', 'delivered', 'dead', 'discarded')),
    -- The number of alerts that it is about.
    alerts BIGINT NOT NULL CHECK (alerts >= 0),
    created_at TIMESTAMPTZ NOT NULL,
    -- No delivery begins later.
    give_up_at TIMESTAMPTZ NOT NULL,
    -- The deliveries that have begun. A host claims a message by incrementing it. More alerts join until the first one.
    attempts BIGINT NOT NULL CHECK (attempts >= 0),
    -- When the next delivery is due. Of a claimed message, when the claim ends.
    next_attempt_at TIMESTAMPTZ,
    -- The host that delivers it now.
    host_id UUID,
    -- The status of the receiver's last answer, and why the last delivery failed.
    answer BIGINT,
    error TEXT,
    finished_at TIMESTAMPTZ,
    CHECK ((next_attempt_at IS NULL) = (status <> 'pending')),
    CHECK ((finished_at IS NULL) = (status = 'pending')),
    CHECK (host_id IS NULL OR status = 'pending')
);
-- alert_messages::newest, alert_messages::due
CREATE INDEX alert_message_pending ON alert_message (channel, rule, id) WHERE status = 'pending';
-- messages::give_up
CREATE INDEX alert_message_give_up ON alert_message (give_up_at) WHERE status = 'pending';
-- messages::has_orphans, messages::release_orphans
CREATE INDEX alert_message_host ON alert_message (host_id) WHERE host_id IS NOT NULL;
-- alert_messages::remove_old
CREATE INDEX alert_message_old ON alert_message (finished_at) WHERE finished_at IS NOT NULL;

-- The alerts that a message is about.
CREATE TABLE alert_message_alert (
    message_id UUID NOT NULL REFERENCES alert_message (id),
    alert_id UUID NOT NULL REFERENCES alert (id),
    PRIMARY KEY (message_id, alert_id)
);
-- alert_messages::notified_channels, alert_messages::of_alert, troubles::alert_deliveries
CREATE INDEX alert_message_alert_alert ON alert_message_alert (alert_id, message_id);

-- While a silence applies, no message about alerts that it matches is sent.
CREATE TABLE alert_silence (
    id UUID NOT NULL PRIMARY KEY,
    -- Patterns for the name of the rule and for the subject; none for all.
    rule TEXT,
    subject TEXT,
    note TEXT,
    created_at TIMESTAMPTZ NOT NULL,
    created_by TEXT NOT NULL,
    -- When it ends, unless an operator ends it before.
    until_at TIMESTAMPTZ NOT NULL
);
-- alerts::silences
CREATE INDEX alert_silence_until ON alert_silence (until_at);

-- One row: a JSON object of the policies for schedules that do not set them, from the configuration of the host that
-- started last.
CREATE TABLE schedule_default (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    policies TEXT NOT NULL
);
INSERT INTO schedule_default (id, policies) VALUES (1, '{}');

-- One row with a counter. A transaction that changes schedules increments it, so that running hosts notice.
CREATE TABLE change (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    counter BIGINT NOT NULL
);
INSERT INTO change (id, counter) VALUES (1, 0);

-- One row: the host that removes old rows, seals the record, corrects next slots and watches health. Each transaction of
-- these chores compares the epoch, so that a former holder changes nothing.
CREATE TABLE chore_lease (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    -- How often a host took the lease.
    epoch BIGINT NOT NULL CHECK (epoch >= 0),
    -- The host that took it last; none before the first.
    host_id UUID,
    chores_since TIMESTAMPTZ,
    -- Another host may take it from then on, unless this one renews it before.
    lease_until TIMESTAMPTZ,
    CHECK ((host_id IS NULL) = (epoch = 0)),
    CHECK ((host_id IS NULL) = (chores_since IS NULL)),
    CHECK ((host_id IS NULL) = (lease_until IS NULL))
);
INSERT INTO chore_lease (id, epoch) VALUES (1, 0);

-- Answers of the API to requests with an idempotency key, kept for a day.
CREATE TABLE api_answer (
    -- Who made the request.
    principal TEXT NOT NULL,
    key TEXT NOT NULL,
    -- SHA-256 of the method, the path and the body, as hexadecimal digits.
    request_hash TEXT NOT NULL,
    -- The status and the JSON of the answer. The status is 0 only within the transaction of the request.
    status BIGINT NOT NULL CHECK (status >= 0),
    answer TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (principal, key)
);
-- api_answers::remove_old
CREATE INDEX api_answer_created ON api_answer (created_at);

-- For people who read the record with SQL. Campanile does not use these views.
-- The SQLite schema has them too; there they also convert ids and instants to text.
CREATE VIEW launch_readable AS SELECT
    l.id AS id,
    s.name AS schedule, l.package, l.kind, l.status, l.reason,
    l.scheduled_time AS scheduled_time,
    l.fire_time AS fire_time,
    l.decided_at AS decided_at,
    l.started_at AS started_at,
    l.finished_at AS finished_at,
    h.name AS host, l.attempts, l.recoveries, l.failure, l.message
FROM launch l JOIN schedule s ON s.id = l.schedule_id LEFT JOIN host h ON h.id = l.host_id;
CREATE VIEW task_run_readable AS SELECT
    t.launch_id AS launch_id,
    s.name AS schedule, t.task, t.attempt, t.succeeded,
    t.started_at AS started_at,
    t.finished_at AS finished_at,
    t.output, t.failure, t.message, t.note, t.stdout, t.stdout_bytes_dropped, t.stderr, t.stderr_bytes_dropped, t.logs, t.wall_ms, t.cpu_ms, t.memory_peak_bytes
FROM task_run t JOIN launch l ON l.id = t.launch_id JOIN schedule s ON s.id = l.schedule_id;

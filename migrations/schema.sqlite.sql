-- The schema that migrations/sqlite/ makes. Written by a test: `UPDATE_SNAPSHOTS=1 cargo test -p campanile-tests the_schema_is`.

CREATE TABLE alert (
    id BLOB NOT NULL PRIMARY KEY,
    rule TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('failed', 'late_start', 'too_long', 'too_short', 'no_success_for', 'expect_within', 'abandoned', 'unknown', 'host_silent', 'recovery_rate', 'record_full', 'package_rejected')),
    severity TEXT NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
    status TEXT NOT NULL CHECK (status IN ('pending', 'firing', 'resolved')),
    subject TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    detail TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    since_at INTEGER NOT NULL,
    fired_at INTEGER,
    notified_at INTEGER,
    clear_at INTEGER,
    resolved_at INTEGER,
    flaps INTEGER NOT NULL CHECK (flaps >= 0),
    CHECK ((status = 'pending') = (fired_at IS NULL)),
    CHECK ((status = 'resolved') = (resolved_at IS NOT NULL))
) STRICT;
CREATE INDEX alert_resolved ON alert (resolved_at) WHERE resolved_at IS NOT NULL;
CREATE INDEX alert_unresolved ON alert (id) WHERE status <> 'resolved';
CREATE UNIQUE INDEX alert_unresolved_subject ON alert (rule, subject_id) WHERE status <> 'resolved';
CREATE TABLE alert_message (
    id BLOB NOT NULL PRIMARY KEY,
    channel TEXT NOT NULL,
    rule TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('firing', 'resolved', 'test')),
    status TEXT NOT NULL CHECK (status IN ('pending', 'delivered', 'dead', 'discarded')),
    alerts INTEGER NOT NULL CHECK (alerts >= 0),
    created_at INTEGER NOT NULL,
    give_up_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL CHECK (attempts >= 0),
    next_attempt_at INTEGER,
    host_id BLOB,
    answer INTEGER,
    error TEXT,
    finished_at INTEGER,
    CHECK ((next_attempt_at IS NULL) = (status <> 'pending')),
    CHECK ((finished_at IS NULL) = (status = 'pending')),
    CHECK (host_id IS NULL OR status = 'pending')
) STRICT;
CREATE INDEX alert_message_give_up ON alert_message (give_up_at) WHERE status = 'pending';
CREATE INDEX alert_message_host ON alert_message (host_id) WHERE host_id IS NOT NULL;
CREATE INDEX alert_message_old ON alert_message (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX alert_message_pending ON alert_message (channel, rule, id) WHERE status = 'pending';
CREATE TABLE alert_message_alert (
    message_id BLOB NOT NULL REFERENCES alert_message (id),
    alert_id BLOB NOT NULL REFERENCES alert (id),
    PRIMARY KEY (message_id, alert_id)
) STRICT;
CREATE INDEX alert_message_alert_alert ON alert_message_alert (alert_id, message_id);
CREATE TABLE alert_silence (
    id BLOB NOT NULL PRIMARY KEY,
    rule TEXT,
    subject TEXT,
    note TEXT,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    until_at INTEGER NOT NULL
) STRICT;
CREATE INDEX alert_silence_until ON alert_silence (until_at);
CREATE TABLE api_answer (
    principal TEXT NOT NULL,
    key TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    status INTEGER NOT NULL CHECK (status >= 0),
    answer TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (principal, key)
) STRICT;
CREATE INDEX api_answer_created ON api_answer (created_at);
CREATE TABLE artifact (
    digest BLOB NOT NULL PRIMARY KEY,
    form TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    bytes BLOB,
    stored_at INTEGER NOT NULL,
    removed_at INTEGER,
    CHECK ((bytes IS NULL) = (removed_at IS NOT NULL))
) STRICT;
CREATE TABLE backfill (
    id BLOB NOT NULL PRIMARY KEY,
    schedule_id BLOB NOT NULL REFERENCES schedule (id),
    schedule_revision INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'done', 'cancelled')),
    from_at INTEGER NOT NULL,
    to_at INTEGER NOT NULL,
    spread_ms INTEGER NOT NULL CHECK (spread_ms >= 0),
    forced INTEGER NOT NULL CHECK (forced IN (0, 1)),
    context TEXT,
    cursor_at INTEGER NOT NULL,
    next_fire INTEGER NOT NULL,
    slots INTEGER NOT NULL,
    launched INTEGER NOT NULL DEFAULT 0,
    slots_skipped INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    finished_at INTEGER,
    CHECK ((finished_at IS NULL) = (status = 'running'))
) STRICT;
CREATE INDEX backfill_running ON backfill (created_at) WHERE status = 'running';
CREATE TABLE bucket (
    namespace TEXT NOT NULL PRIMARY KEY,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    last_position INTEGER NOT NULL
) STRICT;
CREATE TABLE bucket_entry (
    namespace TEXT NOT NULL,
    key BLOB NOT NULL,
    position INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT;
CREATE UNIQUE INDEX bucket_entry_position ON bucket_entry (namespace, position);
CREATE TABLE change (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    counter INTEGER NOT NULL
) STRICT;
CREATE TABLE chore_lease (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    host_id BLOB,
    chores_since INTEGER,
    lease_until INTEGER,
    CHECK ((host_id IS NULL) = (epoch = 0)),
    CHECK ((host_id IS NULL) = (chores_since IS NULL)),
    CHECK ((host_id IS NULL) = (lease_until IS NULL))
) STRICT;
CREATE TABLE clock_set_back (
    host TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (host, since)
) STRICT;
CREATE TABLE cursor_reset (
    schedule_id BLOB NOT NULL REFERENCES schedule (id),
    reset_at INTEGER NOT NULL,
    from_at INTEGER NOT NULL,
    to_at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, reset_at)
) STRICT;
CREATE TABLE event (
    id BLOB NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    launch_id BLOB,
    detail TEXT NOT NULL,
    principal TEXT,
    channel TEXT NOT NULL CHECK (channel IN ('cli', 'api', 'mcp', 'page', 'proxy', 'host')),
    address TEXT,
    from_at INTEGER,
    to_at INTEGER,
    CHECK ((principal IS NULL) = (channel = 'host')),
    CHECK (address IS NULL OR channel <> 'host'),
    CHECK ((from_at IS NULL) = (kind <> 'cursor_reset')),
    CHECK ((to_at IS NULL) = (kind <> 'cursor_reset'))
) STRICT;
CREATE INDEX event_at ON event (at);
CREATE INDEX event_clock ON event (at) WHERE kind = 'clock_stepped';
CREATE INDEX event_damage ON event (at) WHERE kind = 'database_damaged';
CREATE INDEX event_subject ON event (substr(subject, 1, 200), at);
CREATE TABLE host (
    id BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number >= 1),
    version TEXT NOT NULL,
    wasmtime_version TEXT NOT NULL,
    tzdata_version TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    runs_max INTEGER NOT NULL CHECK (runs_max >= 1),
    labels TEXT NOT NULL,
    ended_at INTEGER,
    end_reason TEXT CHECK (end_reason IN ('stopped', 'died')),
    drained_at INTEGER,
    drained_by TEXT,
    claims_ended_at INTEGER,
    trouble TEXT,
    trouble_since INTEGER,
    CHECK ((trouble IS NULL) = (trouble_since IS NULL)),
    CHECK ((ended_at IS NULL) = (end_reason IS NULL)),
    CHECK ((drained_at IS NULL) = (drained_by IS NULL)),
    CHECK (drained_at IS NOT NULL OR claims_ended_at IS NULL)
) STRICT;
CREATE INDEX host_ended ON host (name, started_at) WHERE ended_at IS NOT NULL;
CREATE INDEX host_live ON host (name) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX host_number ON host (name, number);
CREATE TABLE launch (
    id BLOB NOT NULL PRIMARY KEY,
    schedule_id BLOB NOT NULL,
    schedule_revision INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('schedule', 'catchup', 'manual', 'backfill', 'startup')),
    status TEXT NOT NULL CHECK (status IN ('open', 'queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled', 'unknown', 'abandoned', 'skipped')),
    scheduled_time INTEGER NOT NULL,
    utc_offset INTEGER NOT NULL,
    last_scheduled_time INTEGER,
    slot_count INTEGER CHECK (slot_count >= 1),
    reason TEXT,
    overlaps_id BLOB,
    retry_of BLOB,
    package TEXT NOT NULL,
    digest BLOB,
    proposed INTEGER NOT NULL CHECK (proposed IN (0, 1)),
    priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    group_name TEXT,
    run_on TEXT,
    context TEXT,
    args TEXT,
    overlap TEXT CHECK (overlap IN ('skip', 'buffer_one', 'buffer_all', 'cancel_other', 'terminate_other', 'allow')),
    caller_traceparent TEXT,
    backfill_id BLOB,
    interval_start INTEGER NOT NULL,
    fire_time INTEGER NOT NULL,
    decided_by BLOB,
    decided_at INTEGER NOT NULL,
    opened_at INTEGER,
    host_id BLOB,
    attempts INTEGER NOT NULL DEFAULT 0,
    grants_hash BLOB,
    context_hash BLOB,
    lease_until INTEGER,
    retry_at INTEGER,
    cancel_deadline INTEGER,
    recoveries INTEGER NOT NULL DEFAULT 0 CHECK (recoveries BETWEEN 0 AND 254),
    lost_runs INTEGER NOT NULL DEFAULT 0 CHECK (lost_runs >= 0),
    recovered_at INTEGER,
    not_before INTEGER,
    started_at INTEGER,
    finished_at INTEGER,
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
) STRICT;
CREATE INDEX launch_active ON launch (schedule_id) WHERE status IN ('running', 'waiting');
CREATE INDEX launch_backfill ON launch (backfill_id) WHERE backfill_id IS NOT NULL;
CREATE INDEX launch_decided ON launch (decided_at);
CREATE INDEX launch_failed ON launch (id) WHERE status IN ('failed', 'cancelled', 'unknown', 'abandoned');
CREATE INDEX launch_group ON launch (priority, proposed, group_name, fire_time) WHERE status = 'open' AND group_name IS NOT NULL;
CREATE INDEX launch_labels ON launch (run_on, fire_time) WHERE status = 'open' AND run_on IS NOT NULL;
CREATE INDEX launch_open ON launch (fire_time) WHERE status = 'open' AND group_name IS NULL;
CREATE INDEX launch_queued ON launch (schedule_id) WHERE status = 'queued';
CREATE INDEX launch_queued_fire ON launch (fire_time) WHERE status = 'queued' AND fire_time IS NOT NULL;
CREATE INDEX launch_recovered ON launch (recovered_at) WHERE recovered_at IS NOT NULL;
CREATE INDEX launch_retry ON launch (retry_at) WHERE status = 'waiting';
CREATE INDEX launch_running_group ON launch (group_name) WHERE status = 'running' AND group_name IS NOT NULL;
CREATE INDEX launch_schedule ON launch (schedule_id, scheduled_time);
CREATE INDEX launch_share ON launch (priority, proposed, package, fire_time)
    WHERE status = 'open' AND group_name IS NULL AND priority IS NOT NULL;
CREATE INDEX launch_unclaimed ON launch (schedule_id) WHERE status = 'open' AND schedule_id IS NOT NULL;
CREATE VIEW launch_readable AS SELECT
    lower(substr(hex(l.id), 1, 8) || '-' || substr(hex(l.id), 9, 4) || '-' || substr(hex(l.id), 13, 4) || '-' || substr(hex(l.id), 17, 4) || '-' || substr(hex(l.id), 21)) AS id,
    s.name AS schedule, l.package, l.kind, l.status, l.reason,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.scheduled_time / 1000000.0, 'unixepoch') AS scheduled_time,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.fire_time / 1000000.0, 'unixepoch') AS fire_time,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.decided_at / 1000000.0, 'unixepoch') AS decided_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.started_at / 1000000.0, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.finished_at / 1000000.0, 'unixepoch') AS finished_at,
    h.name AS host, l.attempts, l.recoveries, l.failure, l.message
FROM launch l JOIN schedule s ON s.id = l.schedule_id LEFT JOIN host h ON h.id = l.host_id;
CREATE TABLE lost_run (
    launch_id BLOB NOT NULL,
    number INTEGER NOT NULL CHECK (number >= 1),
    host_id BLOB NOT NULL,
    grants_hash BLOB,
    context_hash BLOB,
    started_at INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (launch_id, number)
) STRICT;
CREATE TABLE outbox_message (
    id BLOB NOT NULL PRIMARY KEY,
    status TEXT NOT NULL CHECK (status IN ('pending', 'delivered', 'dead', 'discarded')),
    launch_id BLOB NOT NULL,
    package TEXT NOT NULL,
    task TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number >= 0),
    method TEXT NOT NULL,
    url TEXT NOT NULL,
    headers TEXT NOT NULL,
    body BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    give_up_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL CHECK (attempts >= 0),
    next_attempt_at INTEGER,
    host_id BLOB,
    answer INTEGER,
    error TEXT,
    finished_at INTEGER,
    CHECK ((next_attempt_at IS NULL) = (status <> 'pending')),
    CHECK ((finished_at IS NULL) = (status = 'pending')),
    CHECK (host_id IS NULL OR status = 'pending')
) STRICT;
CREATE INDEX outbox_message_dead ON outbox_message (id) WHERE status = 'dead';
CREATE INDEX outbox_message_due ON outbox_message (package, next_attempt_at) WHERE status = 'pending';
CREATE INDEX outbox_message_give_up ON outbox_message (give_up_at) WHERE status = 'pending';
CREATE INDEX outbox_message_host ON outbox_message (host_id) WHERE host_id IS NOT NULL;
CREATE INDEX outbox_message_next ON outbox_message (next_attempt_at) WHERE status = 'pending';
CREATE INDEX outbox_message_old ON outbox_message (finished_at) WHERE status IN ('delivered', 'discarded');
CREATE TABLE package (
    name TEXT NOT NULL PRIMARY KEY,
    digest BLOB REFERENCES artifact (digest),
    manifest TEXT NOT NULL,
    loaded_at INTEGER,
    grants TEXT NOT NULL DEFAULT '',
    pending_digest BLOB REFERENCES artifact (digest),
    pending_since INTEGER,
    missing_since INTEGER,
    rejection TEXT,
    rejected_at INTEGER,
    rejected_by BLOB REFERENCES host (id),
    rejected_digest BLOB,
    loading_since INTEGER,
    loading_by BLOB REFERENCES host (id),
    CHECK ((digest IS NULL) = (loaded_at IS NULL)),
    CHECK ((pending_digest IS NULL) = (pending_since IS NULL)),
    CHECK (pending_digest IS NULL OR ((digest IS NULL OR digest <> pending_digest) AND rejection IS NULL)),
    CHECK ((rejection IS NULL) = (rejected_at IS NULL)),
    CHECK ((rejection IS NULL) = (rejected_by IS NULL)),
    CHECK (rejected_digest IS NULL OR rejection IS NOT NULL),
    CHECK ((loading_since IS NULL) = (loading_by IS NULL))
) STRICT;
CREATE TABLE package_host (
    package TEXT NOT NULL REFERENCES package (name),
    host_id BLOB NOT NULL REFERENCES host (id),
    digest BLOB NOT NULL,
    pin TEXT,
    PRIMARY KEY (package, host_id)
) STRICT;
CREATE TABLE package_record (
    package TEXT NOT NULL,
    day INTEGER NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    exceeded_at INTEGER,
    PRIMARY KEY (package, day)
) STRICT;
CREATE TABLE package_rollup (
    package TEXT NOT NULL,
    period TEXT NOT NULL CHECK (period IN ('hour', 'day')),
    starts_at INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    late INTEGER NOT NULL,
    run_us INTEGER NOT NULL,
    durations BLOB NOT NULL,
    lags BLOB NOT NULL,
    PRIMARY KEY (package, period, starts_at)
) STRICT;
CREATE INDEX package_rollup_starts ON package_rollup (period, starts_at);
CREATE TABLE package_sidecar (
    package TEXT NOT NULL REFERENCES package (name),
    host TEXT NOT NULL,
    context TEXT NOT NULL,
    PRIMARY KEY (package, host)
) STRICT;
CREATE TABLE package_version (
    package TEXT NOT NULL REFERENCES package (name),
    digest BLOB NOT NULL REFERENCES artifact (digest),
    manifest TEXT NOT NULL,
    first_seen_at INTEGER NOT NULL,
    activated_at INTEGER,
    decision TEXT CHECK (decision IN ('approved', 'rejected', 'rolled_back')),
    decided_at INTEGER,
    decided_by TEXT,
    note TEXT,
    seal TEXT,
    signature TEXT,
    succeeded INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (package, digest),
    CHECK ((decision IS NULL) = (decided_at IS NULL)),
    CHECK ((decision IS NULL) = (decided_by IS NULL)),
    CHECK (decision IS NOT NULL OR note IS NULL),
    CHECK (decision IS NOT NULL OR seal IS NULL)
) STRICT;
CREATE TABLE removed_calls (
    schedule_id BLOB NOT NULL,
    slot_day INTEGER NOT NULL,
    decided_day INTEGER NOT NULL,
    package TEXT NOT NULL,
    calls INTEGER NOT NULL CHECK (calls >= 1),
    cpu_us INTEGER NOT NULL,
    memory_peak_bytes INTEGER NOT NULL,
    record_bytes INTEGER NOT NULL,
    http_requests INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, slot_day, decided_day, package)
) STRICT;
CREATE INDEX removed_calls_decided ON removed_calls (decided_day);
CREATE TABLE removed_launches (
    schedule_id BLOB NOT NULL,
    slot_day INTEGER NOT NULL,
    decided_day INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('succeeded', 'failed', 'cancelled', 'unknown', 'abandoned', 'skipped')),
    launches INTEGER NOT NULL CHECK (launches >= 1),
    slots INTEGER NOT NULL,
    recovered INTEGER NOT NULL,
    recoveries INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    removed_at INTEGER NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (schedule_id, slot_day, decided_day, status)
) STRICT;
CREATE INDEX removed_launches_decided ON removed_launches (decided_day);
CREATE TABLE schedule (
    id BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    package TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('operator', 'file', 'sidecar', 'package')),
    revision INTEGER NOT NULL CHECK (revision >= 1),
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    cursor_at INTEGER NOT NULL,
    next_slot INTEGER,
    launches INTEGER NOT NULL DEFAULT 0 CHECK (launches >= 0),
    last_catchup_at INTEGER,
    last_catchup_fire_time INTEGER,
    skips TEXT,
    paused_at INTEGER,
    paused_by TEXT,
    pause_note TEXT,
    paused_until INTEGER,
    resumed_at INTEGER,
    uncounted_before INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER,
    CHECK (next_slot IS NULL OR (deleted_at IS NULL AND enabled)),
    CHECK (next_slot IS NULL OR next_slot > cursor_at),
    CHECK ((last_catchup_at IS NULL) = (last_catchup_fire_time IS NULL)),
    CHECK (enabled = (paused_at IS NULL)),
    CHECK (paused_at IS NOT NULL OR (paused_by IS NULL AND pause_note IS NULL AND paused_until IS NULL))
) STRICT;
CREATE INDEX schedule_defined ON schedule (origin, package) WHERE deleted_at IS NULL AND origin <> 'operator';
CREATE INDEX schedule_due ON schedule (next_slot, cursor_at DESC, origin) WHERE next_slot IS NOT NULL;
CREATE UNIQUE INDEX schedule_name ON schedule (name) WHERE deleted_at IS NULL;
CREATE INDEX schedule_package ON schedule (package, name) WHERE deleted_at IS NULL;
CREATE INDEX schedule_paused ON schedule (name) WHERE deleted_at IS NULL AND NOT enabled;
CREATE INDEX schedule_paused_until ON schedule (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX schedule_removed ON schedule (name) WHERE deleted_at IS NOT NULL;
CREATE TABLE schedule_default (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    policies TEXT NOT NULL
) STRICT;
CREATE TABLE schedule_growth (
    schedule_id BLOB NOT NULL PRIMARY KEY,
    checked_at INTEGER NOT NULL,
    cpu_us_before INTEGER NOT NULL,
    cpu_us INTEGER NOT NULL,
    memory_peak_bytes_before INTEGER NOT NULL,
    memory_peak_bytes INTEGER NOT NULL
) STRICT;
CREATE TABLE schedule_result (
    schedule_id BLOB NOT NULL PRIMARY KEY,
    success_scheduled_time INTEGER,
    result TEXT,
    failure_scheduled_time INTEGER,
    failure TEXT,
    last_success_at INTEGER,
    failing_since INTEGER,
    streak INTEGER NOT NULL DEFAULT 0 CHECK (streak >= 0),
    CHECK ((failing_since IS NULL) = (failure IS NULL)),
    CHECK ((streak = 0) = (failure IS NULL))
) STRICT;
CREATE INDEX schedule_result_failing ON schedule_result (failing_since, streak) WHERE failing_since IS NOT NULL;
CREATE TABLE schedule_revision (
    schedule_id BLOB NOT NULL REFERENCES schedule (id),
    revision INTEGER NOT NULL,
    name TEXT NOT NULL,
    package TEXT NOT NULL,
    task TEXT,
    kind TEXT NOT NULL CHECK (kind IN ('cron', 'every', 'at', 'after_completion')),
    expression TEXT NOT NULL,
    anchor INTEGER,
    timezone TEXT NOT NULL,
    day_match TEXT NOT NULL CHECK (day_match IN ('or', 'and')),
    dst_gap TEXT NOT NULL CHECK (dst_gap IN ('shift', 'skip')),
    dst_fold TEXT NOT NULL CHECK (dst_fold IN ('first', 'second', 'both')),
    exclude TEXT NOT NULL,
    policies TEXT NOT NULL,
    defaults TEXT NOT NULL,
    args TEXT,
    context TEXT NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, revision)
) STRICT;
CREATE INDEX schedule_revision_at_start ON schedule_revision (schedule_id) WHERE kind = 'cron' AND expression LIKE '%@reboot%';
CREATE INDEX schedule_revision_counting ON schedule_revision (schedule_id) WHERE kind = 'after_completion';
CREATE INDEX schedule_revision_expect_within ON schedule_revision (schedule_id) WHERE policies LIKE '%"expect_within"%';
CREATE INDEX schedule_revision_name ON schedule_revision (name);
CREATE INDEX schedule_revision_retention ON schedule_revision (schedule_id) WHERE policies LIKE '%"retention"%';
CREATE TABLE schedule_rollup (
    schedule_id BLOB NOT NULL,
    period TEXT NOT NULL CHECK (period IN ('hour', 'day')),
    starts_at INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    late INTEGER NOT NULL,
    run_us INTEGER NOT NULL,
    durations BLOB NOT NULL,
    lags BLOB NOT NULL,
    PRIMARY KEY (schedule_id, period, starts_at)
) STRICT;
CREATE INDEX schedule_rollup_starts ON schedule_rollup (period, starts_at);
CREATE TABLE seal (
    number INTEGER NOT NULL PRIMARY KEY,
    until_at INTEGER NOT NULL,
    late_at INTEGER,
    sealed_at INTEGER NOT NULL,
    launches INTEGER NOT NULL CHECK (launches >= 0),
    events INTEGER NOT NULL CHECK (events >= 0),
    leaves BLOB,
    leaves_hash BLOB NOT NULL,
    unfinished BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX seal_leaves ON seal (until_at) WHERE leaves IS NOT NULL;
CREATE TABLE task_run (
    launch_id BLOB NOT NULL,
    task TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    run_number INTEGER NOT NULL,
    succeeded INTEGER NOT NULL CHECK (succeeded IN (0, 1)),
    started_at INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    retry_at INTEGER,
    output TEXT,
    context TEXT,
    failure TEXT,
    message TEXT,
    note TEXT,
    stdout TEXT NOT NULL,
    stdout_bytes_dropped INTEGER NOT NULL DEFAULT 0,
    stderr TEXT NOT NULL,
    stderr_bytes_dropped INTEGER NOT NULL DEFAULT 0,
    logs TEXT NOT NULL,
    wall_ms REAL NOT NULL,
    cpu_ms REAL NOT NULL,
    memory_peak_bytes INTEGER NOT NULL,
    usage TEXT NOT NULL,
    PRIMARY KEY (launch_id, task, attempt)
) STRICT;
CREATE VIEW task_run_readable AS SELECT
    lower(substr(hex(t.launch_id), 1, 8) || '-' || substr(hex(t.launch_id), 9, 4) || '-' || substr(hex(t.launch_id), 13, 4) || '-' || substr(hex(t.launch_id), 17, 4) || '-' || substr(hex(t.launch_id), 21)) AS launch_id,
    s.name AS schedule, t.task, t.attempt, t.succeeded,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.started_at / 1000000.0, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.finished_at / 1000000.0, 'unixepoch') AS finished_at,
    t.output, t.failure, t.message, t.note, t.stdout, t.stdout_bytes_dropped, t.stderr, t.stderr_bytes_dropped, t.logs, t.wall_ms, t.cpu_ms, t.memory_peak_bytes
FROM task_run t JOIN launch l ON l.id = t.launch_id JOIN schedule s ON s.id = l.schedule_id;
CREATE TABLE token (
    hash BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'editor', 'approver', 'admin')),
    namespace TEXT CHECK (namespace <> ''),
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    last_used_at INTEGER,
    revoked_at INTEGER,
    seal TEXT,
    CHECK (expires_at > created_at)
) STRICT;
CREATE UNIQUE INDEX token_name ON token (name) WHERE revoked_at IS NULL;

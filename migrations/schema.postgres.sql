-- The schema that migrations/postgres/ makes. Written by a test: `UPDATE_SNAPSHOTS=1 cargo test -p campanile-tests the_schema_is`.

CREATE TABLE alert (
    id UUID NOT NULL,
    rule TEXT NOT NULL,
    kind TEXT NOT NULL,
    severity TEXT NOT NULL,
    status TEXT NOT NULL,
    subject TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    detail TEXT NOT NULL,
    version BIGINT NOT NULL,
    since_at TIMESTAMP WITH TIME ZONE NOT NULL,
    fired_at TIMESTAMP WITH TIME ZONE,
    notified_at TIMESTAMP WITH TIME ZONE,
    clear_at TIMESTAMP WITH TIME ZONE,
    resolved_at TIMESTAMP WITH TIME ZONE,
    flaps BIGINT NOT NULL,
    CHECK (((status = 'pending'::text) = (fired_at IS NULL))),
    CHECK (((status = 'resolved'::text) = (resolved_at IS NOT NULL))),
    CHECK ((flaps >= 0)),
    CHECK ((kind = ANY (ARRAY['failed'::text, 'late_start'::text, 'too_long'::text, 'too_short'::text, 'no_success_for'::text, 'expect_within'::text, 'abandoned'::text, 'unknown'::text, 'host_silent'::text, 'recovery_rate'::text, 'record_full'::text, 'package_rejected'::text]))),
    CHECK ((severity = ANY (ARRAY['info'::text, 'warning'::text, 'critical'::text]))),
    CHECK ((status = ANY (ARRAY['pending'::text, 'firing'::text, 'resolved'::text]))),
    CHECK ((version >= 1)),
    PRIMARY KEY (id)
);
CREATE INDEX alert_resolved ON alert USING btree (resolved_at) WHERE (resolved_at IS NOT NULL);
CREATE INDEX alert_unresolved ON alert USING btree (id) WHERE (status <> 'resolved'::text);
CREATE UNIQUE INDEX alert_unresolved_subject ON alert USING btree (rule, subject_id) WHERE (status <> 'resolved'::text);
CREATE TABLE alert_message (
    id UUID NOT NULL,
    channel TEXT NOT NULL,
    rule TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    alerts BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    give_up_at TIMESTAMP WITH TIME ZONE NOT NULL,
    attempts BIGINT NOT NULL,
    next_attempt_at TIMESTAMP WITH TIME ZONE,
    host_id UUID,
    answer BIGINT,
    error TEXT,
    finished_at TIMESTAMP WITH TIME ZONE,
    CHECK (((finished_at IS NULL) = (status = 'pending'::text))),
    CHECK (((host_id IS NULL) OR (status = 'pending'::text))),
    CHECK (((next_attempt_at IS NULL) = (status <> 'pending'::text))),
    CHECK ((alerts >= 0)),
    CHECK ((attempts >= 0)),
    CHECK ((kind = ANY (ARRAY['firing'::text, 'resolved'::text, 'test'::text]))),
    CHECK ((status = ANY (ARRAY['pending'::text, 'delivered'::text, 'dead'::text, 'discarded'::text]))),
    PRIMARY KEY (id)
);
CREATE INDEX alert_message_give_up ON alert_message USING btree (give_up_at) WHERE (status = 'pending'::text);
CREATE INDEX alert_message_host ON alert_message USING btree (host_id) WHERE (host_id IS NOT NULL);
CREATE INDEX alert_message_old ON alert_message USING btree (finished_at) WHERE (finished_at IS NOT NULL);
CREATE INDEX alert_message_pending ON alert_message USING btree (channel, rule, id) WHERE (status = 'pending'::text);
CREATE TABLE alert_message_alert (
    message_id UUID NOT NULL,
    alert_id UUID NOT NULL,
    FOREIGN KEY (alert_id) REFERENCES alert(id),
    FOREIGN KEY (message_id) REFERENCES alert_message(id),
    PRIMARY KEY (message_id, alert_id)
);
CREATE INDEX alert_message_alert_alert ON alert_message_alert USING btree (alert_id, message_id);
CREATE TABLE alert_silence (
    id UUID NOT NULL,
    rule TEXT,
    subject TEXT,
    note TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_by TEXT NOT NULL,
    until_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX alert_silence_until ON alert_silence USING btree (until_at);
CREATE TABLE api_answer (
    principal TEXT NOT NULL,
    key TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    status BIGINT NOT NULL,
    answer TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CHECK ((status >= 0)),
    PRIMARY KEY (principal, key)
);
CREATE INDEX api_answer_created ON api_answer USING btree (created_at);
CREATE TABLE artifact (
    digest BYTEA NOT NULL,
    form TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    bytes BYTEA,
    stored_at TIMESTAMP WITH TIME ZONE NOT NULL,
    removed_at TIMESTAMP WITH TIME ZONE,
    CHECK (((bytes IS NULL) = (removed_at IS NOT NULL))),
    PRIMARY KEY (digest)
);
CREATE TABLE backfill (
    id UUID NOT NULL,
    schedule_id UUID NOT NULL,
    schedule_revision BIGINT NOT NULL,
    status TEXT NOT NULL,
    from_at TIMESTAMP WITH TIME ZONE NOT NULL,
    to_at TIMESTAMP WITH TIME ZONE NOT NULL,
    spread_ms BIGINT NOT NULL,
    forced BOOLEAN NOT NULL,
    context TEXT,
    cursor_at TIMESTAMP WITH TIME ZONE NOT NULL,
    next_fire TIMESTAMP WITH TIME ZONE NOT NULL,
    slots BIGINT NOT NULL,
    launched BIGINT NOT NULL DEFAULT 0,
    slots_skipped BIGINT NOT NULL DEFAULT 0,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_by TEXT NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    CHECK (((finished_at IS NULL) = (status = 'running'::text))),
    CHECK ((spread_ms >= 0)),
    CHECK ((status = ANY (ARRAY['running'::text, 'done'::text, 'cancelled'::text]))),
    FOREIGN KEY (schedule_id) REFERENCES schedule(id),
    PRIMARY KEY (id)
);
CREATE INDEX backfill_running ON backfill USING btree (created_at) WHERE (status = 'running'::text);
CREATE TABLE bucket (
    namespace TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    last_position BIGINT NOT NULL,
    CHECK ((bytes >= 0)),
    PRIMARY KEY (namespace)
);
CREATE TABLE bucket_entry (
    namespace TEXT NOT NULL,
    key BYTEA NOT NULL,
    position BIGINT NOT NULL,
    value BYTEA NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE UNIQUE INDEX bucket_entry_position ON bucket_entry USING btree (namespace, "position");
CREATE TABLE change (
    id BIGINT NOT NULL,
    counter BIGINT NOT NULL,
    CHECK ((id = 1)),
    PRIMARY KEY (id)
);
CREATE TABLE chore_lease (
    id BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    host_id UUID,
    chores_since TIMESTAMP WITH TIME ZONE,
    lease_until TIMESTAMP WITH TIME ZONE,
    CHECK (((host_id IS NULL) = (chores_since IS NULL))),
    CHECK (((host_id IS NULL) = (epoch = 0))),
    CHECK (((host_id IS NULL) = (lease_until IS NULL))),
    CHECK ((epoch >= 0)),
    CHECK ((id = 1)),
    PRIMARY KEY (id)
);
CREATE TABLE clock_set_back (
    host TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    until TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (host, since)
);
CREATE TABLE cursor_reset (
    schedule_id UUID NOT NULL,
    reset_at TIMESTAMP WITH TIME ZONE NOT NULL,
    from_at TIMESTAMP WITH TIME ZONE NOT NULL,
    to_at TIMESTAMP WITH TIME ZONE NOT NULL,
    revision BIGINT NOT NULL,
    FOREIGN KEY (schedule_id) REFERENCES schedule(id),
    PRIMARY KEY (schedule_id, reset_at)
);
CREATE TABLE event (
    id UUID NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    launch_id UUID,
    detail TEXT NOT NULL,
    principal TEXT,
    channel TEXT NOT NULL,
    address TEXT,
    from_at TIMESTAMP WITH TIME ZONE,
    to_at TIMESTAMP WITH TIME ZONE,
    CHECK (((address IS NULL) OR (channel <> 'host'::text))),
    CHECK (((from_at IS NULL) = (kind <> 'cursor_reset'::text))),
    CHECK (((principal IS NULL) = (channel = 'host'::text))),
    CHECK (((to_at IS NULL) = (kind <> 'cursor_reset'::text))),
    CHECK ((channel = ANY (ARRAY['cli'::text, 'api'::text, 'mcp'::text, 'page'::text, 'proxy'::text, 'host'::text]))),
    PRIMARY KEY (id)
);
CREATE INDEX event_at ON event USING btree (at);
CREATE INDEX event_clock ON event USING btree (at) WHERE (kind = 'clock_stepped'::text);
CREATE INDEX event_damage ON event USING btree (at) WHERE (kind = 'database_damaged'::text);
CREATE INDEX event_subject ON event USING btree (substr(subject, 1, 200), at);
CREATE TABLE host (
    id UUID NOT NULL,
    name TEXT NOT NULL,
    number BIGINT NOT NULL,
    version TEXT NOT NULL,
    wasmtime_version TEXT NOT NULL,
    tzdata_version TEXT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    heartbeat_at TIMESTAMP WITH TIME ZONE NOT NULL,
    lease_until TIMESTAMP WITH TIME ZONE NOT NULL,
    runs_max BIGINT NOT NULL,
    labels TEXT NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    end_reason TEXT,
    drained_at TIMESTAMP WITH TIME ZONE,
    drained_by TEXT,
    claims_ended_at TIMESTAMP WITH TIME ZONE,
    trouble TEXT,
    trouble_since TIMESTAMP WITH TIME ZONE,
    CHECK (((drained_at IS NOT NULL) OR (claims_ended_at IS NULL))),
    CHECK (((drained_at IS NULL) = (drained_by IS NULL))),
    CHECK (((ended_at IS NULL) = (end_reason IS NULL))),
    CHECK (((trouble IS NULL) = (trouble_since IS NULL))),
    CHECK ((end_reason = ANY (ARRAY['stopped'::text, 'died'::text]))),
    CHECK ((number >= 1)),
    CHECK ((runs_max >= 1)),
    PRIMARY KEY (id)
);
CREATE INDEX host_ended ON host USING btree (name, started_at) WHERE (ended_at IS NOT NULL);
CREATE INDEX host_live ON host USING btree (name) WHERE (ended_at IS NULL);
CREATE UNIQUE INDEX host_number ON host USING btree (name, number);
CREATE TABLE launch (
    id UUID NOT NULL,
    schedule_id UUID NOT NULL,
    schedule_revision BIGINT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    scheduled_time TIMESTAMP WITH TIME ZONE NOT NULL,
    utc_offset BIGINT NOT NULL,
    last_scheduled_time TIMESTAMP WITH TIME ZONE,
    slot_count BIGINT,
    reason TEXT,
    overlaps_id UUID,
    retry_of UUID,
    package TEXT NOT NULL,
    digest BYTEA,
    proposed BOOLEAN NOT NULL,
    priority BIGINT NOT NULL,
    group_name TEXT,
    run_on TEXT,
    context TEXT,
    args TEXT,
    overlap TEXT,
    caller_traceparent TEXT,
    backfill_id UUID,
    interval_start TIMESTAMP WITH TIME ZONE NOT NULL,
    fire_time TIMESTAMP WITH TIME ZONE NOT NULL,
    decided_by UUID,
    decided_at TIMESTAMP WITH TIME ZONE NOT NULL,
    opened_at TIMESTAMP WITH TIME ZONE,
    host_id UUID,
    attempts BIGINT NOT NULL DEFAULT 0,
    grants_hash BYTEA,
    context_hash BYTEA,
    lease_until TIMESTAMP WITH TIME ZONE,
    retry_at TIMESTAMP WITH TIME ZONE,
    cancel_deadline TIMESTAMP WITH TIME ZONE,
    recoveries BIGINT NOT NULL DEFAULT 0,
    lost_runs BIGINT NOT NULL DEFAULT 0,
    recovered_at TIMESTAMP WITH TIME ZONE,
    not_before TIMESTAMP WITH TIME ZONE,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    failure TEXT,
    message TEXT,
    CHECK (((args IS NULL) OR (kind = 'manual'::text))),
    CHECK (((caller_traceparent IS NULL) OR (kind = 'manual'::text))),
    CHECK (((finished_at IS NULL) = (status = ANY (ARRAY['open'::text, 'queued'::text, 'running'::text, 'waiting'::text])))),
    CHECK (((host_id IS NOT NULL) OR (status <> ALL (ARRAY['running'::text, 'waiting'::text, 'succeeded'::text, 'failed'::text])))),
    CHECK (((host_id IS NULL) = (started_at IS NULL))),
    CHECK (((host_id IS NULL) OR (status <> ALL (ARRAY['open'::text, 'queued'::text, 'skipped'::text])))),
    CHECK (((kind = 'backfill'::text) = (backfill_id IS NOT NULL))),
    CHECK (((last_scheduled_time IS NULL) = (slot_count IS NULL))),
    CHECK (((lease_until IS NOT NULL) = (status = 'running'::text))),
    CHECK (((overlap IS NULL) OR (kind = 'manual'::text))),
    CHECK (((priority >= 0) AND (priority <= 9))),
    CHECK (((recoveries >= 0) AND (recoveries <= 254))),
    CHECK (((retry_at IS NOT NULL) = (status = 'waiting'::text))),
    CHECK ((kind = ANY (ARRAY['schedule'::text, 'catchup'::text, 'manual'::text, 'backfill'::text, 'startup'::text]))),
    CHECK ((lost_runs >= 0)),
    CHECK ((overlap = ANY (ARRAY['skip'::text, 'buffer_one'::text, 'buffer_all'::text, 'cancel_other'::text, 'terminate_other'::text, 'allow'::text]))),
    CHECK ((slot_count >= 1)),
    CHECK ((status = ANY (ARRAY['open'::text, 'queued'::text, 'running'::text, 'waiting'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text, 'unknown'::text, 'abandoned'::text, 'skipped'::text]))),
    PRIMARY KEY (id)
);
CREATE INDEX launch_active ON launch USING btree (schedule_id) WHERE (status = ANY (ARRAY['running'::text, 'waiting'::text]));
CREATE INDEX launch_backfill ON launch USING btree (backfill_id) WHERE (backfill_id IS NOT NULL);
CREATE INDEX launch_decided ON launch USING btree (decided_at);
CREATE INDEX launch_failed ON launch USING btree (id) WHERE (status = ANY (ARRAY['failed'::text, 'cancelled'::text, 'unknown'::text, 'abandoned'::text]));
CREATE INDEX launch_group ON launch USING btree (priority, proposed, group_name, fire_time) WHERE ((status = 'open'::text) AND (group_name IS NOT NULL));
CREATE INDEX launch_labels ON launch USING btree (run_on, fire_time) WHERE ((status = 'open'::text) AND (run_on IS NOT NULL));
CREATE INDEX launch_open ON launch USING btree (fire_time) WHERE ((status = 'open'::text) AND (group_name IS NULL));
CREATE INDEX launch_queued ON launch USING btree (schedule_id) WHERE (status = 'queued'::text);
CREATE INDEX launch_queued_fire ON launch USING btree (fire_time) WHERE ((status = 'queued'::text) AND (fire_time IS NOT NULL));
CREATE INDEX launch_recovered ON launch USING btree (recovered_at) WHERE (recovered_at IS NOT NULL);
CREATE INDEX launch_retry ON launch USING btree (retry_at) WHERE (status = 'waiting'::text);
CREATE INDEX launch_running_group ON launch USING btree (group_name) WHERE ((status = 'running'::text) AND (group_name IS NOT NULL));
CREATE INDEX launch_schedule ON launch USING btree (schedule_id, scheduled_time);
CREATE INDEX launch_share ON launch USING btree (priority, proposed, package, fire_time) WHERE ((status = 'open'::text) AND (group_name IS NULL) AND (priority IS NOT NULL));
CREATE INDEX launch_unclaimed ON launch USING btree (schedule_id) WHERE ((status = 'open'::text) AND (schedule_id IS NOT NULL));
CREATE TABLE lost_run (
    launch_id UUID NOT NULL,
    number BIGINT NOT NULL,
    host_id UUID NOT NULL,
    grants_hash BYTEA,
    context_hash BYTEA,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE NOT NULL,
    message TEXT NOT NULL,
    CHECK ((number >= 1)),
    PRIMARY KEY (launch_id, number)
);
CREATE TABLE outbox_message (
    id UUID NOT NULL,
    status TEXT NOT NULL,
    launch_id UUID NOT NULL,
    package TEXT NOT NULL,
    task TEXT NOT NULL,
    number BIGINT NOT NULL,
    method TEXT NOT NULL,
    url TEXT NOT NULL,
    headers TEXT NOT NULL,
    body BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    give_up_at TIMESTAMP WITH TIME ZONE NOT NULL,
    attempts BIGINT NOT NULL,
    next_attempt_at TIMESTAMP WITH TIME ZONE,
    host_id UUID,
    answer BIGINT,
    error TEXT,
    finished_at TIMESTAMP WITH TIME ZONE,
    CHECK (((finished_at IS NULL) = (status = 'pending'::text))),
    CHECK (((host_id IS NULL) OR (status = 'pending'::text))),
    CHECK (((next_attempt_at IS NULL) = (status <> 'pending'::text))),
    CHECK ((attempts >= 0)),
    CHECK ((number >= 0)),
    CHECK ((status = ANY (ARRAY['pending'::text, 'delivered'::text, 'dead'::text, 'discarded'::text]))),
    PRIMARY KEY (id)
);
CREATE INDEX outbox_message_dead ON outbox_message USING btree (id) WHERE (status = 'dead'::text);
CREATE INDEX outbox_message_due ON outbox_message USING btree (package, next_attempt_at) WHERE (status = 'pending'::text);
CREATE INDEX outbox_message_give_up ON outbox_message USING btree (give_up_at) WHERE (status = 'pending'::text);
CREATE INDEX outbox_message_host ON outbox_message USING btree (host_id) WHERE (host_id IS NOT NULL);
CREATE INDEX outbox_message_next ON outbox_message USING btree (next_attempt_at) WHERE (status = 'pending'::text);
CREATE INDEX outbox_message_old ON outbox_message USING btree (finished_at) WHERE (status = ANY (ARRAY['delivered'::text, 'discarded'::text]));
CREATE TABLE package (
    name TEXT NOT NULL,
    digest BYTEA,
    manifest TEXT NOT NULL,
    loaded_at TIMESTAMP WITH TIME ZONE,
    grants TEXT NOT NULL DEFAULT ''::text,
    pending_digest BYTEA,
    pending_since TIMESTAMP WITH TIME ZONE,
    missing_since TIMESTAMP WITH TIME ZONE,
    rejection TEXT,
    rejected_at TIMESTAMP WITH TIME ZONE,
    rejected_by UUID,
    rejected_digest BYTEA,
    loading_since TIMESTAMP WITH TIME ZONE,
    loading_by UUID,
    CHECK (((digest IS NULL) = (loaded_at IS NULL))),
    CHECK (((loading_since IS NULL) = (loading_by IS NULL))),
    CHECK (((pending_digest IS NULL) = (pending_since IS NULL))),
    CHECK (((pending_digest IS NULL) OR (((digest IS NULL) OR (digest <> pending_digest)) AND (rejection IS NULL)))),
    CHECK (((rejected_digest IS NULL) OR (rejection IS NOT NULL))),
    CHECK (((rejection IS NULL) = (rejected_at IS NULL))),
    CHECK (((rejection IS NULL) = (rejected_by IS NULL))),
    FOREIGN KEY (digest) REFERENCES artifact(digest),
    FOREIGN KEY (loading_by) REFERENCES host(id),
    FOREIGN KEY (pending_digest) REFERENCES artifact(digest),
    FOREIGN KEY (rejected_by) REFERENCES host(id),
    PRIMARY KEY (name)
);
CREATE TABLE package_host (
    package TEXT NOT NULL,
    host_id UUID NOT NULL,
    digest BYTEA NOT NULL,
    pin TEXT,
    FOREIGN KEY (host_id) REFERENCES host(id),
    FOREIGN KEY (package) REFERENCES package(name),
    PRIMARY KEY (package, host_id)
);
CREATE TABLE package_record (
    package TEXT NOT NULL,
    day BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    exceeded_at TIMESTAMP WITH TIME ZONE,
    CHECK ((bytes >= 0)),
    PRIMARY KEY (package, day)
);
CREATE TABLE package_rollup (
    package TEXT NOT NULL,
    period TEXT NOT NULL,
    starts_at TIMESTAMP WITH TIME ZONE NOT NULL,
    succeeded BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    skipped BIGINT NOT NULL,
    cancelled BIGINT NOT NULL,
    late BIGINT NOT NULL,
    run_us BIGINT NOT NULL,
    durations BYTEA NOT NULL,
    lags BYTEA NOT NULL,
    CHECK ((period = ANY (ARRAY['hour'::text, 'day'::text]))),
    PRIMARY KEY (package, period, starts_at)
);
CREATE INDEX package_rollup_starts ON package_rollup USING btree (period, starts_at);
CREATE TABLE package_sidecar (
    package TEXT NOT NULL,
    host TEXT NOT NULL,
    context TEXT NOT NULL,
    FOREIGN KEY (package) REFERENCES package(name),
    PRIMARY KEY (package, host)
);
CREATE TABLE package_version (
    package TEXT NOT NULL,
    digest BYTEA NOT NULL,
    manifest TEXT NOT NULL,
    first_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    activated_at TIMESTAMP WITH TIME ZONE,
    decision TEXT,
    decided_at TIMESTAMP WITH TIME ZONE,
    decided_by TEXT,
    note TEXT,
    seal TEXT,
    signature TEXT,
    succeeded BIGINT NOT NULL DEFAULT 0,
    failed BIGINT NOT NULL DEFAULT 0,
    CHECK (((decision IS NOT NULL) OR (note IS NULL))),
    CHECK (((decision IS NOT NULL) OR (seal IS NULL))),
    CHECK (((decision IS NULL) = (decided_at IS NULL))),
    CHECK (((decision IS NULL) = (decided_by IS NULL))),
    CHECK ((decision = ANY (ARRAY['approved'::text, 'rejected'::text, 'rolled_back'::text]))),
    FOREIGN KEY (digest) REFERENCES artifact(digest),
    FOREIGN KEY (package) REFERENCES package(name),
    PRIMARY KEY (package, digest)
);
CREATE TABLE removed_calls (
    schedule_id UUID NOT NULL,
    slot_day BIGINT NOT NULL,
    decided_day BIGINT NOT NULL,
    package TEXT NOT NULL,
    calls BIGINT NOT NULL,
    cpu_us BIGINT NOT NULL,
    memory_peak_bytes BIGINT NOT NULL,
    record_bytes BIGINT NOT NULL,
    http_requests BIGINT NOT NULL,
    CHECK ((calls >= 1)),
    PRIMARY KEY (schedule_id, slot_day, decided_day, package)
);
CREATE INDEX removed_calls_decided ON removed_calls USING btree (decided_day);
CREATE TABLE removed_launches (
    schedule_id UUID NOT NULL,
    slot_day BIGINT NOT NULL,
    decided_day BIGINT NOT NULL,
    status TEXT NOT NULL,
    launches BIGINT NOT NULL,
    slots BIGINT NOT NULL,
    recovered BIGINT NOT NULL,
    recoveries BIGINT NOT NULL,
    settled BIGINT NOT NULL,
    removed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    hash BYTEA NOT NULL,
    CHECK ((launches >= 1)),
    CHECK ((status = ANY (ARRAY['succeeded'::text, 'failed'::text, 'cancelled'::text, 'unknown'::text, 'abandoned'::text, 'skipped'::text]))),
    PRIMARY KEY (schedule_id, slot_day, decided_day, status)
);
CREATE INDEX removed_launches_decided ON removed_launches USING btree (decided_day);
CREATE TABLE schedule (
    id UUID NOT NULL,
    name TEXT NOT NULL,
    package TEXT NOT NULL,
    origin TEXT NOT NULL,
    revision BIGINT NOT NULL,
    enabled BOOLEAN NOT NULL,
    cursor_at TIMESTAMP WITH TIME ZONE NOT NULL,
    next_slot TIMESTAMP WITH TIME ZONE,
    launches BIGINT NOT NULL DEFAULT 0,
    last_catchup_at TIMESTAMP WITH TIME ZONE,
    last_catchup_fire_time TIMESTAMP WITH TIME ZONE,
    skips TEXT,
    paused_at TIMESTAMP WITH TIME ZONE,
    paused_by TEXT,
    pause_note TEXT,
    paused_until TIMESTAMP WITH TIME ZONE,
    resumed_at TIMESTAMP WITH TIME ZONE,
    uncounted_before BIGINT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deleted_at TIMESTAMP WITH TIME ZONE,
    CHECK (((last_catchup_at IS NULL) = (last_catchup_fire_time IS NULL))),
    CHECK (((next_slot IS NULL) OR ((deleted_at IS NULL) AND enabled))),
    CHECK (((next_slot IS NULL) OR (next_slot > cursor_at))),
    CHECK (((paused_at IS NOT NULL) OR ((paused_by IS NULL) AND (pause_note IS NULL) AND (paused_until IS NULL)))),
    CHECK ((enabled = (paused_at IS NULL))),
    CHECK ((launches >= 0)),
    CHECK ((origin = ANY (ARRAY['operator'::text, 'file'::text, 'sidecar'::text, 'package'::text]))),
    CHECK ((revision >= 1)),
    PRIMARY KEY (id)
);
CREATE INDEX schedule_defined ON schedule USING btree (origin, package) WHERE ((deleted_at IS NULL) AND (origin <> 'operator'::text));
CREATE INDEX schedule_due ON schedule USING btree (next_slot, cursor_at DESC, origin) WHERE (next_slot IS NOT NULL);
CREATE UNIQUE INDEX schedule_name ON schedule USING btree (name) WHERE (deleted_at IS NULL);
CREATE INDEX schedule_package ON schedule USING btree (package, name) WHERE (deleted_at IS NULL);
CREATE INDEX schedule_paused ON schedule USING btree (name) WHERE ((deleted_at IS NULL) AND (NOT enabled));
CREATE INDEX schedule_paused_until ON schedule USING btree (paused_until) WHERE (paused_until IS NOT NULL);
CREATE INDEX schedule_removed ON schedule USING btree (name) WHERE (deleted_at IS NOT NULL);
CREATE TABLE schedule_default (
    id BIGINT NOT NULL,
    policies TEXT NOT NULL,
    CHECK ((id = 1)),
    PRIMARY KEY (id)
);
CREATE TABLE schedule_growth (
    schedule_id UUID NOT NULL,
    checked_at TIMESTAMP WITH TIME ZONE NOT NULL,
    cpu_us_before BIGINT NOT NULL,
    cpu_us BIGINT NOT NULL,
    memory_peak_bytes_before BIGINT NOT NULL,
    memory_peak_bytes BIGINT NOT NULL,
    PRIMARY KEY (schedule_id)
);
CREATE TABLE schedule_result (
    schedule_id UUID NOT NULL,
    success_scheduled_time TIMESTAMP WITH TIME ZONE,
    result TEXT,
    failure_scheduled_time TIMESTAMP WITH TIME ZONE,
    failure TEXT,
    last_success_at TIMESTAMP WITH TIME ZONE,
    failing_since TIMESTAMP WITH TIME ZONE,
    streak BIGINT NOT NULL DEFAULT 0,
    CHECK (((failing_since IS NULL) = (failure IS NULL))),
    CHECK (((streak = 0) = (failure IS NULL))),
    CHECK ((streak >= 0)),
    PRIMARY KEY (schedule_id)
);
CREATE INDEX schedule_result_failing ON schedule_result USING btree (failing_since, streak) WHERE (failing_since IS NOT NULL);
CREATE TABLE schedule_revision (
    schedule_id UUID NOT NULL,
    revision BIGINT NOT NULL,
    name TEXT NOT NULL,
    package TEXT NOT NULL,
    task TEXT,
    kind TEXT NOT NULL,
    expression TEXT NOT NULL,
    anchor TIMESTAMP WITH TIME ZONE,
    timezone TEXT NOT NULL,
    day_match TEXT NOT NULL,
    dst_gap TEXT NOT NULL,
    dst_fold TEXT NOT NULL,
    exclude TEXT NOT NULL,
    policies TEXT NOT NULL,
    defaults TEXT NOT NULL,
    args TEXT,
    context TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    CHECK ((day_match = ANY (ARRAY['or'::text, 'and'::text]))),
    CHECK ((dst_fold = ANY (ARRAY['first'::text, 'second'::text, 'both'::text]))),
    CHECK ((dst_gap = ANY (ARRAY['shift'::text, 'skip'::text]))),
    CHECK ((kind = ANY (ARRAY['cron'::text, 'every'::text, 'at'::text, 'after_completion'::text]))),
    FOREIGN KEY (schedule_id) REFERENCES schedule(id),
    PRIMARY KEY (schedule_id, revision)
);
CREATE INDEX schedule_revision_at_start ON schedule_revision USING btree (schedule_id) WHERE ((kind = 'cron'::text) AND (expression ~~ '%@reboot%'::text));
CREATE INDEX schedule_revision_counting ON schedule_revision USING btree (schedule_id) WHERE (kind = 'after_completion'::text);
CREATE INDEX schedule_revision_expect_within ON schedule_revision USING btree (schedule_id) WHERE (policies ~~ '%"expect_within"%'::text);
CREATE INDEX schedule_revision_name ON schedule_revision USING btree (name);
CREATE INDEX schedule_revision_retention ON schedule_revision USING btree (schedule_id) WHERE (policies ~~ '%"retention"%'::text);
CREATE TABLE schedule_rollup (
    schedule_id UUID NOT NULL,
    period TEXT NOT NULL,
    starts_at TIMESTAMP WITH TIME ZONE NOT NULL,
    succeeded BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    skipped BIGINT NOT NULL,
    cancelled BIGINT NOT NULL,
    late BIGINT NOT NULL,
    run_us BIGINT NOT NULL,
    durations BYTEA NOT NULL,
    lags BYTEA NOT NULL,
    CHECK ((period = ANY (ARRAY['hour'::text, 'day'::text]))),
    PRIMARY KEY (schedule_id, period, starts_at)
);
CREATE INDEX schedule_rollup_starts ON schedule_rollup USING btree (period, starts_at);
CREATE TABLE seal (
    number BIGINT NOT NULL,
    until_at TIMESTAMP WITH TIME ZONE NOT NULL,
    late_at TIMESTAMP WITH TIME ZONE,
    sealed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    launches BIGINT NOT NULL,
    events BIGINT NOT NULL,
    leaves BYTEA,
    leaves_hash BYTEA NOT NULL,
    unfinished BYTEA NOT NULL,
    hash BYTEA NOT NULL,
    CHECK ((events >= 0)),
    CHECK ((launches >= 0)),
    PRIMARY KEY (number)
);
CREATE INDEX seal_leaves ON seal USING btree (until_at) WHERE (leaves IS NOT NULL);
CREATE TABLE task_run (
    launch_id UUID NOT NULL,
    task TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    run_number BIGINT NOT NULL,
    succeeded BOOLEAN NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE NOT NULL,
    retry_at TIMESTAMP WITH TIME ZONE,
    output TEXT,
    context TEXT,
    failure TEXT,
    message TEXT,
    note TEXT,
    stdout TEXT NOT NULL,
    stdout_bytes_dropped BIGINT NOT NULL DEFAULT 0,
    stderr TEXT NOT NULL,
    stderr_bytes_dropped BIGINT NOT NULL DEFAULT 0,
    logs TEXT NOT NULL,
    wall_ms DOUBLE PRECISION NOT NULL,
    cpu_ms DOUBLE PRECISION NOT NULL,
    memory_peak_bytes BIGINT NOT NULL,
    usage TEXT NOT NULL,
    PRIMARY KEY (launch_id, task, attempt)
);
CREATE TABLE token (
    hash BYTEA NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    namespace TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    seal TEXT,
    CHECK ((expires_at > created_at)),
    CHECK ((namespace <> ''::text)),
    CHECK ((role = ANY (ARRAY['viewer'::text, 'operator'::text, 'editor'::text, 'approver'::text, 'admin'::text]))),
    PRIMARY KEY (hash)
);
CREATE UNIQUE INDEX token_name ON token USING btree (name) WHERE (revoked_at IS NULL);

-- Campanile's first schema. The two databases have the same tables, columns and
-- constraints; only the spelling of the types differs.
--
--   identities   UUID
--   instants     TIMESTAMPTZ
--   JSON         TEXT, exactly as it was written
--
-- Every index names the statement it serves.
--
-- The tables written for every launch have no foreign keys. Nothing is ever deleted, and each row is
-- written in one transaction with the row it refers to, or after reading that row under a lock; the
-- checks would look up, and on Postgres lock, one more row for every row written.

-- One row per life of a `campanile serve` process.
CREATE TABLE host (
    id UUID NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    wasmtime_version TEXT NOT NULL,
    tzdata_version TEXT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    heartbeat_at TIMESTAMPTZ NOT NULL,
    -- Set when the life is over: by the host itself when it stops, by another when it died.
    ended_at TIMESTAMPTZ,
    end_reason TEXT CHECK (end_reason IN ('stopped', 'died')),
    CHECK ((ended_at IS NULL) = (end_reason IS NULL))
);
-- hosts::live, hosts::bury
CREATE INDEX host_live ON host (name) WHERE ended_at IS NULL;

-- The bytes of every artifact that a launch may still need: a launch runs the
-- digest it was decided with, also when the file has changed since.
CREATE TABLE artifact (
    digest TEXT NOT NULL PRIMARY KEY,
    form TEXT NOT NULL,
    bytes BYTEA NOT NULL,
    stored_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE package (
    name TEXT NOT NULL PRIMARY KEY,
    -- None while no file of that name has ever been taken.
    digest TEXT REFERENCES artifact (digest),
    manifest TEXT NOT NULL,
    -- When a host last loaded it.
    loaded_at TIMESTAMPTZ,
    -- What the sidecar of the host that was heard last grants, one a line; without values.
    grants TEXT NOT NULL DEFAULT '',
    -- The version of the newest file, while that is kept out: it waits for approval, or a person decided against it.
    pending_digest TEXT REFERENCES artifact (digest),
    pending_since TIMESTAMPTZ,
    -- Set while no live host has the package in its folder.
    missing_since TIMESTAMPTZ,
    -- Why the newest file, or the sidecar beside it, cannot be used, while an older version stays in force.
    rejection TEXT,
    rejected_at TIMESTAMPTZ,
    -- The host in whose folder that is.
    rejected_by UUID REFERENCES host (id),
    CHECK ((digest IS NULL) = (loaded_at IS NULL)),
    CHECK ((pending_digest IS NULL) = (pending_since IS NULL)),
    CHECK (pending_digest IS NULL OR (digest IS NOT NULL AND digest <> pending_digest AND rejection IS NULL)),
    CHECK ((rejection IS NULL) = (rejected_at IS NULL)),
    CHECK ((rejection IS NULL) = (rejected_by IS NULL))
);

-- The versions of a package that were ever seen, and what a person decided about each. It holds for every host.
CREATE TABLE package_version (
    package TEXT NOT NULL REFERENCES package (name),
    digest TEXT NOT NULL REFERENCES artifact (digest),
    manifest TEXT NOT NULL,
    first_seen_at TIMESTAMPTZ NOT NULL,
    -- When it last came in force; none when it never did.
    activated_at TIMESTAMPTZ,
    decision TEXT CHECK (decision IN ('approved', 'rejected', 'rolled_back')),
    decided_at TIMESTAMPTZ,
    decided_by TEXT,
    note TEXT,
    PRIMARY KEY (package, digest),
    CHECK ((decision IS NULL) = (decided_at IS NULL)),
    CHECK ((decision IS NULL) = (decided_by IS NULL)),
    CHECK (decision IS NOT NULL OR note IS NULL)
);

-- Which live host has which package: a run goes only where the operator put the package and its grants.
CREATE TABLE package_host (
    package TEXT NOT NULL REFERENCES package (name),
    host_id UUID NOT NULL REFERENCES host (id),
    digest TEXT NOT NULL,
    -- The only digest that its sidecar lets in.
    pin TEXT,
    PRIMARY KEY (package, host_id)
);

-- The sidecar that a host last went by: what it goes by when it starts and finds an error in the file.
CREATE TABLE package_sidecar (
    package TEXT NOT NULL REFERENCES package (name),
    -- The host's name, which outlives its lives. What one host's sidecar grants is nothing to another.
    host TEXT NOT NULL,
    -- Its text; none when there was no sidecar.
    sidecar TEXT,
    -- What that granted, one a line; without values.
    grants TEXT NOT NULL,
    PRIMARY KEY (package, host)
);

-- What changes as time passes. What the schedule says is in schedule_revision.
CREATE TABLE schedule (
    id UUID NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    package TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('operator', 'file', 'sidecar', 'package')),
    revision BIGINT NOT NULL CHECK (revision >= 1),
    enabled BOOLEAN NOT NULL,
    -- The last decided slot, or the instant before which nothing is owed: creation, resume, edit. Never goes back.
    cursor_at TIMESTAMPTZ NOT NULL,
    -- The first slot after the cursor; none when disabled, deleted or at an end.
    next_slot TIMESTAMPTZ,
    -- Launches made, other than by hand and to fill back: what max_launches counts.
    launches BIGINT NOT NULL DEFAULT 0 CHECK (launches >= 0),
    -- When a slot was last caught up, and when that launch fires: what the next one is spread from.
    last_catchup_at TIMESTAMPTZ,
    last_catchup_fire_time TIMESTAMPTZ,
    -- Slots that a person took out: a JSON list, none when there are none.
    skips TEXT,
    -- While it is not enabled: since when, by whom and why, and until when if that is known.
    paused_at TIMESTAMPTZ,
    paused_by TEXT,
    pause_note TEXT,
    paused_until TIMESTAMPTZ,
    -- When a pause was last ended: failures before it are not counted again.
    resumed_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    deleted_at TIMESTAMPTZ,
    CHECK (next_slot IS NULL OR (deleted_at IS NULL AND enabled)),
    CHECK (next_slot IS NULL OR next_slot > cursor_at),
    CHECK ((last_catchup_at IS NULL) = (last_catchup_fire_time IS NULL)),
    CHECK (enabled = (paused_at IS NULL)),
    CHECK (paused_at IS NOT NULL OR (paused_by IS NULL AND pause_note IS NULL AND paused_until IS NULL))
);
-- A name is free again when its schedule was deleted.
CREATE UNIQUE INDEX schedule_name ON schedule (name) WHERE deleted_at IS NULL;
-- schedules::due, schedules::next_due
CREATE INDEX schedule_due ON schedule (next_slot) WHERE next_slot IS NOT NULL;
-- schedules::pauses_over, schedules::next_due
CREATE INDEX schedule_paused_until ON schedule (paused_until) WHERE paused_until IS NOT NULL;

-- What a schedule said at a revision. Only ever added to: launches refer to the revision that decided them.
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
    -- A JSON object of what it says.
    policies TEXT NOT NULL,
    context TEXT NOT NULL,
    since TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (schedule_id, revision)
);

-- The durable decision about one slot, or about a range of slots that were dropped for one reason.
CREATE TABLE launch (
    id UUID NOT NULL PRIMARY KEY,
    schedule_id UUID NOT NULL,
    schedule_revision BIGINT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('schedule', 'catchup', 'manual', 'backfill', 'startup')),
    scheduled_time TIMESTAMPTZ NOT NULL,
    scheduled_local TEXT NOT NULL,
    -- The last slot of a range; equal to slot for all others.
    last_scheduled_time TIMESTAMPTZ NOT NULL,
    slot_count BIGINT NOT NULL CHECK (slot_count >= 1),
    -- `queued` becomes one of the others: when it is its turn, or when it is not to have one any more.
    decision TEXT NOT NULL CHECK (decision IN ('launched', 'queued', 'skipped')),
    -- Why the slot was skipped, or the launch abandoned or cancelled.
    reason TEXT,
    -- The launch that it overlapped, when it was skipped or cancelled for that.
    overlaps_id UUID,
    status TEXT NOT NULL CHECK (status IN ('open', 'queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled', 'unknown', 'abandoned', 'skipped')),
    package TEXT NOT NULL,
    digest TEXT,
    -- The context given with a launch by hand or a backfill, laid over the schedule's.
    context TEXT,
    -- What a person said of other launches that go on, instead of what the schedule says.
    overlap TEXT CHECK (overlap IN ('skip', 'buffer_one', 'buffer_all', 'cancel_other', 'terminate_other', 'allow')),
    backfill_id UUID,
    interval_start TIMESTAMPTZ NOT NULL,
    fire_time TIMESTAMPTZ NOT NULL,
    decided_by UUID,
    claimed_at TIMESTAMPTZ NOT NULL,
    -- The newest run.
    run_id UUID,
    attempts BIGINT NOT NULL DEFAULT 0,
    recoveries BIGINT NOT NULL DEFAULT 0,
    recovered_at TIMESTAMPTZ,
    -- When it was its turn, if it had to wait for that.
    opened_at TIMESTAMPTZ,
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    failure TEXT,
    message TEXT,
    CHECK ((decision = 'skipped') = (status = 'skipped')),
    CHECK ((decision = 'queued') = (status = 'queued')),
    CHECK ((kind = 'backfill') = (backfill_id IS NOT NULL)),
    CHECK (overlap IS NULL OR kind = 'manual'),
    CHECK ((finished_at IS NULL) = (status IN ('open', 'queued', 'running', 'waiting')))
) WITH (fillfactor = 70);
-- One decision per slot, whoever makes it. launches::of_schedule, reading newest first.
CREATE UNIQUE INDEX launch_slot ON launch (schedule_id, scheduled_time) WHERE kind <> 'manual' AND kind <> 'backfill';
-- runs::take, recovery::open_of_dead_hosts
--
-- By the link to a run and not by the status: so that finishing a launch, the most frequent change
-- of all, touches no index.
CREATE INDEX launch_open ON launch (fire_time) WHERE run_id IS NULL AND decision = 'launched';
-- overlap::unfinished
--
-- The last condition always holds: it keeps this index from being taken where launch_open is meant.
CREATE INDEX launch_unclaimed ON launch (schedule_id) WHERE run_id IS NULL AND decision = 'launched' AND schedule_id IS NOT NULL;
-- overlap::unfinished, overlap::queues
CREATE INDEX launch_queued ON launch (schedule_id) WHERE decision = 'queued';
-- runs::next_wake
CREATE INDEX launch_queued_fire ON launch (fire_time) WHERE decision = 'queued' AND fire_time IS NOT NULL;
-- backfills::ends, backfills::skip_not_begun
CREATE INDEX launch_backfill ON launch (backfill_id) WHERE backfill_id IS NOT NULL;
-- backfills::succeeded
CREATE INDEX launch_backfill_slot ON launch (schedule_id, scheduled_time) WHERE kind = 'backfill';
-- launches::list
CREATE INDEX launch_claimed ON launch (claimed_at);

-- One attempt to carry a launch out. A lost run stays as it was; its launch gets a new one.
CREATE TABLE run (
    id UUID NOT NULL PRIMARY KEY,
    launch_id UUID NOT NULL,
    schedule_id UUID NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'waiting', 'succeeded', 'failed', 'cancelled', 'lost')),
    is_recovery BOOLEAN NOT NULL,
    digest TEXT NOT NULL,
    -- The SHA-256 of what it was granted and of the context it was given, when a host took it last.
    grants_hash TEXT,
    context_hash TEXT,
    -- The host that holds the run, the fence that proves it, and until when.
    host_id UUID,
    fence BIGINT NOT NULL,
    lease_until TIMESTAMPTZ,
    retry_at TIMESTAMPTZ,
    -- Set when it was asked to end: until when it may take its time.
    cancel_deadline TIMESTAMPTZ,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ,
    failure TEXT,
    message TEXT,
    CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CHECK ((status = 'waiting') = (retry_at IS NOT NULL)),
    CHECK ((finished_at IS NULL) = (status IN ('running', 'waiting')))
);
-- runs::of_launch
CREATE INDEX run_launch ON run (launch_id);
-- recovery::expired, runs::renew
CREATE INDEX run_lease ON run (lease_until) WHERE status = 'running';
-- runs::take_waiting
CREATE INDEX run_retry ON run (retry_at) WHERE status = 'waiting';
-- overlap::unfinished
CREATE INDEX run_active ON run (schedule_id) WHERE status IN ('running', 'waiting');

-- One call of one task. Only ever added to, when the call is over.
CREATE TABLE task_run (
    run_id UUID NOT NULL,
    task TEXT NOT NULL,
    -- Counts the calls of this task for this launch, over all its runs.
    attempt BIGINT NOT NULL,
    succeeded BOOLEAN NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ NOT NULL,
    -- When to call again, if a retry is due.
    retry_at TIMESTAMPTZ,
    output TEXT,
    context TEXT,
    failure TEXT,
    message TEXT,
    stdout TEXT NOT NULL,
    stderr TEXT NOT NULL,
    logs TEXT NOT NULL,
    wall_ms DOUBLE PRECISION NOT NULL,
    cpu_ms DOUBLE PRECISION NOT NULL,
    memory_peak_bytes BIGINT NOT NULL,
    -- JSON object: of each resource with a limit, how much was used and how much may be.
    usage TEXT NOT NULL,
    PRIMARY KEY (run_id, task, attempt)
);

-- What the next launch is told of the earlier ones. Apart from schedule, so that a
-- finishing run never waits for a deciding scheduler.
CREATE TABLE schedule_result (
    schedule_id UUID NOT NULL PRIMARY KEY,
    -- The newest slot that succeeded, and its output.
    success_scheduled_time TIMESTAMPTZ,
    result TEXT,
    -- The failure of the newest slot that failed, if no later one has succeeded.
    failure_scheduled_time TIMESTAMPTZ,
    failure TEXT
);

-- A request to launch the slots of a time that is past.
CREATE TABLE backfill (
    id UUID NOT NULL PRIMARY KEY,
    schedule_id UUID NOT NULL REFERENCES schedule (id),
    -- Whose rule yields the slots.
    schedule_revision BIGINT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'done', 'cancelled')),
    -- As asked for, both included. Slots after created_at are none of it: they are the schedule's own.
    from_at TIMESTAMPTZ NOT NULL,
    to_at TIMESTAMPTZ NOT NULL,
    -- From one launch to the next at least.
    spread_ms BIGINT NOT NULL CHECK (spread_ms >= 0),
    -- Whether slots that have succeeded are launched too.
    forced BOOLEAN NOT NULL,
    -- A JSON object laid over the schedule's context.
    context TEXT,
    -- Up to where slots were looked at, and when the next launch may fire.
    cursor_at TIMESTAMPTZ NOT NULL,
    next_fire TIMESTAMPTZ NOT NULL,
    -- How many slots it has, and what became of those before the cursor.
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

-- What happened to the tower itself: hosts, packages, schedules, recoveries, alerts. Only ever added to.
CREATE TABLE event (
    id UUID NOT NULL PRIMARY KEY,
    at TIMESTAMPTZ NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
);
-- events::list
CREATE INDEX event_at ON event (at);

-- What tasks keep from run to run. The row of a bucket is held by whoever changes its entries.
CREATE TABLE bucket (
    -- Of one package, `package/bucket`; a shared one has no slash.
    namespace TEXT NOT NULL PRIMARY KEY,
    -- Of all entries: keys, values, and something for each.
    bytes BIGINT NOT NULL CHECK (bytes >= 0),
    last_place BIGINT NOT NULL
);
CREATE TABLE bucket_entry (
    namespace TEXT NOT NULL,
    -- UTF-8.
    key BYTEA NOT NULL,
    -- Keys are listed by it, a page at a time: counts up as keys are first set.
    place BIGINT NOT NULL,
    value BYTEA NOT NULL,
    PRIMARY KEY (namespace, key)
);
-- buckets::keys
CREATE UNIQUE INDEX bucket_entry_place ON bucket_entry (namespace, place);

-- One row, counted up by whoever changes schedules: a running host reads it to notice.
CREATE TABLE change (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    counter BIGINT NOT NULL
);
INSERT INTO change (id, counter) VALUES (1, 0);

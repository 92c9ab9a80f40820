-- Campanile's first schema. The two databases have the same tables, columns and
-- constraints; only the spelling of the types differs.
--
--   identities   BLOB of 16 bytes
--   instants     TEXT of fixed width in UTC, which sorts as time does
--   JSON         TEXT, exactly as it was written
--
-- Every index names the statement it serves.
--
-- The tables written for every launch have no foreign keys. Nothing is ever deleted, and each row is
-- written in one transaction with the row it refers to, or after reading that row under a lock; the
-- checks would look up, and on Postgres lock, one more row for every row written.

-- One row per life of a `campanile serve` process.
CREATE TABLE host (
    id BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    wasmtime_version TEXT NOT NULL,
    tzdata_version TEXT NOT NULL,
    started_at TEXT NOT NULL,
    heartbeat_at TEXT NOT NULL,
    -- Set when the life is over: by the host itself when it stops, by another when it died.
    ended_at TEXT,
    end_reason TEXT CHECK (end_reason IN ('stopped', 'died')),
    CHECK ((ended_at IS NULL) = (end_reason IS NULL))
) STRICT;
-- hosts::live, hosts::bury
CREATE INDEX host_live ON host (name) WHERE ended_at IS NULL;

-- The bytes of every artifact that a launch may still need: a launch runs the
-- digest it was decided with, also when the file has changed since.
CREATE TABLE artifact (
    digest TEXT NOT NULL PRIMARY KEY,
    form TEXT NOT NULL,
    bytes BLOB NOT NULL,
    stored_at TEXT NOT NULL
) STRICT;

CREATE TABLE package (
    name TEXT NOT NULL PRIMARY KEY,
    -- None while no file of that name has ever been taken.
    digest TEXT REFERENCES artifact (digest),
    manifest TEXT NOT NULL,
    -- When a host last loaded it.
    loaded_at TEXT,
    -- What the sidecar of the host that was heard last grants, one a line; without values.
    grants TEXT NOT NULL DEFAULT '',
    -- The version of the newest file, while that is kept out: it waits for approval, or a person decided against it.
    pending_digest TEXT REFERENCES artifact (digest),
    pending_since TEXT,
    -- Set while no live host has the package in its folder.
    missing_since TEXT,
    -- Why the newest file, or the sidecar beside it, cannot be used, while an older version stays in force.
    rejection TEXT,
    rejected_at TEXT,
    -- The host in whose folder that is.
    rejected_by BLOB REFERENCES host (id),
    CHECK ((digest IS NULL) = (loaded_at IS NULL)),
    CHECK ((pending_digest IS NULL) = (pending_since IS NULL)),
    CHECK (pending_digest IS NULL OR (digest IS NOT NULL AND digest <> pending_digest AND rejection IS NULL)),
    CHECK ((rejection IS NULL) = (rejected_at IS NULL)),
    CHECK ((rejection IS NULL) = (rejected_by IS NULL))
) STRICT;

-- The versions of a package that were ever seen, and what a person decided about each. It holds for every host.
CREATE TABLE package_version (
    package TEXT NOT NULL REFERENCES package (name),
    digest TEXT NOT NULL REFERENCES artifact (digest),
    manifest TEXT NOT NULL,
    first_seen_at TEXT NOT NULL,
    -- When it last came in force; none when it never did.
    activated_at TEXT,
    decision TEXT CHECK (decision IN ('approved', 'rejected', 'rolled_back')),
    decided_at TEXT,
    decided_by TEXT,
    note TEXT,
    PRIMARY KEY (package, digest),
    CHECK ((decision IS NULL) = (decided_at IS NULL)),
    CHECK ((decision IS NULL) = (decided_by IS NULL)),
    CHECK (decision IS NOT NULL OR note IS NULL)
) STRICT;

-- Which live host has which package: a run goes only where the operator put the package and its grants.
CREATE TABLE package_host (
    package TEXT NOT NULL REFERENCES package (name),
    host_id BLOB NOT NULL REFERENCES host (id),
    digest TEXT NOT NULL,
    -- The only digest that its sidecar lets in.
    pin TEXT,
    PRIMARY KEY (package, host_id)
) STRICT;

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
) STRICT;

-- What changes as time passes. What the schedule says is in schedule_revision.
CREATE TABLE schedule (
    id BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    package TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('operator', 'file', 'sidecar', 'package')),
    revision INTEGER NOT NULL CHECK (revision >= 1),
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    -- The last decided slot, or the instant before which nothing is owed: creation, resume, edit. Never goes back.
    cursor_at TEXT NOT NULL,
    -- The first slot after the cursor; none when disabled, deleted or at an end.
    next_slot TEXT,
    -- Launches made, other than by hand and to fill back: what max_launches counts.
    launches INTEGER NOT NULL DEFAULT 0 CHECK (launches >= 0),
    -- When a slot was last caught up, and when that launch fires: what the next one is spread from.
    last_catchup_at TEXT,
    last_catchup_fire_time TEXT,
    -- Slots that a person took out: a JSON list, none when there are none.
    skips TEXT,
    -- While it is not enabled: since when, by whom and why, and until when if that is known.
    paused_at TEXT,
    paused_by TEXT,
    pause_note TEXT,
    paused_until TEXT,
    -- When a pause was last ended: failures before it are not counted again.
    resumed_at TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    deleted_at TEXT,
    CHECK (next_slot IS NULL OR (deleted_at IS NULL AND enabled)),
    CHECK (next_slot IS NULL OR next_slot > cursor_at),
    CHECK ((last_catchup_at IS NULL) = (last_catchup_fire_time IS NULL)),
    CHECK (enabled = (paused_at IS NULL)),
    CHECK (paused_at IS NOT NULL OR (paused_by IS NULL AND pause_note IS NULL AND paused_until IS NULL))
) STRICT;
-- A name is free again when its schedule was deleted.
CREATE UNIQUE INDEX schedule_name ON schedule (name) WHERE deleted_at IS NULL;
-- schedules::due, schedules::next_due
CREATE INDEX schedule_due ON schedule (next_slot) WHERE next_slot IS NOT NULL;
-- schedules::pauses_over, schedules::next_due
CREATE INDEX schedule_paused_until ON schedule (paused_until) WHERE paused_until IS NOT NULL;

-- What a schedule said at a revision. Only ever added to: launches refer to the revision that decided them.
CREATE TABLE schedule_revision (
    schedule_id BLOB NOT NULL REFERENCES schedule (id),
    revision INTEGER NOT NULL,
    name TEXT NOT NULL,
    package TEXT NOT NULL,
    task TEXT,
    kind TEXT NOT NULL CHECK (kind IN ('cron', 'every', 'at', 'after_completion')),
    expression TEXT NOT NULL,
    anchor TEXT,
    timezone TEXT NOT NULL,
    day_match TEXT NOT NULL CHECK (day_match IN ('or', 'and')),
    dst_gap TEXT NOT NULL CHECK (dst_gap IN ('shift', 'skip')),
    dst_fold TEXT NOT NULL CHECK (dst_fold IN ('first', 'second', 'both')),
    -- A JSON list.
    exclude TEXT NOT NULL,
    -- A JSON object of what it says.
    policies TEXT NOT NULL,
    context TEXT NOT NULL,
    since TEXT NOT NULL,
    PRIMARY KEY (schedule_id, revision)
) STRICT;

-- The durable decision about one slot, or about a range of slots that were dropped for one reason.
CREATE TABLE launch (
    id BLOB NOT NULL PRIMARY KEY,
    schedule_id BLOB NOT NULL,
    schedule_revision INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('schedule', 'catchup', 'manual', 'backfill', 'startup')),
    scheduled_time TEXT NOT NULL,
    scheduled_local TEXT NOT NULL,
    -- The last slot of a range; equal to slot for all others.
    last_scheduled_time TEXT NOT NULL,
    slot_count INTEGER NOT NULL CHECK (slot_count >= 1),
    -- `queued` becomes one of the others: when it is its turn, or when it is not to have one any more.
    decision TEXT NOT NULL CHECK (decision IN ('launched', 'queued', 'skipped')),
    -- Why the slot was skipped, or the launch abandoned or cancelled.
    reason TEXT,
    -- The launch that it overlapped, when it was skipped or cancelled for that.
    overlaps_id BLOB,
    status TEXT NOT NULL CHECK (status IN ('open', 'queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled', 'unknown', 'abandoned', 'skipped')),
    package TEXT NOT NULL,
    digest TEXT,
    -- The context given with a launch by hand or a backfill, laid over the schedule's.
    context TEXT,
    -- What a person said of other launches that go on, instead of what the schedule says.
    overlap TEXT CHECK (overlap IN ('skip', 'buffer_one', 'buffer_all', 'cancel_other', 'terminate_other', 'allow')),
    backfill_id BLOB,
    interval_start TEXT NOT NULL,
    fire_time TEXT NOT NULL,
    decided_by BLOB,
    claimed_at TEXT NOT NULL,
    -- The newest run.
    run_id BLOB,
    attempts INTEGER NOT NULL DEFAULT 0,
    recoveries INTEGER NOT NULL DEFAULT 0,
    recovered_at TEXT,
    -- When it was its turn, if it had to wait for that.
    opened_at TEXT,
    started_at TEXT,
    finished_at TEXT,
    failure TEXT,
    message TEXT,
    CHECK ((decision = 'skipped') = (status = 'skipped')),
    CHECK ((decision = 'queued') = (status = 'queued')),
    CHECK ((kind = 'backfill') = (backfill_id IS NOT NULL)),
    CHECK (overlap IS NULL OR kind = 'manual'),
    CHECK ((finished_at IS NULL) = (status IN ('open', 'queued', 'running', 'waiting')))
) STRICT;
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
    id BLOB NOT NULL PRIMARY KEY,
    launch_id BLOB NOT NULL,
    schedule_id BLOB NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'waiting', 'succeeded', 'failed', 'cancelled', 'lost')),
    is_recovery INTEGER NOT NULL CHECK (is_recovery IN (0, 1)),
    digest TEXT NOT NULL,
    -- The SHA-256 of what it was granted and of the context it was given, when a host took it last.
    grants_hash TEXT,
    context_hash TEXT,
    -- The host that holds the run, the fence that proves it, and until when.
    host_id BLOB,
    fence INTEGER NOT NULL,
    lease_until TEXT,
    retry_at TEXT,
    -- Set when it was asked to end: until when it may take its time.
    cancel_deadline TEXT,
    started_at TEXT NOT NULL,
    finished_at TEXT,
    failure TEXT,
    message TEXT,
    CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CHECK ((status = 'waiting') = (retry_at IS NOT NULL)),
    CHECK ((finished_at IS NULL) = (status IN ('running', 'waiting')))
) STRICT;
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
    run_id BLOB NOT NULL,
    task TEXT NOT NULL,
    -- Counts the calls of this task for this launch, over all its runs.
    attempt INTEGER NOT NULL,
    succeeded INTEGER NOT NULL CHECK (succeeded IN (0, 1)),
    started_at TEXT NOT NULL,
    finished_at TEXT NOT NULL,
    -- When to call again, if a retry is due.
    retry_at TEXT,
    output TEXT,
    context TEXT,
    failure TEXT,
    message TEXT,
    stdout TEXT NOT NULL,
    stderr TEXT NOT NULL,
    logs TEXT NOT NULL,
    wall_ms REAL NOT NULL,
    cpu_ms REAL NOT NULL,
    memory_peak_bytes INTEGER NOT NULL,
    -- JSON object: of each resource with a limit, how much was used and how much may be.
    usage TEXT NOT NULL,
    PRIMARY KEY (run_id, task, attempt)
) STRICT;

-- What the next launch is told of the earlier ones. Apart from schedule, so that a
-- finishing run never waits for a deciding scheduler.
CREATE TABLE schedule_result (
    schedule_id BLOB NOT NULL PRIMARY KEY,
    -- The newest slot that succeeded, and its output.
    success_scheduled_time TEXT,
    result TEXT,
    -- The failure of the newest slot that failed, if no later one has succeeded.
    failure_scheduled_time TEXT,
    failure TEXT
) STRICT;

-- A request to launch the slots of a time that is past.
CREATE TABLE backfill (
    id BLOB NOT NULL PRIMARY KEY,
    schedule_id BLOB NOT NULL REFERENCES schedule (id),
    -- Whose rule yields the slots.
    schedule_revision INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'done', 'cancelled')),
    -- As asked for, both included. Slots after created_at are none of it: they are the schedule's own.
    from_at TEXT NOT NULL,
    to_at TEXT NOT NULL,
    -- From one launch to the next at least.
    spread_ms INTEGER NOT NULL CHECK (spread_ms >= 0),
    -- Whether slots that have succeeded are launched too.
    forced INTEGER NOT NULL CHECK (forced IN (0, 1)),
    -- A JSON object laid over the schedule's context.
    context TEXT,
    -- Up to where slots were looked at, and when the next launch may fire.
    cursor_at TEXT NOT NULL,
    next_fire TEXT NOT NULL,
    -- How many slots it has, and what became of those before the cursor.
    slots INTEGER NOT NULL,
    launched INTEGER NOT NULL DEFAULT 0,
    slots_skipped INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    created_by TEXT NOT NULL,
    finished_at TEXT,
    CHECK ((finished_at IS NULL) = (status = 'running'))
) STRICT;
-- backfills::running
CREATE INDEX backfill_running ON backfill (created_at) WHERE status = 'running';

-- What happened to the tower itself: hosts, packages, schedules, recoveries, alerts. Only ever added to.
CREATE TABLE event (
    id BLOB NOT NULL PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
-- events::list
CREATE INDEX event_at ON event (at);

-- What tasks keep from run to run. The row of a bucket is held by whoever changes its entries.
CREATE TABLE bucket (
    -- Of one package, `package/bucket`; a shared one has no slash.
    namespace TEXT NOT NULL PRIMARY KEY,
    -- Of all entries: keys, values, and something for each.
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    last_place INTEGER NOT NULL
) STRICT;
CREATE TABLE bucket_entry (
    namespace TEXT NOT NULL,
    -- UTF-8.
    key BLOB NOT NULL,
    -- Keys are listed by it, a page at a time: counts up as keys are first set.
    place INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT;
-- buckets::keys
CREATE UNIQUE INDEX bucket_entry_place ON bucket_entry (namespace, place);

-- One row, counted up by whoever changes schedules: a running host reads it to notice.
CREATE TABLE change (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    counter INTEGER NOT NULL
) STRICT;
INSERT INTO change (id, counter) VALUES (1, 0);

-- Campanile's first schema. The two databases have the same tables, columns and
-- constraints; only the spelling of the types differs.
--
--   identities   BLOB of 16 bytes
--   instants     TEXT of fixed width in UTC, which sorts as time does
--   JSON         TEXT, exactly as it was written
--
-- The comment before an index names the functions that need it.
--
-- The tables that every launch writes have no foreign keys. No row is ever deleted. A row is written in one
-- transaction with the row that it refers to, or after that row was read under a lock. A foreign key would make
-- the database look up, and on Postgres lock, one more row for each row.

-- One row for each `campanile serve` process.
CREATE TABLE host (
    id BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    wasmtime_version TEXT NOT NULL,
    tzdata_version TEXT NOT NULL,
    started_at TEXT NOT NULL,
    heartbeat_at TEXT NOT NULL,
    -- Set by the host itself when it stops, or by another host that marks it as dead.
    ended_at TEXT,
    end_reason TEXT CHECK (end_reason IN ('stopped', 'died')),
    CHECK ((ended_at IS NULL) = (end_reason IS NULL))
) STRICT;
-- hosts::mark_predecessors_dead, hosts::live
CREATE INDEX host_live ON host (name) WHERE ended_at IS NULL;

-- The bytes of every artifact that a launch may need. A launch runs the digest it was
-- decided with, also when the file has changed since.
CREATE TABLE artifact (
    digest TEXT NOT NULL PRIMARY KEY,
    form TEXT NOT NULL,
    bytes BLOB NOT NULL,
    stored_at TEXT NOT NULL
) STRICT;

CREATE TABLE package (
    name TEXT NOT NULL PRIMARY KEY,
    -- The active version; none when no version was ever active.
    digest TEXT REFERENCES artifact (digest),
    manifest TEXT NOT NULL,
    -- When a host last loaded the active version.
    loaded_at TEXT,
    -- What the sidecar that a host published last grants, one a line, without values.
    grants TEXT NOT NULL DEFAULT '',
    -- The version of the newest file, while it is not active.
    pending_digest TEXT REFERENCES artifact (digest),
    pending_since TEXT,
    -- Set while no live host has the package in its folder.
    missing_since TEXT,
    -- Why the newest file, or its sidecar, cannot be used.
    rejection TEXT,
    rejected_at TEXT,
    -- The host that has that file in its folder.
    rejected_by BLOB REFERENCES host (id),
    -- Set while a host loads the newest file, once that has taken a second.
    loading_since TEXT,
    loading_by BLOB REFERENCES host (id),
    CHECK ((digest IS NULL) = (loaded_at IS NULL)),
    CHECK ((pending_digest IS NULL) = (pending_since IS NULL)),
    CHECK (pending_digest IS NULL OR ((digest IS NULL OR digest <> pending_digest) AND rejection IS NULL)),
    CHECK ((rejection IS NULL) = (rejected_at IS NULL)),
    CHECK ((rejection IS NULL) = (rejected_by IS NULL)),
    CHECK ((loading_since IS NULL) = (loading_by IS NULL))
) STRICT;

-- The versions of a package that a host has seen, and a person's decision about each. It holds for every host.
CREATE TABLE package_version (
    package TEXT NOT NULL REFERENCES package (name),
    digest TEXT NOT NULL REFERENCES artifact (digest),
    manifest TEXT NOT NULL,
    first_seen_at TEXT NOT NULL,
    -- When it last became active; none when it never was.
    activated_at TEXT,
    decision TEXT CHECK (decision IN ('approved', 'rejected', 'rolled_back')),
    decided_at TEXT,
    decided_by TEXT,
    note TEXT,
    -- The signature file beside the package, if a key that a host trusts made it.
    signature TEXT,
    PRIMARY KEY (package, digest),
    CHECK ((decision IS NULL) = (decided_at IS NULL)),
    CHECK ((decision IS NULL) = (decided_by IS NULL)),
    CHECK (decision IS NOT NULL OR note IS NULL)
) STRICT;

-- Which live host has which package. A run goes only to a host where the operator put the package and its grants.
CREATE TABLE package_host (
    package TEXT NOT NULL REFERENCES package (name),
    host_id BLOB NOT NULL REFERENCES host (id),
    digest TEXT NOT NULL,
    -- The only digest that its sidecar accepts.
    pin TEXT,
    PRIMARY KEY (package, host_id)
) STRICT;

-- The sidecar that a host last used. It uses it again when it starts and the file has an error.
CREATE TABLE package_sidecar (
    package TEXT NOT NULL REFERENCES package (name),
    -- The host's name, which outlives its processes. The sidecar of one host grants nothing to another host.
    host TEXT NOT NULL,
    -- The text; none when there was no sidecar.
    sidecar TEXT,
    -- The grants, one a line, without values.
    grants TEXT NOT NULL,
    PRIMARY KEY (package, host)
) STRICT;

-- What the tasks of a package have added to the record on a day: outputs, logs and messages.
CREATE TABLE package_record (
    package TEXT NOT NULL,
    -- Days since 1970, in UTC.
    day INTEGER NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    -- When the package had used up its quota of the day.
    exceeded_at TEXT,
    PRIMARY KEY (package, day)
) STRICT;

-- The state of a schedule, which changes with time. Its definition is in schedule_revision.
CREATE TABLE schedule (
    id BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    package TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('operator', 'file', 'sidecar', 'package')),
    revision INTEGER NOT NULL CHECK (revision >= 1),
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    -- The last decided slot, or the instant before which no slot is decided: creation, resume, edit. It never goes back.
    cursor_at TEXT NOT NULL,
    -- The first slot after the cursor; none when the schedule is paused, removed or has no more slots.
    next_slot TEXT,
    -- Launches besides manual and backfill ones. max_launches limits this number.
    launches INTEGER NOT NULL DEFAULT 0 CHECK (launches >= 0),
    -- When a slot was last caught up, and when that launch fires. The next catch-up is spread from it.
    last_catchup_at TEXT,
    last_catchup_fire_time TEXT,
    -- The slots that a person skipped, a JSON list; none when there are none.
    skips TEXT,
    -- While the schedule is paused: when and by whom, the note, and when the pause ends by itself.
    paused_at TEXT,
    paused_by TEXT,
    pause_note TEXT,
    paused_until TEXT,
    -- When the last pause ended. pause_on_failure does not count failures before it.
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
-- A name is free again when its schedule is removed.
CREATE UNIQUE INDEX schedule_name ON schedule (name) WHERE deleted_at IS NULL;
-- schedules::due, schedules::next_due
CREATE INDEX schedule_due ON schedule (next_slot) WHERE next_slot IS NOT NULL;
-- schedules::expired_pause, schedules::next_due
CREATE INDEX schedule_paused_until ON schedule (paused_until) WHERE paused_until IS NOT NULL;

-- The definitions of schedules. Rows are only added: launches refer to the revision that decided them.
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
    -- A JSON object of the policies that the definition sets.
    policies TEXT NOT NULL,
    context TEXT NOT NULL,
    since TEXT NOT NULL,
    PRIMARY KEY (schedule_id, revision)
) STRICT;

-- The decision about one slot, or about a range of slots that were skipped for one reason.
CREATE TABLE launch (
    id BLOB NOT NULL PRIMARY KEY,
    schedule_id BLOB NOT NULL,
    schedule_revision INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('schedule', 'catchup', 'manual', 'backfill', 'startup')),
    scheduled_time TEXT NOT NULL,
    scheduled_local TEXT NOT NULL,
    -- The last slot of a range; otherwise equal to scheduled_time.
    last_scheduled_time TEXT NOT NULL,
    slot_count INTEGER NOT NULL CHECK (slot_count >= 1),
    -- `queued` changes to one of the others when the launch leaves the queue.
    decision TEXT NOT NULL CHECK (decision IN ('launched', 'queued', 'skipped')),
    -- Why the launch was skipped, abandoned or cancelled.
    reason TEXT,
    -- The launch that it overlapped, when it was skipped or cancelled for that.
    overlaps_id BLOB,
    status TEXT NOT NULL CHECK (status IN ('open', 'queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled', 'unknown', 'abandoned', 'skipped')),
    package TEXT NOT NULL,
    digest TEXT,
    -- By these, hosts choose what to claim when they cannot claim all: whether it is a slot of a schedule that its
    -- package proposed, the priority of its revision, and the concurrency group, if its revision has one.
    proposed INTEGER NOT NULL CHECK (proposed IN (0, 1)),
    priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    group_name TEXT,
    -- The context of a manual or backfill launch. It is merged over the schedule's context.
    context TEXT,
    -- The overlap policy that a person gave for this launch.
    overlap TEXT CHECK (overlap IN ('skip', 'buffer_one', 'buffer_all', 'cancel_other', 'terminate_other', 'allow')),
    backfill_id BLOB,
    interval_start TEXT NOT NULL,
    fire_time TEXT NOT NULL,
    decided_by BLOB,
    decided_at TEXT NOT NULL,
    -- The newest run.
    run_id BLOB,
    attempts INTEGER NOT NULL DEFAULT 0,
    recoveries INTEGER NOT NULL DEFAULT 0,
    recovered_at TEXT,
    -- When it left the queue, if it was queued.
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
-- One decision for each slot, whichever host makes it. launches::of_schedule, which reads newest first.
CREATE UNIQUE INDEX launch_slot ON launch (schedule_id, scheduled_time) WHERE kind <> 'manual' AND kind <> 'backfill';
-- claims::open, runs::next_wake
--
-- The condition is on run_id and not on status. So a finish, the most frequent change,
-- changes no index.
CREATE INDEX launch_open ON launch (fire_time) WHERE run_id IS NULL AND decision = 'launched' AND group_name IS NULL;
-- claims::waiting_packages, claims::open_of_package
--
-- The last condition is always true. It keeps the databases from using this index in place of launch_open.
CREATE INDEX launch_share ON launch (priority, proposed, package, fire_time)
    WHERE run_id IS NULL AND decision = 'launched' AND group_name IS NULL AND priority IS NOT NULL;
-- claims::waiting_groups, claims::open_of_group
CREATE INDEX launch_group ON launch (priority, proposed, group_name, fire_time)
    WHERE run_id IS NULL AND decision = 'launched' AND group_name IS NOT NULL;
-- overlap::unfinished
--
-- The last condition is always true. It keeps the databases from using this index in place of launch_open.
CREATE INDEX launch_unclaimed ON launch (schedule_id) WHERE run_id IS NULL AND decision = 'launched' AND schedule_id IS NOT NULL;
-- overlap::unfinished, overlap::queued_schedules
CREATE INDEX launch_queued ON launch (schedule_id) WHERE decision = 'queued';
-- runs::next_wake
CREATE INDEX launch_queued_fire ON launch (fire_time) WHERE decision = 'queued' AND fire_time IS NOT NULL;
-- backfills::launch_totals, backfills::skip_unstarted
CREATE INDEX launch_backfill ON launch (backfill_id) WHERE backfill_id IS NOT NULL;
-- backfills::slots_to_skip
CREATE INDEX launch_backfill_slot ON launch (schedule_id, scheduled_time) WHERE kind = 'backfill';
-- launches::list
CREATE INDEX launch_decided ON launch (decided_at);

-- One attempt to execute a launch. A lost run keeps its row; its launch gets a new run.
CREATE TABLE run (
    id BLOB NOT NULL PRIMARY KEY,
    launch_id BLOB NOT NULL,
    schedule_id BLOB NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'waiting', 'succeeded', 'failed', 'cancelled', 'lost')),
    is_recovery INTEGER NOT NULL CHECK (is_recovery IN (0, 1)),
    -- The concurrency group of its launch.
    group_name TEXT,
    digest TEXT NOT NULL,
    -- The SHA-256 of its grants and of its context at the last claim.
    grants_hash TEXT,
    context_hash TEXT,
    -- The host that claimed the run, the fence of the claim, and when its lease ends.
    host_id BLOB,
    fence INTEGER NOT NULL,
    lease_until TEXT,
    retry_at TEXT,
    -- Set when it was asked to end: by when it must end.
    cancel_deadline TEXT,
    started_at TEXT NOT NULL,
    finished_at TEXT,
    failure TEXT,
    message TEXT,
    CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CHECK ((status = 'waiting') = (retry_at IS NOT NULL)),
    CHECK ((finished_at IS NULL) = (status IN ('running', 'waiting')))
) STRICT;
-- task_runs::of_launch, history::runs
CREATE INDEX run_launch ON run (launch_id);
-- recovery::orphaned_runs
CREATE INDEX run_lease ON run (lease_until) WHERE status = 'running';
-- runs::claim_retries
CREATE INDEX run_retry ON run (retry_at) WHERE status = 'waiting';
-- claims::running_in_group
CREATE INDEX run_group ON run (group_name) WHERE status = 'running' AND group_name IS NOT NULL;
-- overlap::unfinished
CREATE INDEX run_active ON run (schedule_id) WHERE status IN ('running', 'waiting');

-- One call of one task that has ended. Rows are only added.
CREATE TABLE task_run (
    run_id BLOB NOT NULL,
    task TEXT NOT NULL,
    -- The number of the call of this task, over all runs of the launch.
    attempt INTEGER NOT NULL,
    succeeded INTEGER NOT NULL CHECK (succeeded IN (0, 1)),
    started_at TEXT NOT NULL,
    finished_at TEXT NOT NULL,
    -- When the task is called again, if a retry is due.
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
    -- JSON object: for each limited resource, the amount used and the limit.
    usage TEXT NOT NULL,
    PRIMARY KEY (run_id, task, attempt)
) STRICT;

-- What the next launches of a schedule get in their context. The table is apart from schedule, so that
-- a finish does not wait for a transaction that decides.
CREATE TABLE schedule_result (
    schedule_id BLOB NOT NULL PRIMARY KEY,
    -- The newest slot that succeeded, and its output.
    success_scheduled_time TEXT,
    result TEXT,
    -- The failure of the newest slot that failed, if no later slot has succeeded.
    failure_scheduled_time TEXT,
    failure TEXT
) STRICT;

-- A request to launch the slots of a past range.
CREATE TABLE backfill (
    id BLOB NOT NULL PRIMARY KEY,
    schedule_id BLOB NOT NULL REFERENCES schedule (id),
    -- The revision whose rule yields the slots.
    schedule_revision INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'done', 'cancelled')),
    -- The requested range, both ends included. Slots after created_at do not belong to it.
    from_at TEXT NOT NULL,
    to_at TEXT NOT NULL,
    -- The least time between two launches.
    spread_ms INTEGER NOT NULL CHECK (spread_ms >= 0),
    -- Whether all slots are launched, also those that backfills::slots_to_skip returns.
    forced INTEGER NOT NULL CHECK (forced IN (0, 1)),
    -- A JSON object that is merged over the schedule's context.
    context TEXT,
    -- The last slot that was considered, and when the next launch may fire.
    cursor_at TEXT NOT NULL,
    next_fire TEXT NOT NULL,
    -- The number of slots, and of those up to the cursor how many were launched and how many skipped.
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

-- Changes of hosts, packages, schedules, launches and health. Rows are only added.
CREATE TABLE event (
    id BLOB NOT NULL PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
-- events::list
CREATE INDEX event_at ON event (at);

-- Buckets, which tasks write to. A transaction that changes entries of a bucket has locked its row.
CREATE TABLE bucket (
    -- `package/bucket` for a bucket of one package; a shared bucket has no slash.
    namespace TEXT NOT NULL PRIMARY KEY,
    -- The bytes of all entries: keys, values, and a fixed number for each.
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    last_position INTEGER NOT NULL
) STRICT;
CREATE TABLE bucket_entry (
    namespace TEXT NOT NULL,
    -- UTF-8.
    key BLOB NOT NULL,
    -- The order in which keys were first set. Keys are listed by it, a page at a time.
    position INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT;
-- buckets::keys
CREATE UNIQUE INDEX bucket_entry_position ON bucket_entry (namespace, position);

-- One row with a counter. A transaction that changes schedules increments it, so that running hosts notice.
CREATE TABLE change (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    counter INTEGER NOT NULL
) STRICT;
INSERT INTO change (id, counter) VALUES (1, 0);

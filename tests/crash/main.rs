//! Crash tests: the real program on both databases, while the host, the database or the disk fails.
//!
//! | file             | failure                                                                  |
//! |------------------|--------------------------------------------------------------------------|
//! | `crash_points`   | the host dies at a named point of a launch's path                        |
//! | `effects_once`   | the host dies at a named point, with effects in a session and the outbox |
//! | `chores`         | the host that does the chores is killed, suspended or stopped            |
//! | `clock`          | the machine's clock steps                                                |
//! | `copies`         | a backup or a restore is killed, and a host serves a restored copy     |
//! | `kills`          | `kill -9` during a backup, and repeatedly at random times                |
//! | `failover`       | a host is killed; how long its runs wait for another host               |
//! | `hosts`          | one of two hosts dies, or is suspended for longer than its lease         |
//! | `retention`      | the host dies while it removes old launches                              |
//! | `rollup`         | the host dies while it seals launches and counts them                    |
//! | `rounds`         | one of three hosts is killed, suspended or cut off, again and again      |
//! | `lost_lease`     | a host is suspended for longer than its lease; what its runs still do  |
//! | `lost_peer`      | a host is lost inside a transaction, with locks                          |
//! | `names`          | the connection that locks a host's name breaks, and a duplicate waits    |
//! | `standby`        | the primary of a standby crashes, and the standby is promoted            |
//! | `outage`         | the Postgres server stops or does not answer, and recovers               |
//! | `disk`           | the SQLite file cannot be written, the disk is full, the file is damaged |
//! | `file_lock`      | a SQLite file has a second name, or its lock file is removed             |
//! | `low_disk`       | the disk of the database is low or full, and has room again              |
//! | `stop`           | the host gets a stop signal at a critical time                           |
//! | `unreadable_folder` | the plugins folder cannot be read at the start                     |
//! | `folder_changes` | files in the plugins folder change at random while launches run          |
//!
//! `point_table` is the table of the tests with named points.
//! `consistency` checks the record afterwards: every slot has one decision, every launch has ended or is unfinished for a
//! valid reason, and every successful launch has an effect.
//!
//! `CAMPANILE_LONG_TESTS=1` runs outages and loads at their full length.

mod alerts;
mod chores;
mod clock;
mod consistency;
mod copies;
mod crash_points;
mod disk;
mod effects_once;
mod failover;
mod file_lock;
mod folder_changes;
mod folder_chaos;
mod hosts;
mod kills;
mod lost_delivery;
mod lost_lease;
mod lost_peer;
mod low_disk;
mod names;
mod outage;
mod point_table;
mod proxy;
mod receiver;
mod retention;
mod rollup;
mod rounds;
mod site;
mod standby;
mod stop;
mod turn;
mod unreadable_folder;

/// Return whether the tests run at full length.
fn long() -> bool {
    std::env::var_os("CAMPANILE_LONG_TESTS").is_some()
}

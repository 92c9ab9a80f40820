//! Pure: which of several hosts is to execute a launch.
//!
//! Each host asks this for itself, with the runs of all hosts as they are on record, and all get the same answer. A launch whose
//! turn another host has is left to it for a moment. Then any host claims it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use campanile_control::lock::lock;
use campanile_control::settings::Placement;
use campanile_model::ids::{ArtifactDigest, HostId};
use campanile_model::labels::Labels;

/// Another live host that claims launches.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Peer {
    pub id: HostId,
    pub runs_max: i64,
    pub labels: Labels,
    /// The packages in its folder, with the version active there.
    pub packages: HashMap<String, ArtifactDigest>,
}

/// The peers at the last look. A host that is alone has none, and asks nothing.
#[derive(Default)]
pub(crate) struct Peers(Mutex<Arc<Vec<Peer>>>);

impl Peers {
    pub(crate) fn get(&self) -> Arc<Vec<Peer>> {
        Arc::clone(&lock(&self.0))
    }

    /// Whether another host has this version of a package active.
    pub(crate) fn have_version(&self, package: &str, digest: &ArtifactDigest) -> bool {
        let peers = self.get();
        peers
            .iter()
            .any(|peer| peer.packages.get(package) == Some(digest))
    }

    pub(crate) fn set(&self, peers: Vec<Peer>) {
        *lock(&self.0) = Arc::new(peers);
    }
}

/// The runs of a host, of those that it may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub id: HostId,
    pub runs: i64,
    pub runs_max: i64,
}

impl Load {
    fn has_room(&self) -> bool {
        self.runs < self.runs_max
    }
}

/// The turns of the hosts in one transaction. Each launch that is asked about counts for the host whose turn it is.
pub(crate) struct Turns {
    placement: Placement,
    own: Load,
    peers: Arc<Vec<Peer>>,
    /// In the order of `peers`.
    loads: Vec<Load>,
}

impl Turns {
    /// Begin with `runs`, which returns how many runs a host has on record.
    pub(crate) fn new(
        placement: Placement,
        own: Load,
        peers: Arc<Vec<Peer>>,
        runs: impl Fn(HostId) -> i64,
    ) -> Turns {
        let loads = peers.iter().map(|peer| Load {
            id: peer.id,
            runs: runs(peer.id),
            runs_max: peer.runs_max,
        });
        let loads = loads.collect();
        Turns {
            placement,
            own,
            peers,
            loads,
        }
    }

    /// Whether it is this host's turn to execute a launch of `package` that needs the labels `run_on`. `can_run` says whether
    /// this host can.
    pub(crate) fn is_own(&mut self, package: &str, run_on: Option<&Labels>, can_run: bool) -> bool {
        let is_able =
            |peer: &Peer| peer.packages.contains_key(package) && peer.labels.satisfy(run_on);
        let own_id = self.own.id;
        let able = self.peers.iter().zip(&mut self.loads);
        let able = able.filter(|(peer, load)| load.has_room() && is_able(peer));
        let able = able.map(|(_, load)| load);
        let own = (can_run && self.own.has_room()).then_some(&mut self.own);
        let hosts = able.chain(own);
        let first = match self.placement {
            // Parts of the capacity, compared without dividing.
            Placement::Spread => hosts.min_by(|a, b| {
                let (of_a, of_b) = (a.runs * b.runs_max, b.runs * a.runs_max);
                (of_a, a.id).cmp(&(of_b, b.id))
            }),
            Placement::Pack => hosts.min_by_key(|load| (Reverse(load.runs), load.id)),
        };
        let Some(first) = first else {
            // No host has room.
            return true;
        };
        first.runs += 1;
        first.id == own_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(number: u128) -> HostId {
        HostId(Uuid::from_u128(number))
    }

    fn peer(number: u128, runs_max: i64, labels: &str, packages: &[&str]) -> Peer {
        Peer {
            id: id(number),
            runs_max,
            labels: Labels::stored(labels),
            packages: packages
                .iter()
                .map(|name| ((*name).to_owned(), ArtifactDigest::of(b"")))
                .collect(),
        }
    }

    /// Ask the host `own` about `count` launches of `package`; return how many are its own.
    fn ask(
        placement: Placement,
        own: usize,
        hosts: &[(Peer, i64)],
        (package, run_on): (&str, Option<&str>),
        count: usize,
    ) -> usize {
        let (host, runs) = &hosts[own];
        let load = Load {
            id: host.id,
            runs: *runs,
            runs_max: host.runs_max,
        };
        let peers = hosts.iter().filter(|(peer, _)| peer.id != host.id);
        let peers = Arc::new(peers.map(|(peer, _)| peer.clone()).collect());
        let of = |id| hosts.iter().find(|(peer, _)| peer.id == id).unwrap().1;
        let mut turns = Turns::new(placement, load, peers, of);
        let run_on = run_on.map(Labels::stored);
        let can_run = host.packages.contains_key(package) && host.labels.satisfy(run_on.as_ref());
        let asked = (0..count).filter(|_| turns.is_own(package, run_on.as_ref(), can_run));
        asked.count()
    }

    fn shares(
        placement: Placement,
        hosts: &[(Peer, i64)],
        launch: (&str, Option<&str>),
        count: usize,
    ) -> Vec<usize> {
        let own = |own| ask(placement, own, hosts, launch, count);
        (0..hosts.len()).map(own).collect()
    }

    #[test]
    fn launches_are_spread_by_the_part_of_the_capacity_that_is_used() {
        let same = |runs: [i64; 2]| {
            let hosts = [1, 2].map(|number| peer(number, 8, "", &["a"]));
            let hosts: Vec<_> = hosts.into_iter().zip(runs).collect();
            shares(Placement::Spread, &hosts, ("a", None), 6)
        };
        assert_eq!(same([0, 0]), [3, 3]);
        assert_eq!(same([4, 0]), [1, 5]);
        assert_eq!(same([7, 1]), [0, 6]);
        // A host of four times the capacity gets four times as many.
        let hosts = [(peer(1, 8, "", &["a"]), 0), (peer(2, 32, "", &["a"]), 0)];
        assert_eq!(shares(Placement::Spread, &hosts, ("a", None), 20), [4, 16]);
    }

    #[test]
    fn one_host_is_packed_before_the_next() {
        let hosts = |runs: [i64; 2]| {
            let hosts = [1, 2].map(|number| peer(number, 8, "", &["a"]));
            hosts.into_iter().zip(runs).collect::<Vec<_>>()
        };
        let packed = |runs| shares(Placement::Pack, &hosts(runs), ("a", None), 6);
        assert_eq!(packed([0, 0]), [6, 0], "the oldest first");
        assert_eq!(
            packed([2, 3]),
            [1, 5],
            "the fullest first, up to its capacity"
        );
        assert_eq!(packed([8, 0]), [0, 6]);
    }

    #[test]
    fn only_hosts_that_can_run_a_launch_have_turns() {
        let hosts = [
            (peer(1, 8, "", &["a", "b"]), 0),
            (peer(2, 8, "gpu", &["a"]), 5),
        ];
        for placement in [Placement::Spread, Placement::Pack] {
            assert_eq!(shares(placement, &hosts, ("b", None), 4), [4, 0]);
            assert_eq!(shares(placement, &hosts, ("a", Some("gpu")), 3), [0, 3]);
        }
    }

    #[test]
    fn a_launch_that_no_host_has_room_for_is_left_to_none() {
        let full = [(peer(1, 2, "", &["a"]), 2), (peer(2, 2, "", &["a"]), 2)];
        assert_eq!(shares(Placement::Spread, &full, ("a", None), 3), [3, 3]);
        assert_eq!(
            shares(Placement::Spread, &full, ("unknown", None), 1),
            [1, 1]
        );
    }
}

//! Looking up names, a limited number at once.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use campanile_model::text::duration_text;
use tokio::sync::{Semaphore, oneshot};

use crate::ledger::fair_shares::{Division, FairShares};

/// Lookups of all calls at once, each in its own thread. A resolver that does not answer blocks these threads, and not
/// the threads that read files.
const LOOKUPS_MAX: u64 = 32;

/// The longest that a call waits for one lookup, with the wait for its turn. The thread of the lookup ends when the
/// resolver gives up.
const LOOKUP_WAIT_MAX: Duration = Duration::from_secs(30);

/// Asks the resolver, which blocks until it has an answer or gives up.
type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Asks a resolver for the calls that share it.
pub(crate) struct Lookups {
    permits: Arc<FairShares>,
    wait_max: Duration,
    resolve: Arc<Resolve>,
}

/// The lookups of all calls, by the machine's resolver.
pub(crate) static LOOKUPS: LazyLock<Lookups> = LazyLock::new(|| Lookups {
    permits: FairShares::new(LOOKUPS_MAX, Division::QUARTERS),
    wait_max: LOOKUP_WAIT_MAX,
    resolve: Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.collect())),
});

impl Lookups {
    /// Ask the resolver for a call of `package`, whose `permits` are those of the call.
    ///
    /// # Errors
    ///
    /// What the resolver says, or [`io::ErrorKind::TimedOut`].
    pub(crate) async fn look_up(
        &self,
        package: &str,
        host: &str,
        port: u16,
        permits: &Arc<Semaphore>,
    ) -> io::Result<Vec<SocketAddr>> {
        let found = tokio::time::timeout(self.wait_max, async {
            let permit_of_call = Arc::clone(permits).acquire_owned().await;
            let permit_of_call = permit_of_call.map_err(io::Error::other)?;
            let permit = self.permits.acquire(package, 1, u64::MAX).await;
            let permit = permit.ok_or_else(|| io::Error::other("the host is shutting down"))?;
            let (answer, answered) = oneshot::channel();
            let (resolve, host) = (Arc::clone(&self.resolve), host.to_owned());
            thread::Builder::new()
                .name("campanile-names".to_owned())
                .spawn(move || {
                    let _ = answer.send(resolve(&host, port));
                    drop((permit, permit_of_call));
                })?;
            answered.await.map_err(io::Error::other)?
        });
        found.await.unwrap_or_else(|_| {
            let wait = duration_text(self.wait_max);
            let what = format!("the lookup of {host} did not end within {wait}");
            Err(io::Error::new(io::ErrorKind::TimedOut, what))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::{Mutex, PoisonError, mpsc};
    use std::time::Instant;

    use super::*;

    #[test]
    fn names_are_looked_up_while_every_thread_for_files_is_blocked() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (release, released) = mpsc::channel::<()>();
            let blocked = tokio::task::spawn_blocking(move || released.recv());
            let permits = Arc::new(Semaphore::new(1));
            let looked_up = LOOKUPS.look_up("package", "localhost", 80, &permits);
            let found = tokio::time::timeout(Duration::from_secs(10), looked_up).await;
            drop(release);
            assert!(blocked.await.unwrap().is_err());
            assert!(found.unwrap().unwrap()[0].ip().is_loopback());
        });
    }

    /// Returns lookups in which the name `hangs` has no answer until the sender is dropped.
    fn hanging(wait_max: Duration) -> (mpsc::Sender<()>, Arc<Lookups>) {
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let lookups = Lookups {
            permits: FairShares::new(LOOKUPS_MAX, Division::QUARTERS),
            wait_max,
            resolve: Arc::new(move |host, port| {
                if host == "hangs" {
                    let released = released.lock().unwrap_or_else(PoisonError::into_inner);
                    let _ = released.recv();
                }
                Ok(vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)])
            }),
        };
        (release, Arc::new(lookups))
    }

    /// Begin a lookup of a call of its own.
    fn begin(
        lookups: &Arc<Lookups>,
        package: &'static str,
        host: &'static str,
    ) -> tokio::task::JoinHandle<io::Result<Vec<SocketAddr>>> {
        let lookups = Arc::clone(lookups);
        tokio::spawn(async move {
            let permits = Arc::new(Semaphore::new(4));
            lookups.look_up(package, host, 1, &permits).await
        })
    }

    #[tokio::test]
    async fn a_package_whose_lookups_hang_does_not_hold_up_another() {
        let (release, lookups) = hanging(LOOKUP_WAIT_MAX);
        let hung: Vec<_> = (0..3 * LOOKUPS_MAX)
            .map(|_| begin(&lookups, "hog", "hangs"))
            .collect();
        // One package takes what it can get.
        while lookups.permits.held("hog") < LOOKUPS_MAX / 4 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let started = Instant::now();
        let other = begin(&lookups, "other", "answers");
        let found = tokio::time::timeout(Duration::from_millis(100), other).await;
        assert!(found.unwrap().unwrap().is_ok(), "{:?}", started.elapsed());
        assert_eq!(lookups.permits.held("hog"), LOOKUPS_MAX / 4);
        drop(release);
        for hung in hung {
            assert!(hung.await.unwrap().is_ok());
        }
    }

    #[tokio::test]
    async fn a_lookup_without_an_answer_ends_and_keeps_its_permit_until_its_thread_ends() {
        let (release, lookups) = hanging(Duration::from_millis(50));
        let error = begin(&lookups, "p", "hangs").await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(
            error.to_string(),
            "the lookup of hangs did not end within 50ms"
        );
        assert_eq!(lookups.permits.held("p"), 1);
        drop(release);
        while lookups.permits.held("p") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

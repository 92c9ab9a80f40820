//! Looking up names, a limited number at once.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::thread;

use tokio::sync::{Semaphore, oneshot};

/// Lookups of all calls at once, each in its own thread. A resolver that does not answer blocks these threads, and not
/// the threads that read files.
const LOOKUPS_MAX: usize = 32;
static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_MAX);

/// Ask the machine's resolver, which blocks until it has an answer or gives up. The caller may give up earlier.
/// `permits` are those of the call.
pub(crate) async fn look_up(
    host: String,
    port: u16,
    permits: &Arc<Semaphore>,
) -> io::Result<Vec<SocketAddr>> {
    let permit_of_call = Arc::clone(permits).acquire_owned().await;
    let permit_of_call = permit_of_call.map_err(io::Error::other)?;
    let permit = LOOKUPS.acquire().await.map_err(io::Error::other)?;
    let (answer, answered) = oneshot::channel();
    thread::Builder::new()
        .name("campanile-names".to_owned())
        .spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            let _ = answer.send(found.map(Iterator::collect));
            drop((permit, permit_of_call));
        })?;
    answered.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_are_looked_up_while_every_thread_for_files_is_blocked() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (release, released) = std::sync::mpsc::channel::<()>();
            let blocked = tokio::task::spawn_blocking(move || released.recv());
            let permits = Arc::new(Semaphore::new(1));
            let looked_up = look_up("localhost".to_owned(), 80, &permits);
            let found = tokio::time::timeout(Duration::from_secs(10), looked_up).await;
            drop(release);
            assert!(blocked.await.unwrap().is_err());
            assert!(found.unwrap().unwrap()[0].ip().is_loopback());
        });
    }
}

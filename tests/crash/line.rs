//! What lies between a host and its server, and can fall silent.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use campanile_store::DatabaseUrl;
use campanile_tests::Cluster;

/// How often a line looks whether it is silent or over.
const LOOK: Duration = Duration::from_millis(10);

/// Passes on all that comes. While it is silent its connections stay open, new ones are taken,
/// and nothing passes: as with a network that drops packets, no error comes, only time tells.
pub struct Line {
    /// The server's address, by way of the line.
    pub url: DatabaseUrl,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    silent: AtomicBool,
    over: AtomicBool,
}

impl Line {
    pub fn to(cluster: &Cluster) -> Line {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        listener
            .set_nonblocking(true)
            .expect("a listener that does not block");
        let port = listener.local_addr().expect("an address").port();
        let direct = format!(":{}/", cluster.port());
        let url = cluster
            .url()
            .expose()
            .replace(&direct, &format!(":{port}/"));
        let line = Line {
            url: url.parse().expect("an address"),
            state: Arc::default(),
        };
        let (state, server) = (line.state.clone(), cluster.port());
        std::thread::spawn(move || connect(&listener, server, &state));
        line
    }

    pub fn fall_silent(&self) {
        self.state.silent.store(true, Ordering::Relaxed);
    }

    /// Pass on what was held back, and all that comes.
    pub fn speak(&self) {
        self.state.silent.store(false, Ordering::Relaxed);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
    }
}

fn connect(listener: &TcpListener, server: u16, state: &Arc<State>) {
    while !state.over.load(Ordering::Relaxed) {
        let Ok((host, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
            continue;
        };
        for (from, to) in [(&host, &server), (&server, &host)] {
            let from = from.try_clone().expect("a socket");
            let to = to.try_clone().expect("a socket");
            let state = state.clone();
            std::thread::spawn(move || pass(from, to, &state));
        }
    }
}

/// Pass on what comes in one direction, its end too.
fn pass(mut from: TcpStream, mut to: TcpStream, state: &State) {
    from.set_nonblocking(false)
        .and_then(|()| from.set_read_timeout(Some(LOOK)))
        .expect("a read time-out");
    let mut bytes = [0; 16 << 10];
    while !state.over.load(Ordering::Relaxed) {
        let read = match from.read(&mut bytes) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            read => read.unwrap_or(0),
        };
        while state.silent.load(Ordering::Relaxed) && !state.over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        if read == 0 || to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

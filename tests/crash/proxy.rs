//! A TCP proxy between a host and its Postgres server, which can stop forwarding and break connections.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use campanile_store::DatabaseUrl;
use campanile_tests::Cluster;

/// The interval at which a proxy checks its state.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A proxy that forwards all data. While it is stalled, its connections stay open and it accepts new ones, but it forwards
/// nothing, like a network that drops packets.
pub struct Proxy {
    /// The server's address through the proxy.
    pub url: DatabaseUrl,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    stalled: AtomicBool,
    closed: AtomicBool,
    /// How often connections were broken. A connection is broken when it is older.
    breaks: AtomicUsize,
    /// The breaks that only the host has seen: the server's side of these connections stays open and silent.
    half_breaks: AtomicUsize,
}

impl Proxy {
    pub fn to(cluster: &Cluster) -> Proxy {
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
        let proxy = Proxy {
            url: url.parse().expect("an address"),
            state: Arc::default(),
        };
        let (state, server) = (proxy.state.clone(), cluster.port());
        std::thread::spawn(move || accept(&listener, server, &state));
        proxy
    }

    /// Stop forwarding.
    pub fn stall(&self) {
        self.state.stalled.store(true, Ordering::Relaxed);
    }

    /// Close every connection on both sides.
    pub fn break_connections(&self) {
        self.state.breaks.fetch_add(1, Ordering::Relaxed);
    }

    /// Close every connection towards the host. The server sees nothing of it, and keeps the sessions.
    pub fn break_connections_of_host(&self) {
        self.state.half_breaks.fetch_add(1, Ordering::Relaxed);
    }

    /// Forward the data that was held back, and all further data.
    pub fn resume(&self) {
        self.state.stalled.store(false, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::Relaxed);
    }
}

/// Accept connections until the proxy is closed.
fn accept(listener: &TcpListener, server: u16, state: &Arc<State>) {
    while !state.closed.load(Ordering::Relaxed) {
        let Ok((host, _)) = listener.accept() else {
            std::thread::sleep(POLL_INTERVAL);
            continue;
        };
        let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
            continue;
        };
        let age = Age::of(state);
        for (from, to, from_host) in [(&host, &server, true), (&server, &host, false)] {
            let from = from.try_clone().expect("a socket");
            let to = to.try_clone().expect("a socket");
            let state = state.clone();
            std::thread::spawn(move || forward(from, to, from_host, age, &state));
        }
    }
}

/// The breaks before a connection was accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Age {
    breaks: usize,
    half_breaks: usize,
}

impl Age {
    fn of(state: &State) -> Age {
        Age {
            breaks: state.breaks.load(Ordering::Relaxed),
            half_breaks: state.half_breaks.load(Ordering::Relaxed),
        }
    }
}

/// Forward the data of one direction, and its end.
fn forward(mut from: TcpStream, mut to: TcpStream, from_host: bool, age: Age, state: &State) {
    from.set_nonblocking(false)
        .and_then(|()| from.set_read_timeout(Some(POLL_INTERVAL)))
        .expect("a read time-out");
    let mut bytes = [0; 16 << 10];
    while !state.closed.load(Ordering::Relaxed) {
        let present = Age::of(state);
        if present.breaks != age.breaks {
            break;
        }
        if present.half_breaks != age.half_breaks {
            let host = if from_host { &from } else { &to };
            let _ = host.shutdown(Shutdown::Both);
            while !state.closed.load(Ordering::Relaxed) {
                std::thread::sleep(POLL_INTERVAL);
            }
            break;
        }
        let read = match from.read(&mut bytes) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            read => read.unwrap_or(0),
        };
        while state.stalled.load(Ordering::Relaxed) && !state.closed.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
        }
        let has_ended = read == 0 || to.write_all(&bytes[..read]).is_err();
        // The end that a half break makes is not passed on to the server.
        if has_ended && Age::of(state).half_breaks == age.half_breaks {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

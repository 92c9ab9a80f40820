//! Messages to the service manager that started this process, in systemd's protocol `sd_notify`: ready, alive, stopping.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use tokio::sync::watch;

use crate::environment;

/// The service manager, if one wants messages.
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    /// It restarts a service that says nothing for this long.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Connect to the service manager that the environment names; none when it names none.
    ///
    /// # Errors
    /// A sentence, when its socket cannot be reached.
    pub fn connect(
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Option<ServiceManager>, String> {
        let Some(name) = env(environment::NOTIFY_SOCKET).filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let socket = connected(&name).map_err(|error| {
            format!(
                "the service manager's socket {} in {} cannot be reached: {error}",
                name.display(),
                environment::NOTIFY_SOCKET
            )
        })?;
        Ok(Some(ServiceManager {
            socket,
            watchdog: watchdog(env),
        }))
    }

    /// Say that the host serves, when `serving` holds true; then that it is alive, and at last that it stops.
    ///
    /// The messages come from a thread that also serves: a host whose threads are blocked is restarted.
    pub async fn report(
        self,
        mut serving: watch::Receiver<bool>,
        mut stopping: watch::Receiver<bool>,
    ) {
        tokio::select! {
            _ = serving.wait_for(|serving| *serving) => self.send("READY=1\nSTATUS=serving"),
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        tokio::select! {
            () = self.stay_alive() => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        self.send("STOPPING=1\nSTATUS=waiting for the unfinished runs");
        self.stay_alive().await;
    }

    /// Say twice in each interval of the watchdog that the host is alive.
    async fn stay_alive(&self) {
        let Some(watchdog) = self.watchdog else {
            return std::future::pending().await;
        };
        loop {
            self.send("WATCHDOG=1");
            tokio::time::sleep(watchdog / 2).await;
        }
    }

    fn send(&self, message: &str) {
        if let Err(error) = self.socket.send(message.as_bytes()) {
            tracing::warn!("the service manager does not take the message {message:?}: {error}");
        }
    }
}

fn connected(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => connect_abstract(&socket, name)?,
        None => socket.connect(name)?,
    }
    Ok(socket)
}

/// Connect to a socket that has no file: only Linux has those.
#[cfg(target_os = "linux")]
fn connect_abstract(socket: &UnixDatagram, name: &[u8]) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::SocketAddr;

    socket.connect_addr(&SocketAddr::from_abstract_name(name)?)
}

#[cfg(not(target_os = "linux"))]
fn connect_abstract(_: &UnixDatagram, _: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the interval of the watchdog, if it watches this process.
fn watchdog(env: &dyn Fn(&str) -> Option<OsString>) -> Option<Duration> {
    let number = |name| env(name)?.to_str()?.parse::<u64>().ok();
    let is_other = number(environment::WATCHDOG_PID)
        .is_some_and(|process| process != u64::from(std::process::id()));
    let micros = number(environment::WATCHDOG_USEC).filter(|micros| *micros > 0 && !is_other)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn environment(values: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> + use<> {
        let values = values.iter();
        let values = values.map(|(name, value)| ((*name).to_owned(), OsString::from(value)));
        let values: BTreeMap<String, OsString> = values.collect();
        move |name| values.get(name).cloned()
    }

    async fn message(socket: &tokio::net::UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let received = socket.recv(&mut bytes);
        let received = tokio::time::timeout(Duration::from_secs(10), received).await;
        let length = received.expect("a message in time").expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[tokio::test]
    async fn a_host_says_that_it_is_ready_alive_and_stopping() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let path = path.to_str().unwrap();
        let socket = tokio::net::UnixDatagram::bind(path).unwrap();
        let env = environment(&[("NOTIFY_SOCKET", path), ("WATCHDOG_USEC", "20000")]);
        let manager = ServiceManager::connect(&env).unwrap().unwrap();
        let (serve, serving) = watch::channel(false);
        let (stop, stopping) = watch::channel(false);
        let reporting = tokio::spawn(manager.report(serving, stopping));
        tokio::task::yield_now().await;
        serve.send_replace(true);
        assert_eq!(message(&socket).await, "READY=1\nSTATUS=serving");
        for _ in 0..3 {
            assert_eq!(message(&socket).await, "WATCHDOG=1");
        }
        stop.send_replace(true);
        let mut last = message(&socket).await;
        while last == "WATCHDOG=1" {
            last = message(&socket).await;
        }
        assert_eq!(last, "STOPPING=1\nSTATUS=waiting for the unfinished runs");
        // Runs may need long to end, and the watchdog still watches.
        assert_eq!(message(&socket).await, "WATCHDOG=1");
        reporting.abort();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_abstract_socket_is_reached_by_its_name() {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::SocketAddr;

        let name = format!("campanile-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let env = environment(&[("NOTIFY_SOCKET", &format!("@{name}"))]);
        let manager = ServiceManager::connect(&env).unwrap().unwrap();
        manager.send("READY=1");
        let mut bytes = [0; 16];
        assert_eq!(socket.recv(&mut bytes).unwrap(), 7);
    }

    #[test]
    fn without_a_service_manager_nothing_is_sent() {
        assert!(
            ServiceManager::connect(&environment(&[]))
                .unwrap()
                .is_none()
        );
        let empty = environment(&[("NOTIFY_SOCKET", "")]);
        assert!(ServiceManager::connect(&empty).unwrap().is_none());
        let gone = environment(&[("NOTIFY_SOCKET", "/no/such/socket")]);
        let error = ServiceManager::connect(&gone).err().unwrap();
        assert!(
            error.contains("/no/such/socket") && error.contains("NOTIFY_SOCKET"),
            "{error}"
        );
    }

    #[test]
    fn the_watchdog_of_another_process_is_none_of_this_one() {
        let own = std::process::id().to_string();
        let second = Some(Duration::from_secs(1));
        for (values, expected) in [
            (vec![("WATCHDOG_USEC", "1000000")], second),
            (
                vec![("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", own.as_str())],
                second,
            ),
            (
                vec![("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "1")],
                None,
            ),
            (vec![("WATCHDOG_USEC", "0")], None),
            (vec![("WATCHDOG_USEC", "soon")], None),
            (vec![], None),
        ] {
            assert_eq!(watchdog(&environment(&values)), expected, "{values:?}");
        }
    }
}

//! Sockets: where a task may connect to beyond HTTP.
//!
//! A name is looked up here, so that it is known which addresses it led to when the task connects to one of them. An
//! address that no granted name led to, and that is not granted itself, is refused. Nothing ever listens.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::vec;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::sockets::network::{
    ErrorCode, IpAddress, IpAddressFamily, Network,
};
use wasmtime_wasi::p2::bindings::sockets::tcp::HostTcpSocket;
use wasmtime_wasi::p2::bindings::sockets::tcp_create_socket::Host as _;
use wasmtime_wasi::p2::bindings::sockets::udp::HostUdpSocket;
use wasmtime_wasi::p2::bindings::sockets::udp_create_socket::Host as _;
use wasmtime_wasi::p2::{Pollable, SocketResult, TcpSocket, UdpSocket, subscribe};
use wasmtime_wasi::sockets::{SocketAddrUse, WasiSocketsView as _};
use wasmtime_wasi::{WasiView as _, async_trait};

use super::address::is_public;
use super::connect::look_up;
use super::grants::{Denial, Reach, grant_line, host_reach, plain_host, shown_host};
use super::http::Turns;
use super::store::HostState;
use super::{Grants, Protocol, SocketGrant};

// As wasmtime-wasi names them; a test notices when that changes.
const NAMES: &str = "wasi:sockets/ip-name-lookup@0.2.12";
const TCP: &str = "wasi:sockets/tcp@0.2.12";
const UDP: &str = "wasi:sockets/udp@0.2.12";
const CREATE_TCP: &str = "wasi:sockets/tcp-create-socket@0.2.12";
const CREATE_UDP: &str = "wasi:sockets/udp-create-socket@0.2.12";

/// Addresses that names led to, of which so many are remembered in a call: a name may lead elsewhere each time.
const LED_TO_MAX: usize = 1000;

/// Of a name; longer ones are not looked up.
const NAME_BYTES_MAX: usize = 253;

const NO_SOCKETS: &str = "a script answers in place of the network, and it has no sockets";

/// What the guest's sockets pass through.
#[derive(Clone)]
pub(super) struct SocketGate {
    grants: Arc<Grants>,
    /// Whether there is a network; a script that answers HTTP has no sockets.
    is_real: bool,
    turns: Turns,
    denial: Denial,
    led_to: Arc<Mutex<VecDeque<(IpAddr, String)>>>,
}

impl SocketGate {
    pub(super) fn new(
        grants: Arc<Grants>,
        is_real: bool,
        turns: Turns,
        denial: Denial,
    ) -> SocketGate {
        SocketGate {
            grants,
            is_real,
            turns,
            denial,
            led_to: Arc::default(),
        }
    }

    /// Whether a socket of this kind may be made at all.
    fn may_make(&self, protocol: Protocol) -> bool {
        if self.is_real && self.of(protocol).next().is_some() {
            return true;
        }
        self.denial.record(match self.is_real {
            true => format!(
                "a {protocol} socket is not granted; to allow it, say in `[[grants.sockets]]` of the package's sidecar file to which host and port it connects"
            ),
            false => NO_SOCKETS.to_owned(),
        });
        false
    }

    fn of(&self, protocol: Protocol) -> impl Iterator<Item = &SocketGrant> {
        let grants = self.grants.sockets.iter();
        grants.filter(move |grant| grant.protocol == protocol)
    }

    /// The addresses that `name` leads to, if it is granted.
    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, ErrorCode> {
        if name.len() > NAME_BYTES_MAX {
            return Err(ErrorCode::InvalidArgument);
        }
        let host = plain_host(name);
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        if !self.is_real {
            self.denial.record(NO_SOCKETS.to_owned());
            return Err(ErrorCode::AccessDenied);
        }
        let grants = &self.grants.sockets;
        let granted = grants
            .iter()
            .any(|grant| host_reach(&grant.host, &host, None).is_some());
        if !granted {
            self.denial.record(refusal(
                &format!("looking up {host}"),
                Protocol::Tcp,
                &host,
                None,
            ));
            return Err(ErrorCode::AccessDenied);
        }
        let found = look_up(host.clone(), 0, &self.turns.lookups).await;
        let found = found.map_err(|_| ErrorCode::NameUnresolvable)?;
        let mut led_to = self.led_to.lock().unwrap_or_else(PoisonError::into_inner);
        let mut addresses: Vec<IpAddr> = Vec::new();
        for ip in found.iter().map(|address| address.ip().to_canonical()) {
            if addresses.contains(&ip) {
                continue;
            }
            addresses.push(ip);
            led_to.push_back((ip, host.clone()));
            if led_to.len() > LED_TO_MAX {
                led_to.pop_front();
            }
        }
        Ok(addresses)
    }

    /// Whether `address` may be used so.
    pub(super) fn permits(&self, address: SocketAddr, wanted: SocketAddrUse) -> bool {
        match wanted {
            SocketAddrUse::TcpConnect => self.reaches(Protocol::Tcp, address, true),
            SocketAddrUse::UdpSend => self.reaches(Protocol::Udp, address, true),
            // Whoever sends something unasked has nothing to be told.
            SocketAddrUse::UdpReceive => self.reaches(Protocol::Udp, address, false),
            // What the machine does by itself before it connects.
            SocketAddrUse::TcpBind | SocketAddrUse::UdpBind
                if address.ip().is_unspecified() && address.port() == 0 =>
            {
                true
            }
            _ => {
                self.denial.record(
                    "having an address of its own and listening there is not granted, and cannot be: a task may only connect".to_owned(),
                );
                false
            }
        }
    }

    fn reaches(&self, protocol: Protocol, address: SocketAddr, told: bool) -> bool {
        let ip = address.ip().to_canonical();
        let led_to = self.led_to.lock().unwrap_or_else(PoisonError::into_inner);
        let names = led_to.iter().filter(|(led_to, _)| *led_to == ip);
        let names: Vec<&str> = names.map(|(_, name)| name.as_str()).collect();
        let reach = |grant: &SocketGrant| {
            let mut reaches = names
                .iter()
                .map(|name| host_reach(&grant.host, name, None))
                .chain([host_reach(&grant.host, &ip.to_string(), Some(ip))])
                .flatten();
            reaches.any(|reach| reach == Reach::Anywhere || is_public(ip))
        };
        let mut grants = self.of(protocol);
        if self.is_real && grants.any(|grant| grant.port == address.port() && reach(grant)) {
            return true;
        }
        if told {
            let host = names
                .first()
                .map_or_else(|| ip.to_string(), |name| (*name).to_owned());
            let port = address.port();
            let what = match names.is_empty() {
                true => format!("{} to {address}", protocol.as_str()),
                false => format!("{} to {host} port {port} at {ip}", protocol.as_str()),
            };
            self.denial
                .record(refusal(&what, protocol, &host, Some(port)));
        }
        false
    }
}

/// The sentence that refuses `what`, with the grant that would allow it.
fn refusal(what: &str, protocol: Protocol, host: &str, port: Option<u16>) -> String {
    let mut grant = vec![
        ("host", shown_host(host).into()),
        ("port", port.unwrap_or(0).into()),
    ];
    if protocol != Protocol::Tcp {
        grant.push(("protocol", protocol.as_str().into()));
    }
    let with_port = match port {
        Some(_) => "",
        None => ", with its port in place of 0,",
    };
    format!(
        "{what} is not granted; to allow it, add `{}`{with_port} at the top of the package's sidecar file",
        grant_line("sockets", grant)
    )
}

/// The addresses of a name that the guest has not read yet.
struct Answers(vec::IntoIter<IpAddr>);

#[async_trait]
impl Pollable for Answers {
    async fn ready(&mut self) {}
}

/// Put checks and counting before what makes sockets and looks up names.
pub(super) fn hold_sockets(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    hold_names(linker)?;
    linker.instance(CREATE_TCP)?.func_wrap(
        "create-tcp-socket",
        |mut store: StoreContextMut<'_, HostState>, (family,): (IpAddressFamily,)| {
            let state = store.data_mut();
            if let Err(code) = state.may_make(Protocol::Tcp) {
                return Ok((Err(code),));
            }
            let made = state.sockets().create_tcp_socket(family);
            Ok((state.made(made)?,))
        },
    )?;
    linker.instance(CREATE_UDP)?.func_wrap_async(
        "create-udp-socket",
        |mut store: StoreContextMut<'_, HostState>, (family,): (IpAddressFamily,)| {
            Box::new(async move {
                let state = store.data_mut();
                if let Err(code) = state.may_make(Protocol::Udp) {
                    return Ok((Err(code),));
                }
                let made = state.sockets().create_udp_socket(family).await;
                Ok((state.made(made)?,))
            })
        },
    )?;
    linker.instance(TCP)?.resource(
        "tcp-socket",
        ResourceType::host::<TcpSocket>(),
        |mut store, handle| {
            let state = store.data_mut();
            HostTcpSocket::drop(&mut state.sockets(), Resource::new_own(handle))?;
            state.open_files.let_go(handle);
            Ok(())
        },
    )?;
    linker.instance(UDP)?.resource(
        "udp-socket",
        ResourceType::host::<UdpSocket>(),
        |mut store, handle| {
            let state = store.data_mut();
            HostUdpSocket::drop(&mut state.sockets(), Resource::new_own(handle))?;
            state.open_files.let_go(handle);
            Ok(())
        },
    )
}

fn hold_names(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut names = linker.instance(NAMES)?;
    names.resource(
        "resolve-address-stream",
        ResourceType::host::<Answers>(),
        |mut store, handle| {
            let answers = Resource::<Answers>::new_own(handle);
            store.data_mut().ctx().table.delete(answers)?;
            Ok(())
        },
    )?;
    names.func_wrap_async(
        "resolve-addresses",
        |mut store: StoreContextMut<'_, HostState>, (_, name): (Resource<Network>, String)| {
            Box::new(async move {
                let state = store.data_mut();
                let gate = state.socket_gate.clone();
                let answers = match gate.look_up(&name).await {
                    Ok(addresses) => Answers(addresses.into_iter()),
                    Err(code) => return Ok((Err(code),)),
                };
                Ok((Ok(state.ctx().table.push(answers)?),))
            })
        },
    )?;
    names.func_wrap(
        "[method]resolve-address-stream.resolve-next-address",
        |mut store: StoreContextMut<'_, HostState>, (answers,): (Resource<Answers>,)| {
            let answers = store.data_mut().ctx().table.get_mut(&answers)?;
            let next = answers.0.next().map(IpAddress::from);
            Ok((Ok::<_, ErrorCode>(next),))
        },
    )?;
    names.func_wrap(
        "[method]resolve-address-stream.subscribe",
        |mut store: StoreContextMut<'_, HostState>, (answers,): (Resource<Answers>,)| {
            Ok((subscribe(store.data_mut().ctx().table, answers)?,))
        },
    )
}

impl HostState {
    fn may_make(&self, protocol: Protocol) -> Result<(), ErrorCode> {
        if !self.socket_gate.may_make(protocol) {
            return Err(ErrorCode::AccessDenied);
        }
        self.open_files.may_open().map_err(|why| {
            self.exceeded.record(why);
            ErrorCode::NewSocketLimit
        })
    }

    /// Count a socket that was made.
    fn made<T: 'static>(
        &mut self,
        made: SocketResult<Resource<T>>,
    ) -> wasmtime::Result<Result<Resource<T>, ErrorCode>> {
        match made {
            Ok(socket) => {
                let file = self.open_files.open();
                self.open_files.hold(&socket, file);
                Ok(Ok(socket))
            }
            Err(error) => Ok(Err(error.downcast()?)),
        }
    }
}

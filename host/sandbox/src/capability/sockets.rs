//! `wasi:sockets`: connections to granted hosts. A task never listens.
//!
//! The host looks up names, so that it knows the addresses that a granted name leads to. A connection is refused when
//! its address is not granted and no granted name led to it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::vec;

use serde_json::Value;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::sockets::network::{
    ErrorCode, IpAddress, IpAddressFamily, Network,
};
use wasmtime_wasi::p2::bindings::sockets::tcp::HostTcpSocket;
use wasmtime_wasi::p2::bindings::sockets::tcp_create_socket::Host as _;
use wasmtime_wasi::p2::bindings::sockets::udp::{
    HostOutgoingDatagramStream as _, HostUdpSocket, OutgoingDatagram, OutgoingDatagramStream,
};
use wasmtime_wasi::p2::bindings::sockets::udp_create_socket::Host as _;
use wasmtime_wasi::p2::{DynOutputStream, Pollable, SocketResult, TcpSocket, UdpSocket, subscribe};
use wasmtime_wasi::sockets::{SocketAddrUse, WasiSocketsView as _};
use wasmtime_wasi::{WasiCtxBuilder, WasiView, async_trait};

use crate::capability::network::leased::LeasedOutput;
use crate::capability::network::lookup::LOOKUPS;
use crate::capability::network::reach::{
    Reach, host_reach, plain_host, refused_address, shown_host,
};
use crate::capability::shared::{OpenFile, Shared, as_wasi, grant_line, to_allow};
use crate::effects::Crash;
use crate::grants::{Protocol, SocketGrant};

// The names in wasmtime-wasi; a test notices when they change.
const NAMES: &str = "wasi:sockets/ip-name-lookup@0.2.12";
const TCP: &str = "wasi:sockets/tcp@0.2.12";
const UDP: &str = "wasi:sockets/udp@0.2.12";
const CREATE_TCP: &str = "wasi:sockets/tcp-create-socket@0.2.12";
const CREATE_UDP: &str = "wasi:sockets/udp-create-socket@0.2.12";

/// The addresses of names that a call remembers. A name may lead to others each time.
const RESOLVED_MAX: usize = 1000;

/// The longest name that is looked up.
const NAME_BYTES_MAX: usize = 253;

const NO_SOCKETS: &str = "a script answers in place of the network, and it has no sockets";

/// The sockets of one call.
pub(crate) struct Sockets {
    gate: SocketGate,
    /// The guest's sockets, by their handles.
    open: HashMap<u32, Arc<OpenFile>>,
}

/// The check of names and addresses. Clones share the addresses of names.
#[derive(Clone)]
struct SocketGate {
    shared: Arc<Shared>,
    resolved: Arc<Mutex<VecDeque<(IpAddr, String)>>>,
}

impl Sockets {
    pub(crate) fn new(shared: Arc<Shared>) -> Sockets {
        let resolved = Arc::default();
        Sockets {
            gate: SocketGate { shared, resolved },
            open: HashMap::new(),
        }
    }

    /// Let wasmtime-wasi ask for each address.
    pub(crate) fn set_check(&self, wasi: &mut WasiCtxBuilder) {
        let gate = self.gate.clone();
        wasi.allow_tcp(true)
            .allow_udp(true)
            .socket_addr_check(move |address, used| {
                Box::pin(std::future::ready(gate.permits(address, used)))
            });
    }

    /// Count a new socket.
    fn track<T: 'static>(
        &mut self,
        file: Arc<OpenFile>,
        created: SocketResult<Resource<T>>,
    ) -> wasmtime::Result<Result<Resource<T>, ErrorCode>> {
        let created = as_wasi(created)?;
        if let Ok(socket) = &created {
            self.open.insert(socket.rep(), file);
        }
        Ok(created)
    }
}

impl SocketGate {
    /// Counts a new socket, refusing it without a grant for `protocol` or at the limit on open ones.
    fn check_creation(&self, protocol: Protocol) -> Result<Arc<OpenFile>, ErrorCode> {
        if !self.is_real() {
            return Err(ErrorCode::AccessDenied);
        }
        if self.grants_of(protocol).next().is_none() {
            self.shared.deny(format!(
                "a {protocol} socket is not granted; to allow it, name the host and port to which it connects in `[[grants.sockets]]` of the package's sidecar file"
            ));
            return Err(ErrorCode::AccessDenied);
        }
        OpenFile::open(&self.shared).ok_or(ErrorCode::NewSocketLimit)
    }

    /// Whether there is a network. If not, the refusal is recorded: a script has no sockets.
    fn is_real(&self) -> bool {
        let is_real = self.shared.call.world.replies.is_none();
        if !is_real {
            self.shared.deny(NO_SOCKETS.to_owned());
        }
        is_real
    }

    fn grants_of(&self, protocol: Protocol) -> impl Iterator<Item = &SocketGrant> {
        let grants = self.shared.call.grants.sockets.iter();
        grants.filter(move |grant| grant.protocol == protocol)
    }

    /// Returns the addresses of `name`, if it is granted.
    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, ErrorCode> {
        if name.len() > NAME_BYTES_MAX {
            return Err(ErrorCode::InvalidArgument);
        }
        let host = plain_host(name);
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        if !self.is_real() || self.shared.call.stop.is_dropped() {
            return Err(ErrorCode::AccessDenied);
        }
        let mut grants = self.shared.call.grants.sockets.iter();
        if !grants.any(|grant| host_reach(&grant.host, grant.private, &host, None).is_some()) {
            self.shared.deny(lookup_refusal(&host));
            return Err(ErrorCode::AccessDenied);
        }
        let (package, permits) = (&self.shared.call.package, &self.shared.lookup_permits);
        let found = LOOKUPS.look_up(package, &host, 0, permits);
        let found = found.await.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => ErrorCode::TemporaryResolverFailure,
            _ => ErrorCode::NameUnresolvable,
        })?;
        let mut resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        let mut addresses: Vec<IpAddr> = Vec::new();
        for ip in found.iter().map(|address| address.ip().to_canonical()) {
            if addresses.contains(&ip) {
                continue;
            }
            addresses.push(ip);
            resolved.push_back((ip, host.clone()));
            if resolved.len() > RESOLVED_MAX {
                resolved.pop_front();
            }
        }
        Ok(addresses)
    }

    /// Whether `address` may be used for `used`. If not, the refusal is recorded.
    fn permits(&self, address: SocketAddr, used: SocketAddrUse) -> bool {
        if self.shared.call.stop.is_dropped() {
            return false;
        }
        match used {
            SocketAddrUse::TcpConnect => self.reaches(Protocol::Tcp, address, true),
            SocketAddrUse::UdpSend => self.reaches(Protocol::Udp, address, true),
            // A datagram that the task did not ask for is dropped silently.
            SocketAddrUse::UdpReceive => self.reaches(Protocol::Udp, address, false),
            // The system binds a free port before it connects.
            SocketAddrUse::TcpBind | SocketAddrUse::UdpBind
                if address.ip().is_unspecified() && address.port() == 0 =>
            {
                true
            }
            _ => {
                self.shared.deny(
                    "binding an address and listening cannot be granted: a task may only connect"
                        .to_owned(),
                );
                false
            }
        }
    }

    fn reaches(&self, protocol: Protocol, address: SocketAddr, is_recorded: bool) -> bool {
        let ip = address.ip().to_canonical();
        let resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        let names = resolved.iter().filter(|(resolved, _)| *resolved == ip);
        let names: Vec<&str> = names.map(|(_, name)| name.as_str()).collect();
        let reach = |grant: &SocketGrant| {
            let reach = |host: &str, ip| host_reach(&grant.host, grant.private, host, ip);
            let by_name = names.iter().filter_map(|name| reach(name, None)).max();
            by_name.max(reach(&ip.to_string(), Some(ip)))
        };
        let is_real = self.shared.call.world.replies.is_none();
        let grants = self
            .grants_of(protocol)
            .filter(|grant| is_real && grant.port == address.port());
        let reach: Option<Reach> = grants.filter_map(reach).max();
        if reach.is_some_and(|reach| reach.includes(ip)) {
            return true;
        }
        if is_recorded {
            let name = names.first().copied();
            self.shared.deny(match reach {
                None => refusal(protocol, address, name),
                Some(_) => address_refusal(protocol, address, name),
            });
        }
        false
    }
}

/// Returns the sentence that refuses to connect to `address`, which `name` led to, with the grant that would allow it.
fn refusal(protocol: Protocol, address: SocketAddr, name: Option<&str>) -> String {
    let (ip, port) = (address.ip().to_canonical(), address.port());
    let (what, host) = match name {
        None => (format!("{protocol} to {address}"), ip.to_string()),
        Some(name) => (
            format!("{protocol} to {name} port {port} at {ip}"),
            name.to_owned(),
        ),
    };
    let grant = grant_of(protocol, &host, port, false);
    format!("{what} is not granted; {}", to_allow("sockets", grant))
}

/// Returns the sentence that refuses to connect to `address`, which the granted `name` led to.
fn address_refusal(protocol: Protocol, address: SocketAddr, name: Option<&str>) -> String {
    let (ip, port) = (address.ip().to_canonical(), address.port());
    let host = name.map_or_else(|| ip.to_string(), str::to_owned);
    let (why, granted, is_private) = refused_address(&host, ip);
    let grant = grant_of(protocol, &granted, port, is_private);
    let to_allow = to_allow("sockets", grant);
    format!("{protocol} to {host} port {port} {why}; {to_allow}")
}

/// Returns the sentence that refuses to look up `host`, with the grant that would allow it.
fn lookup_refusal(host: &str) -> String {
    let line = grant_line("sockets", grant_of(Protocol::Tcp, host, 0, false));
    format!(
        "looking up {host} is not granted; to allow it, add `{line}`, with its port in place of 0, at the top of the package's sidecar file"
    )
}

fn grant_of(
    protocol: Protocol,
    host: &str,
    port: u16,
    is_private: bool,
) -> Vec<(&'static str, Value)> {
    let mut grant = vec![("host", shown_host(host).into()), ("port", port.into())];
    if protocol != Protocol::Tcp {
        grant.push(("protocol", protocol.as_str().into()));
    }
    if is_private {
        grant.push(("private", true.into()));
    }
    grant
}

/// The addresses of a name that the guest has not read yet.
struct Answers(vec::IntoIter<IpAddr>);

#[async_trait]
impl Pollable for Answers {
    async fn ready(&mut self) {}
}

/// Put the checks and the counting before the functions that create sockets and look up names. `of` finds the state of
/// this capability.
pub(crate) fn guard_sockets<T: WasiView>(
    linker: &mut Linker<T>,
    of: fn(&mut T) -> &mut Sockets,
) -> wasmtime::Result<()> {
    guard_names(linker, of)?;
    guard_sending(linker, of)?;
    linker.instance(CREATE_TCP)?.func_wrap(
        "create-tcp-socket",
        move |mut store: StoreContextMut<'_, T>, (family,): (IpAddressFamily,)| {
            let state = store.data_mut();
            let file = match of(state).gate.check_creation(Protocol::Tcp) {
                Ok(file) => file,
                Err(code) => return Ok((Err(code),)),
            };
            let created = state.sockets().create_tcp_socket(family);
            Ok((of(state).track(file, created)?,))
        },
    )?;
    linker.instance(CREATE_UDP)?.func_wrap_async(
        "create-udp-socket",
        move |mut store: StoreContextMut<'_, T>, (family,): (IpAddressFamily,)| {
            Box::new(async move {
                let state = store.data_mut();
                let file = match of(state).gate.check_creation(Protocol::Udp) {
                    Ok(file) => file,
                    Err(code) => return Ok((Err(code),)),
                };
                let created = state.sockets().create_udp_socket(family).await;
                Ok((of(state).track(file, created)?,))
            })
        },
    )?;
    let (tcp, udp) = (
        ResourceType::host::<TcpSocket>(),
        ResourceType::host::<UdpSocket>(),
    );
    let mut functions = linker.instance(TCP)?;
    functions.resource("tcp-socket", tcp, move |mut store, handle| {
        let state = store.data_mut();
        of(state).open.remove(&handle);
        HostTcpSocket::drop(&mut state.sockets(), Resource::new_own(handle))
    })?;
    let mut functions = linker.instance(UDP)?;
    functions.resource("udp-socket", udp, move |mut store, handle| {
        let state = store.data_mut();
        of(state).open.remove(&handle);
        HostUdpSocket::drop(&mut state.sockets(), Resource::new_own(handle))
    })
}

/// Put a check of the call's lease before everything that sends.
fn guard_sending<T: WasiView>(
    linker: &mut Linker<T>,
    of: fn(&mut T) -> &mut Sockets,
) -> wasmtime::Result<()> {
    linker.instance(TCP)?.func_wrap(
        "[method]tcp-socket.finish-connect",
        move |mut store: StoreContextMut<'_, T>, (socket,): (Resource<TcpSocket>,)| {
            let state = store.data_mut();
            let stop = of(state).gate.shared.call.stop.clone();
            let parent = Resource::new_borrow(socket.rep());
            let connected = as_wasi(state.sockets().finish_connect(socket))?;
            let Ok((input, output)) = connected else {
                return Ok((connected,));
            };
            let table = state.ctx().table;
            let stream = table.delete(output)?;
            let output: DynOutputStream = Box::new(LeasedOutput { stream, stop });
            let output = table.push_child::<_, TcpSocket>(output, &parent)?;
            Ok((Ok((input, output)),))
        },
    )?;
    linker.instance(UDP)?.func_wrap(
        "[method]outgoing-datagram-stream.send",
        move |mut store: StoreContextMut<'_, T>,
              (stream, datagrams): (Resource<OutgoingDatagramStream>, Vec<OutgoingDatagram>)| {
            let state = store.data_mut();
            if of(state).gate.shared.call.stop.is_dropped() {
                return Err(Crash.into());
            }
            Ok((as_wasi(state.sockets().send(stream, datagrams))?,))
        },
    )
}

fn guard_names<T: WasiView>(
    linker: &mut Linker<T>,
    of: fn(&mut T) -> &mut Sockets,
) -> wasmtime::Result<()> {
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
        move |mut store: StoreContextMut<'_, T>, (_, name): (Resource<Network>, String)| {
            Box::new(async move {
                let gate = of(store.data_mut()).gate.clone();
                let answers = match gate.look_up(&name).await {
                    Ok(addresses) => Answers(addresses.into_iter()),
                    Err(code) => return Ok((Err(code),)),
                };
                Ok((Ok(store.data_mut().ctx().table.push(answers)?),))
            })
        },
    )?;
    names.func_wrap(
        "[method]resolve-address-stream.resolve-next-address",
        |mut store: StoreContextMut<'_, T>, (answers,): (Resource<Answers>,)| {
            let answers = store.data_mut().ctx().table.get_mut(&answers)?;
            let next = answers.0.next().map(IpAddress::from);
            Ok((Ok::<_, ErrorCode>(next),))
        },
    )?;
    names.func_wrap(
        "[method]resolve-address-stream.subscribe",
        |mut store: StoreContextMut<'_, T>, (answers,): (Resource<Answers>,)| {
            Ok((subscribe(store.data_mut().ctx().table, answers)?,))
        },
    )
}

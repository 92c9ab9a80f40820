//! The other end of a connection, and the actor of the events that its requests cause.

use std::net::IpAddr;

use campanile_control::admin::token_admin::Principal;
use campanile_model::access::{Actor, Channel};

/// How a connection proves who is at its other end.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// Each request has a token.
    Tcp { address: IpAddr },
    /// The user of the process at the other end of a Unix socket.
    Unix { uid: u32 },
}

/// Returns the actor of the events of a change.
pub(crate) fn actor(principal: &Principal, peer: &Peer, channel: Channel) -> Actor {
    let address = match peer {
        Peer::Tcp { address } => Some(address.to_string()),
        Peer::Unix { .. } => None,
    };
    Actor {
        principal: Some(principal.name.clone()),
        channel: if principal.is_proxied {
            Channel::Proxy
        } else {
            channel
        },
        address,
    }
}

//! Who may do what, and who did it: roles, and the actor of a change.

use crate::words;

words! {
    /// What a person or a program may do. Each role may do what the roles before it may.
    Role {
        /// Read everything, and change nothing.
        Viewer => "viewer",
        /// Trigger schedules as they are defined; pause, resume and skip; cancel and retry launches.
        Operator => "operator",
        /// Define schedules, give launches a context of their own, start backfills.
        Editor => "editor",
        /// Approve, reject and roll back versions of packages.
        Approver => "approver",
        /// Create and revoke tokens.
        Admin => "admin",
    }
}

impl Role {
    /// Whether this role may do what `needed` may.
    pub fn includes(self, needed: Role) -> bool {
        self as u8 >= needed as u8
    }
}

words! {
    /// The way on which a change reached the database.
    Channel {
        /// A command on a machine with access to the database.
        Cli => "cli",
        /// The HTTP API.
        Api => "api",
        /// An assistant, through `campanile mcp`.
        Mcp => "mcp",
        /// A web page.
        Page => "page",
        /// The HTTP API or a web page, by a proxy that says who the user is.
        Proxy => "proxy",
        /// A host, by itself.
        Host => "host",
    }
}

/// Who makes a change. The events of the change record it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name that was verified: of a user of the operating system, or of a token. None for a host.
    pub principal: Option<String>,
    pub channel: Channel,
    /// The network address from which the request came.
    pub address: Option<String>,
}

impl Actor {
    /// A host that does something by itself.
    pub const HOST: Actor = Actor {
        principal: None,
        channel: Channel::Host,
        address: None,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_includes_the_roles_before_it_and_no_others() {
        for (place, role) in Role::ALL.iter().enumerate() {
            let included = Role::ALL.iter().filter(|needed| role.includes(**needed));
            assert_eq!(included.count(), place + 1, "{role}");
        }
        assert!(Role::Admin.includes(Role::Viewer) && !Role::Viewer.includes(Role::Operator));
    }
}

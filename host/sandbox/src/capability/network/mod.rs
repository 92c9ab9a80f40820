//! Names, addresses and how far a grant reaches, for HTTP and sockets alike.

mod addresses;
pub(crate) mod leased;
pub(crate) mod lookup;
pub(crate) mod reach;

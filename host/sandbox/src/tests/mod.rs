//! The whole sandbox, with guests that the tests write.

mod all_calls;
mod capabilities;
mod contract;
mod forms;
mod guest_text;
mod guests;
mod hostile;
mod kept;
mod limits;
mod link_races;
mod listings;
mod loaded;
mod malformed;
mod outcomes;
mod packages;
mod preview_1;
mod quota;
mod quota_script;
mod refusal_order;
mod sockets;

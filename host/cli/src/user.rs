//! The user of the operating system who gives a command.

use campanile_model::access::{Actor, Channel};

/// Returns who makes the changes of this command.
pub(crate) fn actor() -> Actor {
    Actor {
        principal: Some(name()),
        channel: Channel::Cli,
        address: None,
    }
}

/// Returns the name of the user of this process; of a user without a name the number, such as `uid 1000`.
///
/// Environment variables such as `USER` do not count, because anyone can set them.
fn name() -> String {
    let uid = uzers::get_effective_uid();
    let user = uzers::get_user_by_uid(uid);
    user.map_or_else(
        || format!("uid {uid}"),
        |user| user.name().to_string_lossy().into_owned(),
    )
}

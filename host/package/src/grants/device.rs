//! Granting devices served by the host below `/dev`.

use super::{GrantKind, GrantReader};
use campanile_sandbox::Device;

/// Where tasks see the devices.
const FOLDER: &str = "/dev";

pub(super) static DEVICE: GrantKind = GrantKind {
    name: "device",
    key: "devices",
    keys: &[
        "devices | list of texts | | \"null\", \"random\", \"urandom\", \"zero\" | Devices that the task sees below /dev. The host serves them; its own /dev stays hidden.",
    ],
    read: |section, reader| section.list("devices", |name| add(reader, name)).map(drop),
    record: |grants| {
        let devices = grants.devices.iter();
        devices.map(|device| vec![device.to_string()]).collect()
    },
    ..GrantKind::DEFAULTS
};

/// Grants a device. The error is a clause.
pub(super) fn add(reader: &mut GrantReader<'_>, name: &str) -> Result<(), String> {
    let name = name
        .strip_prefix(FOLDER)
        .and_then(|name| name.strip_prefix('/'))
        .unwrap_or(name);
    let device = Device::read(name).map_err(|what| format!("names {name:?}, and each {what}"))?;
    if reader.grants.devices.contains(&device) {
        return Err(format!("names {device} twice"));
    }
    reader.grants.devices.push(device);
    check_folder(reader)
}

/// Refuses devices along with a directory granted in the same place. The error is a clause.
pub(super) fn check_folder(reader: &GrantReader<'_>) -> Result<(), String> {
    let mut directories = reader.grants.directories.iter();
    if reader.grants.devices.is_empty() || !directories.any(|it| it.guest == FOLDER) {
        return Ok(());
    }
    Err(format!(
        "are seen in {FOLDER}, where a directory is granted too: grant the directory under another path, or leave out the devices"
    ))
}

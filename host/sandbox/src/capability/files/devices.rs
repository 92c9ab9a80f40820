//! The granted devices below `/dev`, served by the host. Of its own `/dev`, it opens just the null device and the random source, handing
//! tasks descriptors only to the former.

use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, OnceLock};

use campanile_model::ids::sha256_half;
use hyper::body::Bytes;
use rustix::fs::{Mode, OFlags};
use wasmtime_wasi::filesystem::{Descriptor, File as OpenedFile};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, MetadataHashValue,
    OpenFlags,
};
use wasmtime_wasi::p2::{InputStream, Pollable, StreamError, StreamResult};
use wasmtime_wasi::{FsPerms, OpenMode, async_trait};

use crate::capability::random::{random_seed, spend};
use crate::capability::shared::{OpenFile, Shared};
use crate::grants::Device;

/// Where tasks see the devices.
pub(crate) const DEVICES: &str = "/dev";

/// The most bytes returned by one read.
const READ_BYTES_MAX: usize = 64 << 10;

/// What the host serves for a descriptor, instead of a file or directory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// The directory [`DEVICES`].
    Folder,
    Device(Device),
}

/// Looks up the device at `path`, relative to [`DEVICES`].
///
/// # Errors
/// Returns an error if there's no such device or it isn't granted.
pub(super) fn device_at(shared: &Shared, path: &str) -> Result<Device, ErrorCode> {
    let name = path.trim_start_matches("./");
    let granted = shared.call.grants.devices.iter().copied();
    let mut granted = granted.filter(|device| device.as_str() == name.trim_end_matches('/'));
    match granted.next() {
        Some(_) if name.ends_with('/') => Err(ErrorCode::NotDirectory),
        Some(device) => Ok(device),
        None => Err(ErrorCode::NoEntry),
    }
}

/// Lists the granted devices.
pub(super) fn device_entries(shared: &Shared) -> Vec<DirectoryEntry> {
    let granted = shared.call.grants.devices.iter();
    let entry = |device: &Device| DirectoryEntry {
        type_: DescriptorType::CharacterDevice,
        name: device.to_string(),
    };
    granted.map(entry).collect()
}

/// Opens a device. Underneath, each is backed by the null device, which swallows whatever is written.
pub(super) fn open_device(
    device: Device,
    how: OpenFlags,
    wanted: DescriptorFlags,
) -> Result<Descriptor, ErrorCode> {
    if how.contains(OpenFlags::DIRECTORY) {
        return Err(ErrorCode::NotDirectory);
    }
    if how.contains(OpenFlags::EXCLUSIVE) {
        return Err(ErrorCode::Exist);
    }
    let writes = wanted.contains(DescriptorFlags::WRITE);
    if writes && matches!(device, Device::Random | Device::Urandom) {
        return Err(ErrorCode::NotPermitted);
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty());
    let null = File::from(null.map_err(|_| ErrorCode::NoDevice)?);
    let (perms, mode) = if writes {
        (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE)
    } else {
        (FsPerms::ReadOnly, OpenMode::READ)
    };
    Ok(Descriptor::File(OpenedFile::new(null, perms, mode, false)))
}

/// Returns the status of something without a size or timestamps.
pub(super) fn stat_of(kind: DescriptorType) -> DescriptorStat {
    DescriptorStat {
        type_: kind,
        link_count: 1,
        size: 0,
        data_access_timestamp: None,
        data_modification_timestamp: None,
        status_change_timestamp: None,
    }
}

/// Returns an identity derived from a name.
pub(super) fn hash_of(name: &str) -> MetadataHashValue {
    let hash = u128::from_be_bytes(sha256_half(name.as_bytes()));
    MetadataHashValue {
        lower: hash as u64,
        upper: (hash >> 64) as u64,
    }
}

/// A stream of bytes from a device.
pub(super) struct DeviceReader {
    device: Device,
    shared: Arc<Shared>,
    /// With frozen time, random bytes are repeatable: the seed and how many bytes have been consumed.
    repeatable: Option<(Vec<u8>, u64)>,
    _file: Option<Arc<OpenFile>>,
}

impl DeviceReader {
    /// Starts reading at `offset`.
    pub(super) fn new(
        device: Device,
        offset: u64,
        shared: &Arc<Shared>,
        file: Option<Arc<OpenFile>>,
    ) -> DeviceReader {
        DeviceReader {
            device,
            repeatable: random_seed(shared.call.world.time).map(|seed| (seed, offset)),
            shared: Arc::clone(shared),
            _file: file,
        }
    }

    /// Returns up to `size` more bytes, or none at the end.
    ///
    /// # Errors
    /// Returns an error if the call has used up its random bytes, or the machine's random source fails.
    pub(super) fn bytes(&mut self, size: usize) -> wasmtime::Result<Vec<u8>> {
        let mut bytes = vec![0; size.min(READ_BYTES_MAX)];
        match self.device {
            Device::Null => bytes.clear(),
            Device::Zero => {}
            Device::Random | Device::Urandom => {
                spend(&self.shared, bytes.len() as u64)?;
                match &mut self.repeatable {
                    Some((seed, taken)) => repeat(seed, taken, &mut bytes),
                    None => (&*random_source()?).read_exact(&mut bytes)?,
                }
            }
        }
        Ok(bytes)
    }
}

/// Fills `bytes` from the sequence generated by `seed`, starting after `taken`.
fn repeat(seed: &[u8], taken: &mut u64, bytes: &mut [u8]) {
    const BLOCK: usize = 16;
    let mut filled = 0;
    while filled < bytes.len() {
        let (number, from) = (*taken / BLOCK as u64, (*taken % BLOCK as u64) as usize);
        let block = sha256_half(&[seed, &number.to_le_bytes()].concat());
        let count = (bytes.len() - filled).min(BLOCK - from);
        bytes[filled..filled + count].copy_from_slice(&block[from..from + count]);
        filled += count;
        *taken += count as u64;
    }
}

/// Returns the machine's random device, opening it just once.
fn random_source() -> wasmtime::Result<Arc<File>> {
    static SOURCE: OnceLock<Arc<File>> = OnceLock::new();
    if let Some(source) = SOURCE.get() {
        return Ok(Arc::clone(source));
    }
    let source = Arc::new(File::open("/dev/urandom")?);
    Ok(Arc::clone(SOURCE.get_or_init(|| source)))
}

#[async_trait]
impl Pollable for DeviceReader {
    async fn ready(&mut self) {}
}

#[async_trait]
impl InputStream for DeviceReader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        match self.bytes(size) {
            Ok(bytes) if bytes.is_empty() && size > 0 => Err(StreamError::Closed),
            Ok(bytes) => Ok(bytes.into()),
            Err(error) => Err(StreamError::Trap(error)),
        }
    }
}

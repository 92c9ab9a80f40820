//! Pseudo file systems, and where mounts lead.
//!
//! A path says little about what it leads to: the same directory may be mounted in a second place, and files of a pseudo file system such
//! as `/proc` control the host or reveal things about it. All functions block.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// File systems for controlling or inspecting the kernel, by `statfs` number and the name used for mounting. Taken from `linux/magic.h`, or
/// their own source code if missing there.
#[cfg(target_os = "linux")]
const PSEUDO: [(u32, &str); 31] = [
    (0x0000_9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x6265_6570, "configfs"),
    (0xcafe_4a11, "bpf"),
    (0x1980_0202, "mqueue"),
    (0x6e73_6673, "nsfs"),
    (0x5049_4446, "pidfs"),
    (0x0000_1cd1, "devpts"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4341_5d53, "smackfs"),
    (0x5a3c_69f0, "apparmorfs"),
    (0x6165_676c, "pstore"),
    (0xde5e_81e4, "efivarfs"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x6573_5543, "fusectl"),
    (0x6759_6969, "rpc_pipefs"),
    (0x6e66_7364, "nfsd"),
    (0xabba_1974, "xenfs"),
    (0x6c6f_6f70, "binder"),
    (0x0765_5821, "resctrl"),
    (0x0904_1934, "anon_inodefs"),
    (0x5049_5045, "pipefs"),
    (0x534f_434b, "sockfs"),
    (0x444d_4142, "dmabuf"),
    (0x0000_9fa1, "openpromfs"),
    (0x0000_9fa2, "usbfs"),
];
/// Reported by `statfs` as an ordinary file system. Only the list of mounts names it.
const DEVICES: &str = "devtmpfs";

/// The mounts visible to this process, or none if the system has no list of them.
pub struct Mounts {
    /// The topmost mount at each mount point.
    by_point: BTreeMap<PathBuf, Mount>,
}

struct Mount {
    /// Major and minor device number.
    device: String,
    /// The directory of the device mounted here.
    root: PathBuf,
    kind: String,
}

/// A place on a device, regardless of the path taken.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place<'m> {
    device: &'m str,
    path: PathBuf,
}

impl Mounts {
    /// Reads the list of mounts.
    pub fn read() -> Mounts {
        let text = if cfg!(target_os = "linux") {
            fs::read("/proc/self/mountinfo").unwrap_or_default()
        } else {
            Vec::new()
        };
        Mounts::of(&text)
    }

    fn of(text: &[u8]) -> Mounts {
        let lines = text.split(|byte| *byte == b'\n');
        Mounts {
            by_point: lines.filter_map(mount).collect(),
        }
    }

    /// Returns the mount points below `path`, which must be free of links.
    pub fn below(&self, path: &Path) -> impl Iterator<Item = &Path> {
        let points = self.by_point.keys().map(PathBuf::as_path);
        points.filter(move |point| point.starts_with(path) && *point != path)
    }

    /// Returns the first pseudo file system mounted below `path`, which must be free of links, with its mount point and name.
    pub fn pseudo_below(&self, path: &Path) -> Option<(&Path, &'static str)> {
        self.below(path).find_map(|point| {
            let kind = &self.by_point.get(point)?.kind;
            Some((point, pseudo_name(kind)?))
        })
    }

    /// Whether one path leads to or into the other, whatever mounts are in between. Both must be free of links.
    pub fn overlap(&self, one: &Path, other: &Path) -> bool {
        let (Some(one), Some(other)) = (self.place(one), self.place(other)) else {
            return false;
        };
        one.device == other.device
            && (one.path.starts_with(&other.path) || other.path.starts_with(&one.path))
    }

    /// Whether `path` leads to or into `outer`, whatever mounts are in between. Both must be free of links.
    pub fn is_within(&self, path: &Path, outer: &Path) -> bool {
        let (Some(path), Some(outer)) = (self.place(path), self.place(outer)) else {
            return false;
        };
        path.device == outer.device && path.path.starts_with(&outer.path)
    }

    fn place(&self, path: &Path) -> Option<Place<'_>> {
        let mut folders = path.ancestors();
        let (point, mount) = folders.find_map(|point| Some((point, self.by_point.get(point)?)))?;
        let rest = path.strip_prefix(point).ok()?;
        Some(Place {
            device: &mount.device,
            path: mount.root.join(rest),
        })
    }
}

/// Returns the name of the pseudo file system `path` leads to, which makes it off limits for tasks.
pub fn pseudo_at(path: &Path) -> Option<&'static str> {
    pseudo(File::open(path).ok()?)
}

/// Returns the name of the open file's pseudo file system, or none for an ordinary one.
#[cfg(target_os = "linux")]
pub fn pseudo(file: impl AsFd) -> Option<&'static str> {
    use rustix::fs::{fstat, fstatfs};

    // The type of this number depends on the processor. Its low 32 bits are what counts.
    let magic = u32::try_from(i128::from(fstatfs(&file).ok()?.f_type) & 0xffff_ffff).ok()?;
    if let Some((_, name)) = PSEUDO.iter().find(|(number, _)| *number == magic) {
        return Some(name);
    }
    let device = fstat(&file).ok()?.st_dev;
    is_of_devices(device).then_some(DEVICES)
}

/// No other system has a pseudo file system known here.
#[cfg(not(target_os = "linux"))]
pub fn pseudo(_: impl AsFd) -> Option<&'static str> {
    None
}

/// Whether this is the device number of `/dev`, provided that's a file system of its own.
#[cfg(target_os = "linux")]
fn is_of_devices(device: u64) -> bool {
    let number = |path| fs::metadata(path).map(|found| found.dev()).ok();
    number("/dev") == Some(device) && number("/") != Some(device)
}

fn pseudo_name(kind: &str) -> Option<&'static str> {
    #[cfg(target_os = "linux")]
    if let Some((_, name)) = PSEUDO.iter().find(|(_, name)| *name == kind) {
        return Some(name);
    }
    (kind == DEVICES).then_some(DEVICES)
}

/// Parses a line: numbers of the mount and its parent, device, root directory, mount point, options, `-`, kind.
fn mount(line: &[u8]) -> Option<(PathBuf, Mount)> {
    let mut words = line.split(|byte| *byte == b' ');
    let device = String::from_utf8(words.nth(2)?.to_vec()).ok()?;
    let root = unescaped(words.next()?);
    let point = unescaped(words.next()?);
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    let kind = String::from_utf8(rest.next()?.to_vec()).ok()?;
    Some((point, Mount { device, root, kind }))
}

/// Decodes a path from the list, where octal escapes like `\040` stand for spaces.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = b"\
        27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw\n\
        23 27 0:6 / /jail/dev rw - devtmpfs devtmpfs rw\n\
        24 27 254:0 /srv/plugins/@b /mnt/a\\040b rw - ext4 /dev/vda rw\n\
        25 27 0:30 /srv /mnt/other rw - tmpfs tmpfs rw\n";

    #[test]
    fn a_place_is_the_same_by_every_mount() {
        let mounts = Mounts::of(LIST);
        let (plugins, inner) = (Path::new("/srv/plugins"), Path::new("/mnt/a b/x"));
        assert!(mounts.is_within(inner, plugins));
        assert!(!mounts.is_within(plugins, inner));
        assert!(mounts.overlap(plugins, inner));
        assert!(mounts.overlap(Path::new("/srv"), Path::new("/mnt/a b")));
        assert!(!mounts.overlap(Path::new("/srv/plugins2"), inner));
        assert!(!mounts.overlap(plugins, Path::new("/mnt/other/plugins")));
        assert!(!Mounts::of(b"").overlap(plugins, plugins));
    }

    #[test]
    fn mounts_of_pseudo_file_systems_are_found_below_a_directory() {
        let mounts = Mounts::of(LIST);
        let found = |path: &str| mounts.pseudo_below(Path::new(path)).map(|(_, kind)| kind);
        assert_eq!(found("/"), Some("devtmpfs"));
        assert_eq!(found("/jail"), Some("devtmpfs"));
        assert_eq!(found("/mnt"), None);
        // The directory itself is recognised by its own number.
        assert_eq!(found("/proc"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pseudo_file_systems_are_known_by_their_numbers() {
        assert_eq!(pseudo_at(Path::new("/proc/self")), Some("proc"));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(pseudo_at(folder.path()), None);
        // Try each one mounted on this machine.
        for (point, mount) in Mounts::read().by_point {
            let is_top = File::open(&point).is_ok();
            if let Some(name) = pseudo_name(&mount.kind).filter(|_| is_top)
                && point != Path::new("/dev")
            {
                assert!(pseudo_at(&point).is_some(), "{name} at {}", point.display());
            }
        }
    }
}

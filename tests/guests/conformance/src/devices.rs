//! The devices that the host serves below `/dev`: `null`, `urandom` and `zero` are granted, `random` is not.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};

use crate::p1::*;

crate::cases![dev_has_the_granted_devices, dev_null, dev_urandom, dev_zero,];

fn dev_has_the_granted_devices(_: Fd) {
    let dev = preopened("/dev");
    let (entries, _) = works(readdir(dir_of(dev), 4_096, 0));
    let mut names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, [".", "..", "null", "urandom", "zero"]);
    for name in ["null", "urandom", "zero"] {
        assert_eq!(kind(dev, name), FILETYPE_CHARACTER_DEVICE, "{name}");
        let opened = works(open(dev, name, 0, READ));
        assert_eq!(works(stat(opened)).filetype, FILETYPE_CHARACTER_DEVICE);
        fails(
            unlink(dev, name),
            &[ERRNO_PERM, ERRNO_ROFS, ERRNO_ACCES, ERRNO_NOENT],
        );
        fails(open(dev, name, OFLAGS_DIRECTORY, READ), &[ERRNO_NOTDIR]);
        fails(
            stat_at(dev, NO_FOLLOW, &format!("{name}/")),
            &[ERRNO_NOTDIR],
        );
        fails(target_of(dev, name, 10), &[ERRNO_INVAL]);
    }
    for missing in ["random", "sda", "shm", "fd/0", "../etc/passwd", "null/x"] {
        let tried = open(dev, missing, 0, READ);
        fails(tried, &[ERRNO_NOENT, ERRNO_PERM, ERRNO_NOTCAPABLE]);
    }
    fails(
        open(dev, "new", OFLAGS_CREAT, READ_WRITE),
        &[ERRNO_NOENT, ERRNO_PERM, ERRNO_ROFS],
    );
    fails(mkdir(dev, "new"), &[ERRNO_PERM, ERRNO_ROFS, ERRNO_ACCES]);
}

fn dir_of(dev: Fd) -> Fd {
    works(open(dev, ".", OFLAGS_DIRECTORY, READ));
    dev
}

fn dev_null(_: Fd) {
    let mut null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .expect("opening");
    null.write_all(&[1; 100_000]).expect("writing");
    let mut bytes = Vec::new();
    null.read_to_end(&mut bytes).expect("reading");
    assert!(bytes.is_empty());
    std::fs::write("/dev/null", "ding").expect("writing");
}

fn dev_urandom(_: Fd) {
    let mut urandom = File::open("/dev/urandom").expect("opening");
    let mut read = || {
        let mut bytes = [0; 4_096];
        urandom.read_exact(&mut bytes).expect("reading");
        bytes
    };
    let (one, other) = (read(), read());
    assert!(one != other && one.iter().any(|byte| *byte != one[0]));
    let mut again = File::open("/dev/urandom").expect("opening");
    let mut bytes = vec![0; 200_000];
    again.read_exact(&mut bytes).expect("reading");
    let missing = File::open("/dev/random").expect_err("it is not granted");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

fn dev_zero(_: Fd) {
    let mut zero = File::open("/dev/zero").expect("opening");
    let mut bytes = vec![7; 100_000];
    zero.read_exact(&mut bytes).expect("reading");
    assert!(bytes.iter().all(|byte| *byte == 0));
}

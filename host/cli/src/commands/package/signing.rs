//! `campanile package keygen`, `sign` and `verify`: signatures of packages, in the format of minisign.

use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use clap::Args;
use minisign::{KeyPair, SecretKey, SecretKeyBox};
use serde::Serialize;

use crate::environment::KEY_PASSPHRASE;
use crate::output::{self, ErrorCode, Failure, Record, Result, failed, refused};
use crate::{Common, folder_of};
use campanile_model::clock::Clock;
use campanile_model::text::printable_line;
use campanile_package::signature::{PublicKey, read_small, signature_path, verify};

/// The file of the secret key, unless another is named.
const KEY_FILE: &str = "campanile.key";
/// How the second line of a secret key file begins, with a passphrase and without.
const PROTECTED: &str = "RWRTY0Iy";
const UNPROTECTED: &str = "RWQAAEIy";
/// The mode of a file that only its owner reads, and of one that every user reads.
pub(crate) const PRIVATE: u32 = 0o600;
pub(crate) const PUBLIC: u32 = 0o644;
/// The bits of a mode that let other users in.
const OTHERS: u32 = 0o077;

/// Make a key pair.
#[derive(Args)]
pub(crate) struct Keygen {
    /// The secret key file to write; the public key file has the same name with .pub at its end
    #[arg(default_value = KEY_FILE)]
    file: PathBuf,
    /// Write the secret key without a passphrase, for machines that sign by themselves
    #[arg(long)]
    no_passphrase: bool,
}

/// Sign a file.
#[derive(Args)]
pub(crate) struct Sign {
    /// The .wasm file; its signature is written beside it, with .minisig at the end of the name
    file: PathBuf,
    /// The secret key file
    #[arg(long, value_name = "FILE", default_value = KEY_FILE)]
    key: PathBuf,
}

/// Verify the signature of a file.
#[derive(Args)]
pub(crate) struct Verify {
    /// The .wasm file, with its signature beside it
    file: PathBuf,
    /// A public key, or the file of one [default: the `policy.trusted_keys` of the configuration]
    #[arg(long, value_name = "KEY|FILE")]
    key: Vec<String>,
}

/// A new key pair.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct KeyReport {
    /// The secret key file.
    secret_key_file: PathBuf,
    /// The public key file.
    public_key_file: PathBuf,
    /// The public key, for `policy.trusted_keys`.
    public_key: String,
    /// The id of the key, as signatures name it.
    key_id: String,
}

/// A signature that is valid.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct SignatureReport {
    file: PathBuf,
    signature_file: PathBuf,
    /// The public key that verifies the signature.
    public_key: String,
    /// The id of the key.
    key_id: String,
}

impl Keygen {
    pub(crate) fn run(self, common: &Common) -> Result {
        let secret_path = self.file;
        let public_path = secret_path.with_added_extension("pub");
        for path in [&secret_path, &public_path] {
            if path.symlink_metadata().is_ok() {
                return Err(refused!("{} exists already", path.display())
                    .code(ErrorCode::Conflict)
                    .hint("name another file, or move this key away"));
            }
        }
        let (pair, comment) = if self.no_passphrase {
            (
                KeyPair::generate_unencrypted_keypair(),
                "campanile secret key without a passphrase",
            )
        } else {
            (
                KeyPair::generate_encrypted_keypair(Some(new_passphrase()?)),
                "campanile secret key",
            )
        };
        let pair = pair.map_err(Failure::failed)?;
        let secret = pair.sk.to_box(Some(comment)).map_err(Failure::failed)?;
        let public = pair.pk.to_box().map_err(Failure::failed)?;
        let key = public_key(&pair.pk)?;
        write_new(&secret_path, &secret.to_bytes(), PRIVATE)?;
        if let Err(failure) = write_new(&public_path, &public.to_bytes(), PUBLIC) {
            // A secret key without its public key is half a pair. The error says what went wrong.
            let _ = std::fs::remove_file(&secret_path);
            return Err(failure);
        }
        common.print(&KeyReport {
            secret_key_file: secret_path,
            public_key_file: public_path,
            public_key: key.to_string(),
            key_id: key.id().to_owned(),
        })
    }
}

impl Record for KeyReport {
    fn print(&self) -> Result {
        output::print_detail(self)?;
        output::print_message!(
            "hint: to trust the key, add to the configuration:\n[policy]\ntrusted_keys = [\"{}\"]",
            self.public_key
        );
        Ok(())
    }
}

impl Sign {
    pub(crate) fn run(self, common: &Common) -> Result {
        let bytes = read(&self.file)?;
        let secret = secret_key(&self.key)?;
        let key = sign(&self.file, &bytes, &secret)?;
        print_signed(common, self.file, &key)
    }
}

/// Sign `bytes`, which are those of `file`, and write the signature beside it. Return the public key.
pub(crate) fn sign(file: &Path, bytes: &[u8], secret: &SecretKey) -> Result<PublicKey> {
    let key = minisign::PublicKey::from_secret_key(secret).map_err(Failure::failed)?;
    let key = public_key(&key)?;
    let name = file.file_name().unwrap_or_default();
    let comment = format!(
        "timestamp:{}\tfile:{}\thashed",
        Clock::system().now().micros() / 1_000_000,
        printable_line(&name.to_string_lossy())
    );
    let about = format!("signature by the campanile key {}", key.id());
    let signed = minisign::sign(None, secret, bytes, Some(&comment), Some(&about));
    let text = signed.map_err(Failure::failed)?.into_string();
    // The signature must be one that a host accepts.
    verify(bytes, &text, std::slice::from_ref(&key)).map_err(Failure::failed)?;
    replace(&signature_path(file), text.as_bytes())?;
    Ok(key)
}

/// Verify the signature beside `file`, whose bytes are `bytes`. Return the key that verifies it.
pub(crate) fn verify_beside<'k>(
    file: &Path,
    bytes: &[u8],
    keys: &'k [PublicKey],
) -> Result<&'k PublicKey> {
    let text = read_small(&signature_path(file)).map_err(Failure::refused)?;
    let key = verify(bytes, &text, keys);
    key.map_err(|why| failed!("{}: {why}", file.display()))
}

/// Returns the public keys in `given`; if it is empty, those of `policy.trusted_keys`.
pub(crate) fn keys(given: &[String], common: &Common) -> Result<Vec<PublicKey>> {
    if given.is_empty() {
        let keys = common.config()?.policy.trusted_keys;
        if keys.is_empty() {
            return Err(refused!("there is no key to verify with")
                .hint("name one with --key, or add it to `policy.trusted_keys`"));
        }
        return Ok(keys);
    }
    let keys = given.iter().map(|given| match Path::new(given) {
        path if path.exists() => PublicKey::read_file(path).map_err(Failure::refused),
        _ => given.parse().map_err(|why: String| {
            refused!(
                "--key {} is the path of no file, and {why}",
                printable_line(given)
            )
        }),
    });
    keys.collect()
}

impl Verify {
    pub(crate) fn run(self, common: &Common) -> Result {
        let keys = keys(&self.key, common)?;
        let bytes = read(&self.file)?;
        let key = verify_beside(&self.file, &bytes, &keys)?;
        print_signed(common, self.file, key)
    }
}

/// Report that the signature of `file` is valid.
fn print_signed(common: &Common, file: PathBuf, key: &PublicKey) -> Result {
    let text = format!("{} is signed by the key {}", file.display(), key.id());
    let report = SignatureReport {
        signature_file: signature_path(&file),
        file,
        public_key: key.to_string(),
        key_id: key.id().to_owned(),
    };
    common.print_report(&report, &text)
}

/// Read the secret key in the file at `path`, and ask for its passphrase if it has one.
pub(crate) fn secret_key(path: &Path) -> Result<SecretKey> {
    let shown = path.display();
    let text = read_small(path).map_err(|why| {
        refused!("the secret key {why}")
            .hint("correct the path, or make a key with `campanile package keygen`")
    })?;
    let mode = std::fs::metadata(path).map_or(0, |found| found.permissions().mode());
    if mode & OTHERS != 0 {
        return Err(refused!("other users may use the secret key {shown}")
            .code(ErrorCode::Refused)
            .hint(format!(
                "`chmod 600 {shown}`, and make a new key if others may have read it"
            )));
    }
    let key = SecretKeyBox::from(text.clone());
    let read = match text.lines().nth(1).unwrap_or_default() {
        line if line.starts_with(PROTECTED) => {
            key.into_secret_key(Some(passphrase(&format!("Passphrase of {shown}: "))?))
        }
        line if line.starts_with(UNPROTECTED) => key.into_unencrypted_secret_key(),
        _ => {
            return Err(refused!("{shown} is no secret key")
                .hint("`campanile package keygen` makes one; it is the file without .pub"));
        }
    };
    read.map_err(|why| refused!("the secret key {shown} cannot be used: {why}"))
}

/// Returns a public key as hosts read it.
fn public_key(key: &minisign::PublicKey) -> Result<PublicKey> {
    let key = key.to_base64().parse();
    key.map_err(|why: String| failed!("the public key {why}"))
}

/// Returns a new key's passphrase, from the environment or typed twice.
fn new_passphrase() -> Result<String> {
    let first = passphrase("Passphrase for the new key: ")?;
    if std::env::var_os(KEY_PASSPHRASE).is_none() && first != passphrase("The same again: ")? {
        return Err(refused!("the two passphrases differ").hint("try again"));
    }
    Ok(first)
}

/// Returns the passphrase of the environment, or ask for it on the terminal.
fn passphrase(prompt: &str) -> Result<String> {
    let given = match std::env::var_os(KEY_PASSPHRASE) {
        Some(given) => given
            .into_string()
            .map_err(|_| refused!("{KEY_PASSPHRASE} is not UTF-8 text"))?,
        None => rpassword::prompt_password(prompt).map_err(|error| {
            refused!("the passphrase cannot be asked for: {error}").hint(format!(
                "set {KEY_PASSPHRASE}, or make a key with --no-passphrase"
            ))
        })?,
    };
    if given.is_empty() {
        Err(refused!("the passphrase is empty")
            .hint("`campanile package keygen --no-passphrase` makes a key without one"))
    } else {
        Ok(given)
    }
}

/// Read the file that a signature is of.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Failure::unreadable(path.display(), &error))
}

/// Write a file that must not exist yet.
pub(crate) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result {
    let about = |error: std::io::Error| refused!("{} cannot be written: {error}", path.display());
    let options = File::options()
        .write(true)
        .create_new(true)
        .mode(mode)
        .clone();
    let mut file = options.open(path).map_err(about)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // Nothing is left half-written.
        let _ = std::fs::remove_file(path);
        about(error)
    })
}

/// Replace the file at `path` at once, so that no host reads a part of it.
fn replace(path: &Path, bytes: &[u8]) -> Result {
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(PUBLIC))
            .tempfile_in(folder_of(path))?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error| failed!("{} cannot be written: {error}", path.display()))
}

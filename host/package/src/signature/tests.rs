use super::*;

const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
const ID: &str = "E7620F1842B4E81F";
/// Made by minisign, of the text `test`.
const SIGNATURE: &str = "untrusted comment: signature from minisign secret key
RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=
trusted comment: timestamp:1556193335\tfile:test
y/rUw2y8/hOUYjZU71eHp/Wo1KZ40fGy2VJEDl34XMJM+TX48Ss/17u3IvIfbVR1FkZZSNCisQbuQY+bHwhEBg==
";
/// Of the same text, without hashing it first.
const OLD: &str = "untrusted comment: signature from minisign secret key
RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaVWuNrm73YiIiJbq71Wi+dP9eKL8OC351vwIasSSbXxwA=
trusted comment: timestamp:1555779966\tfile:test
QtKMXWyYcwdpZAlPF7tE2ENJkRd1ujvKjlj1m9RtHTBnZPa5WKU5uWRs5GoP5M/VqE81QFuMKI5k/SfNQUaOAA==
";

fn key() -> PublicKey {
    KEY.parse().unwrap()
}

#[test]
fn a_signature_of_minisign_names_its_key() {
    let key = key();
    assert_eq!((key.id(), &*key.to_string()), (ID, KEY));
    assert_eq!(signer(SIGNATURE).as_deref(), Some(ID));
    let trusted = [key.clone()];
    assert_eq!(verify(b"test", SIGNATURE, &trusted), Ok(&key));
}

#[test]
fn a_signature_that_does_not_count_is_refused_with_the_reason() {
    let trusted = [key()];
    let refusal = |bytes: &[u8], text: &str, keys: &[PublicKey]| {
        verify(bytes, text, keys)
            .map(|key| key.id().to_owned())
            .unwrap_err()
    };
    assert!(refusal(b"Test", SIGNATURE, &trusted).contains("of other bytes"));
    let unknown = refusal(b"test", SIGNATURE, &[]);
    assert!(
        unknown.contains(ID) && unknown.contains("trusted_keys"),
        "{unknown}"
    );
    assert!(refusal(b"test", OLD, &trusted).contains("old form"));
    let changed = SIGNATURE.replace("1556193335", "1556193336");
    assert!(refusal(b"test", &changed, &trusted).contains("was changed"));
}

#[test]
fn no_part_of_a_signature_verifies_and_none_panics() {
    let trusted = [key()];
    for end in 0..SIGNATURE.len() - 1 {
        let Some(part) = SIGNATURE.get(..end) else {
            continue;
        };
        // Without its last line break the text is whole.
        assert!(verify(b"test", part, &trusted).is_err(), "{part}");
    }
    for byte in 0..SIGNATURE.len() {
        let mut text = SIGNATURE.as_bytes().to_vec();
        text[byte] ^= 1;
        let Ok(text) = String::from_utf8(text) else {
            continue;
        };
        // The first comment is signed by no key.
        let is_comment = byte <= SIGNATURE.find('\n').unwrap();
        assert!(
            is_comment || verify(b"test", &text, &trusted).is_err(),
            "{text}"
        );
    }
}

#[test]
fn a_text_that_is_no_public_key_is_refused() {
    let long = "RWQf".repeat(1000);
    for wrong in ["", "RWQf6LRC", "not base64!", SIGNATURE, &KEY[..55], &long] {
        let why = wrong.parse::<PublicKey>().unwrap_err();
        assert!(why.starts_with("is no public key: "), "{why}");
    }
}

#[test]
fn a_public_key_file_is_read_and_a_wrong_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pub");
    std::fs::write(&path, format!("untrusted comment: x\n{KEY}\n")).unwrap();
    assert_eq!(PublicKey::read_file(&path), Ok(key()));
    for (content, expected) in [
        (KEY.to_owned(), "is no public key"),
        ("x".repeat(5000), "it is larger than 4KiB"),
    ] {
        std::fs::write(&path, content).unwrap();
        let why = PublicKey::read_file(&path).unwrap_err();
        assert!(why.contains("a.pub") && why.contains(expected), "{why}");
    }
    std::fs::write(&path, [0xff]).unwrap();
    assert!(
        PublicKey::read_file(&path)
            .unwrap_err()
            .contains("not UTF-8")
    );
    let nowhere = PublicKey::read_file(&folder.path().join("b.pub"));
    assert!(nowhere.unwrap_err().contains("does not exist"));
}

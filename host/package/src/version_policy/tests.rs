use serde_json::json;

use super::*;
use crate::manifest::Manifest;
use crate::sidecar::Sidecar;
use campanile_model::ids::ArtifactDigest;

fn manifest(version: Option<&str>) -> Manifest {
    let description = version.map_or(json!({}), |version| json!({ "version": version }));
    Manifest::from_json("chimes", &description).unwrap()
}

fn sidecar(minimum_version: &str) -> Sidecar {
    Sidecar {
        minimum_version: Some(minimum_version.parse().unwrap()),
        ..Sidecar::default()
    }
}

#[test]
fn a_package_below_the_minimum_version_or_without_a_version_is_refused() {
    let least = sidecar("1.2.0");
    for accepted in ["1.2.0", "1.2.1", "2.0.0-alpha", "1.10.0"] {
        assert_eq!(least.check_version(&manifest(Some(accepted))), Ok(()));
    }
    for (refused, expected) in [
        (Some("1.1.9"), "its version is 1.1.9"),
        (Some("1.2.0-rc.1"), "its version is 1.2.0-rc.1"),
        (Some("1.2"), "its version `1.2` is no semantic version"),
        (None, "it has no version"),
    ] {
        let why = least.check_version(&manifest(refused)).unwrap_err();
        assert!(why.starts_with(expected), "{why}");
        assert!(
            why.contains("chimes.toml accepts none below 1.2.0"),
            "{why}"
        );
    }
    assert_eq!(Sidecar::default().check_version(&manifest(None)), Ok(()));
}

#[test]
fn a_pin_is_needed_only_when_the_policy_says_so() {
    let (digest, other) = (ArtifactDigest::of(b"a"), ArtifactDigest::of(b"b"));
    let pinning = Sidecar {
        pin: Some(digest.to_string()),
        ..Sidecar::default()
    };
    for approval in Approval::ALL {
        let policy = VersionPolicy {
            approval: *approval,
            ..VersionPolicy::default()
        };
        assert_eq!(pinning.check_pin("a", &policy, &digest), Ok(()));
        let why = pinning.check_pin("a", &policy, &other).unwrap_err();
        assert!(why.contains("a.toml pins"), "{why}");
        let without = Sidecar::default().check_pin("a", &policy, &digest);
        assert_eq!(without.is_ok(), *approval != Approval::Pinned);
    }
}

#[test]
fn a_signature_is_needed_only_when_the_policy_says_so() {
    let trusting = VersionPolicy {
        trusted_keys: vec![
            "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
                .parse()
                .unwrap(),
        ],
        ..VersionPolicy::default()
    };
    let requiring = VersionPolicy {
        require_signature: true,
        ..trusting.clone()
    };
    let check = |policy: &VersionPolicy, text: Option<&str>| {
        policy.check_signature("a", b"", text.map(|text| Ok(text.to_owned())))
    };
    for text in [None, Some("wrong")] {
        assert_eq!(check(&VersionPolicy::default(), text), Ok(None));
        assert_eq!(check(&trusting, text), Ok(None));
        assert!(check(&requiring, text).is_err());
    }
    let unread = requiring.check_signature("a", b"", Some(Err("it is a folder".to_owned())));
    assert_eq!(unread, Err("it is a folder".to_owned()));
}

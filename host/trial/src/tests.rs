//! The crash check of guests with several concurrent effects.

use std::sync::Arc;

use super::*;
use campanile_model::clock::Clock;
use campanile_package::{Attempt, PackageLoader, load};
use campanile_sandbox::{
    CodeCache, HttpGrant, HttpReply, HttpRequest, Replies, Sandbox, SandboxSettings,
};
use guest_text::{Guest, guest};

#[expect(dead_code, reason = "the sandbox's own tests use all of it")]
#[path = "../../sandbox/src/tests/guest_text.rs"]
mod guest_text;

fn sandbox() -> Sandbox {
    let settings = SandboxSettings {
        calls_max: 2,
        guest_threads: 2,
        code_cache: CodeCache::None,
        memory_bytes_max: 64 << 20,
        ..SandboxSettings::default()
    };
    Sandbox::new(settings, Clock::system()).unwrap()
}

/// Returns a guest that starts `POST http://a.example/1` and `/2` before it waits for the answers.
fn two_at_once() -> Guest {
    let post = |path: u32, answer: u32| {
        format!(
            "(local.set $request (call $request (call $fields)))
            (drop (call $set-method (local.get $request) (i32.const 2) (i32.const 0) (i32.const 0)))
            (drop (call $set-scheme (local.get $request) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0)))
            (drop (call $set-authority (local.get $request) (i32.const 1) (i32.const 2052) (i32.const 9)))
            (drop (call $set-path (local.get $request) (i32.const 1) (i32.const {path}) (i32.const 2)))
            (call $handle (local.get $request) (i32.const 0) (i32.const 0) (i32.const {answer}))
            (if (i32.load8_u (i32.const {answer})) (then unreachable))"
        )
    };
    let wait = |answer: u32| {
        format!("(call $block (call $subscribe-response (i32.load offset=8 (i32.const {answer}))))")
    };
    let body = format!(
        "(local $request i32) {} {} {} {}",
        post(2048, 512),
        post(2050, 768),
        wait(512),
        wait(768)
    );
    guest(&body)
        .data(2048, "/1/2a.example")
        .completes(None, None)
}

struct Fine;

impl Replies for Fine {
    fn reply(&self, _: HttpRequest) -> HttpReply {
        HttpReply::Response {
            status: 200,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }
}

async fn subject(guest: &Guest) -> Subject {
    let sandbox = Arc::new(sandbox());
    let loader = PackageLoader::in_this_process(Arc::clone(&sandbox));
    let compiled = load(&loader, "test", guest.component(), Attempt::First).await;
    let (artifact, manifest) = compiled.unwrap();
    Subject {
        sandbox,
        artifact,
        manifest,
    }
}

#[tokio::test]
async fn a_crash_point_names_the_right_one_of_concurrent_effects() {
    let subject = subject(&two_at_once()).await;
    let stage = Stage {
        task: "test".to_owned(),
        grants: Grants {
            http: vec![HttpGrant {
                scheme: "http".to_owned(),
                host: "a.example".to_owned(),
                port: None,
                methods: vec!["POST".to_owned()],
                private: false,
                signing_secret: None,
            }],
            ..Grants::default()
        },
        replies: Some(Arc::new(Fine)),
        ..Stage::default()
    };
    let found = check(&subject, &stage, EFFECTS_CRASHED).await.unwrap();
    let name = |number| format!("wasi:http: POST http://a.example/{number}");
    assert_eq!(found.undisturbed.effects, [name(1), name(2)], "{found}");
    assert_eq!(found.unreached, [], "{found}");
    assert_eq!(found.crashes, 4, "{found}");
    for number in [1, 2] {
        let after = found
            .broken
            .iter()
            .find(|crashed| (crashed.number, crashed.moment) == (number, Moment::After))
            .unwrap_or_else(|| panic!("no crash after {number}: {found}"));
        assert_eq!(after.effect, name(number), "{found}");
        let twice = format!("POST http://a.example/{number} with no body");
        assert!(
            after
                .differences
                .iter()
                .any(|difference| difference.what.contains(&twice)),
            "{found}"
        );
    }
}

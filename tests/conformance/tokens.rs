//! Tokens: creation, the check of a secret, expiry and revocation; and the actor of a change in its events.

use std::time::Duration;

use campanile_control::admin::schedule_admin::ScheduleError;
use campanile_control::admin::token_admin::{
    self, Authenticator, Principal, TokenState, WantedToken,
};
use campanile_model::access::{Actor, Channel, Role};
use campanile_model::clock::Timestamp;
use campanile_model::ids::TokenHash;
use campanile_model::namespace::Namespace;
use campanile_store::events::{self, Event, EventKind};
use campanile_store::{probe, tokens};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{approval_key, at};

on_both!(
    a_token_is_accepted_until_it_expires_or_is_revoked,
    a_refused_secret_is_nobody,
    the_last_use_is_recorded_once_a_minute,
    only_a_token_with_a_seal_of_the_host_is_an_approver,
    a_name_is_free_again_when_its_token_is_revoked,
    bad_tokens_are_refused,
    a_token_of_a_namespace_names_it_and_has_no_role_over_tokens,
    an_event_has_the_actor_of_its_transaction,
);

/// Create a token at `at(0)`, and return its secret.
async fn create(test: &TestDb, name: &str, role: Role, expires_in: Option<u64>) -> String {
    let mut tx = test.write().await;
    let created = token_admin::create(
        &mut tx,
        wanted(name, role, expires_in),
        Some(approval_key()),
        at(0),
    )
    .await;
    tx.commit().await.unwrap();
    created.unwrap().secret
}

/// A token of the whole installation, which expires after so many seconds.
fn wanted(name: &str, role: Role, expires_in: Option<u64>) -> WantedToken<'_> {
    WantedToken {
        name,
        role,
        namespace: None,
        expires_in: expires_in.map(Duration::from_secs),
    }
}

async fn last_use(test: &TestDb, name: &str) -> Option<Timestamp> {
    let row = tokens::find(&mut test.read().await, name).await.unwrap();
    row.unwrap().last_used_at
}

async fn a_token_is_accepted_until_it_expires_or_is_revoked(test: TestDb) {
    let ending = create(&test, "ending", Role::Viewer, Some(100)).await;
    let lasting = create(&test, "lasting", Role::Admin, None).await;
    let check = Authenticator::new(test.db.clone(), approval_key().clone());
    let who = async |secret: &str, second| check.authenticate(secret, at(second)).await.unwrap();
    let principal = |secret: &str, name: &str, role| {
        Some(Principal {
            name: name.to_owned(),
            role,
            namespace: None,
            token: Some(TokenHash::of(secret.as_bytes())),
            is_proxied: false,
            unsealed_role: None,
        })
    };
    assert_eq!(
        who(&ending, 98).await,
        principal(&ending, "ending", Role::Viewer)
    );
    // It is remembered, and does not outlive its end by that.
    assert_eq!(
        who(&ending, 99).await,
        principal(&ending, "ending", Role::Viewer)
    );
    assert_eq!(who(&ending, 100).await, None);
    assert_eq!(
        who(&lasting, 100).await,
        principal(&lasting, "lasting", Role::Admin)
    );

    let mut tx = test.write().await;
    let revoked = token_admin::revoke(&mut tx, "lasting", at(101)).await;
    let revoked = revoked.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        (revoked.state, revoked.row.revoked_at),
        (TokenState::Revoked, Some(at(101)))
    );
    // Within 5 seconds of the last look, a host may still accept it.
    assert_eq!(who(&lasting, 105).await, None);
    let fresh = Authenticator::new(test.db.clone(), approval_key().clone());
    assert_eq!(fresh.authenticate(&lasting, at(101)).await.unwrap(), None);

    let listed = token_admin::list(&mut test.read().await, true, 10, at(101)).await;
    let states = listed.unwrap().into_iter();
    let states: Vec<_> = states.map(|token| (token.row.name, token.state)).collect();
    assert_eq!(
        states,
        [
            ("ending".to_owned(), TokenState::Expired),
            ("lasting".to_owned(), TokenState::Revoked)
        ]
    );
}

async fn a_refused_secret_is_nobody(test: TestDb) {
    let secret = create(&test, "ci", Role::Editor, None).await;
    assert_eq!((secret.len(), &secret[..4]), (47, "cmp_"));
    let check = Authenticator::new(test.db.clone(), approval_key().clone());
    let mut other = secret.clone();
    let last = if other.ends_with('A') { 'B' } else { 'A' };
    other.pop();
    other.push(last);
    let longer = format!("{secret}A");
    for secret in ["", "cmp_", "ci", &other, &longer, &secret[4..], "\0"] {
        let found = check.authenticate(secret, at(1)).await.unwrap();
        assert_eq!(found, None, "{secret:?}");
    }
    assert!(check.authenticate(&secret, at(1)).await.unwrap().is_some());
    // The database has the hash alone.
    let sql = "SELECT name FROM token WHERE name LIKE 'cmp%'";
    let rows = probe::rows(&mut test.read().await, sql).await.unwrap();
    assert_eq!(rows, Vec::<Vec<String>>::new());
}

async fn the_last_use_is_recorded_once_a_minute(test: TestDb) {
    let secret = create(&test, "ci", Role::Viewer, None).await;
    let check = Authenticator::new(test.db.clone(), approval_key().clone());
    assert_eq!(last_use(&test, "ci").await, None);
    for (second, recorded) in [(10, 10), (12, 10), (40, 10), (70, 10), (76, 76), (136, 76)] {
        assert!(
            check
                .authenticate(&secret, at(second))
                .await
                .unwrap()
                .is_some()
        );
        assert_eq!(last_use(&test, "ci").await, Some(at(recorded)), "{second}");
    }
}

async fn only_a_token_with_a_seal_of_the_host_is_an_approver(test: TestDb) {
    let mut secrets = Vec::new();
    for role in [Role::Viewer, Role::Editor, Role::Approver, Role::Admin] {
        secrets.push(create(&test, role.as_str(), role, Some(100)).await);
    }
    let roles = async || {
        // Without what an authenticator remembers.
        let check = Authenticator::new(test.db.clone(), approval_key().clone());
        let mut roles = Vec::new();
        for secret in &secrets {
            let found = check.authenticate(secret, at(1)).await.unwrap().unwrap();
            roles.push((found.role, found.unsealed_role));
        }
        roles
    };
    let lowered = |role| (Role::Editor, Some(role));
    let sound = [Role::Viewer, Role::Editor, Role::Approver, Role::Admin].map(|role| (role, None));
    assert_eq!(roles().await, sound);
    let all = "UPDATE token SET role = 'admin'";
    let swapped = "UPDATE token SET seal = (SELECT t.seal FROM token t WHERE t.name = 'admin'), role = 'admin', namespace = NULL";
    let lasting = "UPDATE token SET expires_at = NULL";
    for (change, expected) in [
        (
            all,
            [
                lowered(Role::Admin),
                lowered(Role::Admin),
                lowered(Role::Admin),
                sound[3],
            ],
        ),
        (
            swapped,
            [
                lowered(Role::Admin),
                lowered(Role::Admin),
                lowered(Role::Admin),
                sound[3],
            ],
        ),
        (lasting, [lowered(Role::Admin); 4]),
    ] {
        test.execute(change).await;
        assert_eq!(roles().await, expected, "{change}");
    }
    test.execute("UPDATE token SET seal = NULL, role = name")
        .await;
    let expected = [
        sound[0],
        sound[1],
        lowered(Role::Approver),
        lowered(Role::Admin),
    ];
    assert_eq!(roles().await, expected);
}

async fn a_name_is_free_again_when_its_token_is_revoked(test: TestDb) {
    let first = create(&test, "ci", Role::Admin, None).await;
    let mut tx = test.write().await;
    token_admin::revoke(&mut tx, "ci", at(5)).await.unwrap();
    tx.commit().await.unwrap();
    let second = create(&test, "ci", Role::Viewer, None).await;
    assert_ne!(first, second);
    let check = Authenticator::new(test.db.clone(), approval_key().clone());
    assert_eq!(check.authenticate(&first, at(6)).await.unwrap(), None);
    let found = check.authenticate(&second, at(6)).await.unwrap();
    assert_eq!(found.unwrap().role, Role::Viewer);
    let count = tokens::count(&mut test.read().await).await.unwrap();
    assert_eq!(count, 1);
}

async fn a_token_of_a_namespace_names_it_and_has_no_role_over_tokens(test: TestDb) {
    let team: Namespace = "team".parse().unwrap();
    let of_team = |role| WantedToken {
        namespace: Some(&team),
        ..wanted("team-ci", role, None)
    };
    let mut tx = test.write().await;
    let refused =
        token_admin::create(&mut tx, of_team(Role::Admin), Some(approval_key()), at(0)).await;
    let refused = refused.map(|_| ()).unwrap_err();
    assert!(
        matches!(&refused, ScheduleError::Invalid(why) if why.contains("at most approver")),
        "{refused}"
    );
    let created = token_admin::create(
        &mut tx,
        of_team(Role::Approver),
        Some(approval_key()),
        at(0),
    )
    .await;
    let created = created.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(created.token.row.namespace.as_ref(), Some(&team));
    let check = Authenticator::new(test.db.clone(), approval_key().clone());
    let found = check.authenticate(&created.secret, at(1)).await.unwrap();
    assert_eq!(found.unwrap().namespace.as_ref(), Some(&team));
}

async fn bad_tokens_are_refused(test: TestDb) {
    create(&test, "ci", Role::Viewer, None).await;
    let try_create = async |name: &str, seconds: Option<u64>| {
        let mut tx = test.write().await;
        let wanted = wanted(name, Role::Viewer, seconds);
        let created = token_admin::create(&mut tx, wanted, Some(approval_key()), at(1)).await;
        created.map(|_| ()).unwrap_err()
    };
    let taken = try_create("ci", None).await;
    assert!(
        matches!(&taken, ScheduleError::Conflict(why) if why.contains("exists already")),
        "{taken}"
    );
    for (name, seconds) in [("", None), ("a b", None), ("new", Some(0))] {
        let refused = try_create(name, seconds).await;
        assert!(matches!(refused, ScheduleError::Invalid(_)), "{refused}");
    }
    let mut tx = test.write().await;
    let unknown = token_admin::revoke(&mut tx, "cj", at(1)).await.unwrap_err();
    assert!(matches!(unknown, ScheduleError::NotFound(_)), "{unknown}");
    drop(tx);
    let count = tokens::count(&mut test.read().await).await.unwrap();
    assert_eq!(count, 1);
}

async fn an_event_has_the_actor_of_its_transaction(test: TestDb) {
    let record = async |db: &campanile_store::Db, second| {
        let mut tx = db.write().await.unwrap();
        let kind = EventKind::HealthChanged;
        events::record(&mut tx, at(second), kind, "all", "changed")
            .await
            .unwrap();
        tx.commit().await.unwrap();
    };
    let ada = Actor {
        principal: Some("ada".to_owned()),
        channel: Channel::Api,
        address: Some("192.0.2.7".to_owned()),
    };
    record(&test.db, 1).await;
    record(&test.db.acting_as(ada.clone()), 2).await;
    // The handle from which the other was made is as it was.
    record(&test.db, 3).await;
    let found = events::list(&mut test.read().await, None, 10).await;
    let actor = |event: Event| Actor {
        principal: event.principal,
        channel: event.channel,
        address: event.address,
    };
    let actors: Vec<Actor> = found.unwrap().into_iter().map(actor).collect();
    assert_eq!(actors, [Actor::HOST, ada, Actor::HOST]);
}

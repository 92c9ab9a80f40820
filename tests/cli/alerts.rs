//! `alert`: what an operator sees of alerts and does about them, and the mistakes that `config check` refuses.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use campanile_tests::mail_server::{Encryption, MAIL_PASSWORD, MAIL_USER, MailServer};
use campanile_tests::{HostProcess, PATIENCE, Place, is_signed, on_both_empty};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api::Api;
use crate::browser::{Browser, token};
use crate::site::{Site, eventually, keys, list, run, stop, text};

on_both_empty!(
    an_alert_is_sent_shown_and_resolved,
    a_channel_is_tried,
    a_channel_is_tried_on_its_page,
    a_silenced_alert_is_shown_and_not_sent,
    the_policy_expect_within_is_shown_without_a_rule,
    a_mail_is_encrypted_and_its_server_is_trusted,
);

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Start a receiver that sends the body of each request that is signed, and answers 204.
fn receiver() -> (u16, Receiver<Value>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            receive(stream, &sender).expect("a request");
        }
    });
    (port, received)
}

fn receive(mut stream: TcpStream, sender: &Sender<Value>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut length, mut id, mut timestamp, mut signatures) = (0, None, None, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            if line.trim().is_empty() {
                break;
            }
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or(0),
            "webhook-id" => id = Some(value.to_owned()),
            "webhook-timestamp" => timestamp = Some(value.to_owned()),
            "webhook-signature" => signatures = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    let [id, timestamp, signatures] = [id, timestamp, signatures].map(Option::unwrap_or_default);
    if is_signed(SECRET, &format!("{id}.{timestamp}.{body}"), &signatures) {
        // The test may have ended.
        let _ = sender.send(serde_json::from_str(&body)?);
    }
    stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
}

#[track_caller]
fn next(received: &Receiver<Value>) -> Value {
    received.recv_timeout(PATIENCE).expect("a message")
}

/// Return a site with a rule for packages that are rejected, and the channel `ops` to `port`.
fn site(place: Place, port: u16) -> Site {
    let site = Site::new(place);
    let secret = site.folder().join("webhook");
    write_secret(&secret, 0o600);
    site.configure(&format!(
        "[[alerts]]\nkind = 'package_rejected'\nname = 'broken'\nchannels = ['ops']\nresolve_after = '0s'\n\
         [channels.ops]\nurl = 'http://127.0.0.1:{port}/hook'\nprivate = true\nsecret = 'webhook'\ngroup_wait = '0s'\n\
         [secrets.webhook]\nfile = '{}'\n",
        secret.display()
    ));
    site
}

fn write_secret(path: &Path, mode: u32) {
    fs::write(path, SECRET).expect("a secret");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
}

/// Wait for an alert with that status. Return it.
#[track_caller]
fn wait_for_status(site: &Site, status: &str) -> Value {
    eventually(|| {
        let alerts = list(site.json(["alert", "list", "--all"]));
        let found = alerts.iter().find(|alert| alert["status"] == status);
        found.cloned().ok_or_else(|| format!("{alerts:#?}"))
    })
}

fn health_notes(site: &Site) -> String {
    site.run(["health", "--json"]).json()["notes"].to_string()
}

async fn an_alert_is_sent_shown_and_resolved(place: Place) {
    let (port, received) = receiver();
    let site = site(place, port);
    let mut host = site.serve();
    assert_eq!(list(site.json(["alert", "list"])), Vec::<Value>::new());
    assert!(!health_notes(&site).contains("alert"));
    fs::write(site.plugin("bad.wasm"), "this is no package").expect("a file");
    let sent = next(&received);
    assert_eq!(sent["type"], "alert.firing");
    assert_eq!(sent["data"]["rule"], "broken");
    let alert = wait_for_status(&site, "firing");
    assert_eq!(alert["id"], sent["data"]["alerts"][0]["id"]);
    assert_eq!(
        (&alert["kind"], &alert["subject"], &alert["severity"]),
        (&json!("package_rejected"), &json!("bad"), &json!("warning"))
    );
    let notes = health_notes(&site);
    assert!(notes.contains("1 alert fires"), "{notes}");
    let id = text(&alert["id"]);
    let shown = eventually(|| {
        let shown = site.json(["alert", "show", &id]);
        match shown["messages"][0]["status"] == "delivered" {
            true => Ok(shown),
            false => Err(shown.to_string()),
        }
    });
    let all = "alerts answer attempts channel created_at error finished_at id kind next_attempt_at rule status";
    assert_eq!(keys(&shown["messages"][0]).join(" "), all);
    assert!(site.ok(["alert", "show", &id]).contains("broken"));
    fs::remove_file(site.plugin("bad.wasm")).expect("the file is removed");
    assert_eq!(next(&received)["type"], "alert.resolved");
    assert_eq!(wait_for_status(&site, "resolved")["id"], alert["id"]);
    assert_eq!(list(site.json(["alert", "list"])), Vec::<Value>::new());
    assert!(!health_notes(&site).contains("alert"));
    let wrong = site.run(["alert", "resolve", &id]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    stop(&mut host);
}

async fn a_channel_is_tried(place: Place) {
    let (port, received) = receiver();
    let site = site(place, port);
    let mut host = site.serve();
    let report = site.json(["alert", "test", "ops"]);
    assert_eq!(report["channel"], "ops");
    assert_eq!(next(&received)["type"], "alert.test");
    eventually(|| {
        let rows = list(site.json(["alert", "deliveries", "--channel", "ops"]));
        match rows[0]["id"] == report["id"] && rows[0]["status"] == "delivered" {
            true => Ok(()),
            false => Err(format!("{rows:#?}")),
        }
    });
    site.run(["alert", "test", "op"])
        .assert_refused(&["no table [channels.op]", "did you mean `ops`?"]);
    // Only the secrets of this channel matter.
    let more = "[channels.other]\nurl_secret = 'other'\n[secrets.other]\nfile = 'missing'\n";
    let configured = site.folder().join("campanile.toml");
    let text = fs::read_to_string(&configured).expect("a configuration");
    site.configure(&(text.clone() + more));
    site.ok(["alert", "test", "ops"]);
    site.run(["alert", "test", "other"])
        .assert_refused(&["the secret `other`", "create it, or correct the path"]);
    site.configure(&text);
    write_secret(&site.folder().join("webhook"), 0o644);
    site.run(["alert", "test", "ops"])
        .assert_refused(&["chmod 600"]);
    stop(&mut host);
}

async fn a_channel_is_tried_on_its_page(place: Place) {
    let (port, received) = receiver();
    let api = Api::of(site(place, port));
    let operator = Browser::of(&api, &token(&api, "operator"));
    assert!(operator.page("/alerts").contains("Send a test"));
    let to = operator.done("/alerts", &[("do", "test_channel"), ("name", "ops")]);
    let shown = operator.page(&to);
    assert!(shown.contains("Its answer is below."), "{shown}");
    // That page waits for the answer for only a few seconds.
    eventually(|| {
        let shown = operator.page("/alerts");
        match shown.contains("✓ answered 204") {
            true => Ok(()),
            false => Err(shown),
        }
    });
    assert_eq!(next(&received)["type"], "alert.test");
    let unknown = operator.post("/alerts", &[("do", "test_channel"), ("name", "opps")]);
    assert_eq!(unknown.status, 404, "{unknown:?}");
    let viewer = Browser::of(&api, &token(&api, "viewer"));
    let shown = viewer.page("/alerts");
    assert!(
        shown.contains("✓ answered 204") && !shown.contains("Send a test"),
        "{shown}"
    );
}

async fn a_silenced_alert_is_shown_and_not_sent(place: Place) {
    let (port, received) = receiver();
    let site = site(place, port);
    let mut host = site.serve();
    let silence = ["alert", "silence", "ba*", "--for", "1h", "--note", "repair"];
    let silence = list(site.json(silence));
    let id = text(&silence[0]["id"]);
    let shown = list(site.json(["alert", "silences"]));
    assert_eq!(shown, silence);
    assert_eq!(shown[0]["note"], "repair");
    fs::write(site.plugin("bad.wasm"), "this is no package").expect("a file");
    assert_eq!(wait_for_status(&site, "firing")["notified_at"], Value::Null);
    assert!(received.try_recv().is_err());
    site.ok(["alert", "unsilence", &id]);
    assert_eq!(next(&received)["type"], "alert.firing");
    assert!(received.try_recv().is_err());
    site.run(["alert", "unsilence", &id])
        .assert_refused(&["has ended already"]);
    for (args, expected) in [
        (["bad-name", "--rule", "brokn"], "did you mean `broken`?"),
        (["bax", "--rule", "broken"], "did you mean `bad`?"),
    ] {
        let silence = ["alert", "silence", "--for", "1h"].into_iter().chain(args);
        site.run(silence).assert_refused(&[expected]);
    }
    site.run(["alert", "silence", "a b", "--for", "1h"])
        .assert_refused(&["matches no name"]);
    site.run(["alert", "silence", "--for", "0s"])
        .assert_refused(&["give a longer time"]);
    let long = "x".repeat(2_001);
    site.run(["alert", "silence", "--for", "1h", "--note", &long])
        .assert_refused(&["must have 0 to 2000 characters, not 2001"]);
    stop(&mut host);
}

async fn the_policy_expect_within_is_shown_without_a_rule(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let mut host = site.serve();
    // Each launch runs for longer than the time that the policy gives it.
    site.add(
        "slow",
        "sleep",
        &[
            "--every",
            "2s",
            "--context",
            "{\"ms\": 20000}",
            "--expect-within",
            "1s",
        ],
    );
    let alert = wait_for_status(&site, "firing");
    assert_eq!(
        (&alert["kind"], &alert["subject"]),
        (&json!("expect_within"), &json!("slow"))
    );
    site.ok(["schedule", "pause", "slow"]);
    wait_for_status(&site, "resolved");
    stop(&mut host);
}

/// A mail arrives by STARTTLS and by TLS, of a user whose password is a secret, and only if the server's certificate is trusted.
async fn a_mail_is_encrypted_and_its_server_is_trusted(place: Place) {
    let site = Site::new(place);
    let servers = [Encryption::StartTls, Encryption::Tls].map(|it| MailServer::start(it, 0));
    let stranger = MailServer::start(Encryption::Tls, 0);
    let trusted = site.folder().join("trusted.pem");
    let certificates = servers.iter().map(|server| server.certificate.as_str());
    fs::write(&trusted, certificates.collect::<String>()).expect("certificates");
    let password = site.folder().join("password");
    fs::write(&password, MAIL_PASSWORD).expect("a password");
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("permissions");
    let channel = |name: &str, scheme: &str, port: u16, user: &str| {
        format!(
            "[channels.{name}]\ntemplate = 'email'\nurl = '{scheme}://localhost:{port}'\nprivate = true\nfrom = 'campanile@example.com'\n\
             to = ['ops@example.com']\nuser = '{user}'\npassword_secret = 'password'\n"
        )
    };
    let [starttls, tls] = &servers;
    let text = [
        channel("starttls", "smtp", starttls.port, MAIL_USER),
        channel("tls", "smtps", tls.port, MAIL_USER),
        channel("stranger", "smtps", stranger.port, MAIL_USER),
        channel("wrong", "smtps", tls.port, "somebody"),
        format!("[secrets.password]\nfile = '{}'\n", password.display()),
    ];
    site.configure(&text.concat());
    let mut command = site.command(["serve"]);
    let mut host = HostProcess::spawn(command.env("SSL_CERT_FILE", &trusted));
    host.wait_for_line("serving");
    for channel in ["starttls", "tls", "stranger", "wrong"] {
        site.ok(["alert", "test", channel]);
    }
    let ended = |channel: &str, wanted: &str| {
        eventually(|| {
            let rows = list(site.json(["alert", "deliveries", "--channel", channel]));
            let error = text_of(&rows[0]["error"]);
            match rows[0]["attempts"] != 0
                && (rows[0]["status"] == wanted)
                && (wanted == "delivered" || !error.is_empty())
            {
                true => Ok(error),
                false => Err(format!("{rows:#?}")),
            }
        })
    };
    for (channel, server) in [("starttls", starttls), ("tls", tls)] {
        ended(channel, "delivered");
        let mails = server.mails();
        assert_eq!(mails.len(), 1, "{mails:?}");
        assert!(mails[0].is_encrypted);
        assert_eq!(mails[0].user.as_deref(), Some(MAIL_USER));
        assert_eq!(mails[0].to, ["ops@example.com"]);
    }
    let error = ended("stranger", "pending");
    assert!(error.contains("ertificate"), "{error}");
    let error = ended("wrong", "pending");
    assert!(error.contains("535"), "{error}");
    assert!(!error.contains(MAIL_PASSWORD), "{error}");
    stop(&mut host);
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn mistakes_in_alerts_and_channels_are_refused() {
    let folder = TempDir::with_prefix("campanile-test-").expect("a folder");
    fs::create_dir(folder.path().join("plugins")).expect("a folder");
    let check = |text: &str, command: &str| {
        fs::write(folder.path().join("campanile.toml"), text).expect("a configuration");
        run(folder.path(), command.split(' '))
    };
    let ops = "[channels.ops]\nurl = 'https://hooks.example.com/a'\n";
    let signed = format!("{ops}secret = 'a'\n[secrets.a]\nfile = 'a'\n");
    write_secret(&folder.path().join("readable"), 0o640);
    let readable = signed.replace("file = 'a'", "file = 'readable'");
    for (text, expected) in [
        ("[[alerts]]\nkind = 'fialed'\n", "did you mean `failed`?"),
        ("[[alerts]]\nkind = 'record_full'\n", "can never fire"),
        (
            "[[alerts]]\nkind = 'failed'\nchannels = ['ops']\n",
            "no table [channels.ops]",
        ),
        (
            "[channels.ops]\nurl = 'http://192.168.1.1/'\n",
            "`private = true`",
        ),
        (
            "[channels.ops]\ntemplate = 'email'\nurl = 'https://a.example'\n",
            "no address of a mail server",
        ),
        (
            "[channels.ops]\ntemplate = 'email'\nurl = 'smtp://127.0.0.1'\n",
            "`private = true`",
        ),
        (
            "[[pings]]\nschedule = 'a*'\nurl = 'https://hc-ping.com/a'\n",
            "write `{schedule}`",
        ),
        (&signed, "create it, or correct the path"),
        (&readable, "chmod 600"),
    ] {
        for command in ["config check", "serve"] {
            check(text, command).assert_refused(&[expected]);
        }
    }
    // A host may start before the program that has its secret.
    let failing = format!(
        "{ops}headers = {{ authorization = 'Bearer {{secret:a}}' }}\n[secrets.a]\ncommand = ['false']\n"
    );
    check(&failing, "config check")
        .assert_refused(&["the secret `a` cannot be had from its command false"]);
    write_secret(&folder.path().join("readable"), 0o600);
    let right = check(&readable, "config check");
    assert_eq!(right.code, 0, "{right:?}");
}

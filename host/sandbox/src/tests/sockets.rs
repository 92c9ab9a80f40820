//! Sockets connect only to granted names and addresses.

use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, UdpSocket};

use super::guests::*;
use crate::*;

const GUESTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/guests/guests.wasm"
);

/// Start a server that answers each line with the line in capitals.
async fn tcp_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let answer = line.to_uppercase();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    port
}

async fn udp_server() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut bytes = [0; 1000];
        loop {
            let (count, from) = socket.recv_from(&mut bytes).await.unwrap();
            bytes[..count].make_ascii_uppercase();
            socket.send_to(&bytes[..count], from).await.unwrap();
        }
    });
    port
}

fn grant(protocol: Protocol, host: &str, port: u16) -> SocketGrant {
    SocketGrant {
        protocol,
        host: host.to_owned(),
        port,
        private: false,
    }
}

struct Guests {
    sandbox: Sandbox,
    artifact: Arc<Artifact>,
}

impl Guests {
    fn load() -> Guests {
        let sandbox = sandbox();
        let artifact = sandbox.load(&std::fs::read(GUESTS).unwrap()).unwrap();
        Guests {
            sandbox,
            artifact: Arc::new(artifact),
        }
    }

    async fn run(&self, task: &str, address: &str, sockets: Vec<SocketGrant>) -> Report {
        let grants = Grants {
            sockets,
            ..Grants::default()
        };
        let call = Call {
            task: task.to_owned(),
            context: json!({"address": address, "line": "ding"}).to_string(),
            ..granted(grants)
        };
        self.sandbox.run(&self.artifact, call).await
    }
}

fn answered(report: &Report) {
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    let output = report.output.as_ref().unwrap().value();
    assert_eq!(output["line"], "DING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_destination_is_reached_by_name_and_by_address() {
    let guests = Guests::load();
    let port = tcp_server().await;
    let by_name = format!("localhost:{port}");
    let named = grant(Protocol::Tcp, "localhost", port);
    answered(&guests.run("tcp_echo", &by_name, vec![named.clone()]).await);
    let by_address = format!("127.0.0.1:{port}");
    let address = grant(Protocol::Tcp, "127.0.0.1", port);
    let report = guests
        .run("tcp_echo", &by_address, vec![address.clone()])
        .await;
    answered(&report);
    let mut shares = report.usage.shares.iter();
    let files = shares.find(|share| share.resource == Resource::OpenFiles);
    assert_eq!(files.map(|share| share.used), Some(1), "a socket is one");
    // A grant of a name does not grant its address before a lookup of the name.
    let report = guests.run("tcp_echo", &by_address, vec![named]).await;
    let failed = failure(&report, Outcome::Denied);
    let expected = format!(
        "tcp to 127.0.0.1:{port} is not granted; to allow it, add `grants.sockets = [{{ host = \"127.0.0.1\", port = {port} }}]` at the top"
    );
    assert!(failed.message.contains(&expected), "{}", failed.message);
    let port = udp_server().await;
    let datagrams = vec![grant(Protocol::Udp, "localhost", port)];
    let to = format!("localhost:{port}");
    answered(&guests.run("udp_echo", &to, datagrams).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_port_protocol_or_name_is_refused_with_the_line_to_add() {
    let guests = Guests::load();
    let port = tcp_server().await;
    let to = format!("localhost:{port}");
    let line = format!("sockets = [{{ host = \"localhost\", port = {port} }}]");
    for (sockets, expected) in [
        (
            vec![],
            "grants.sockets = [{ host = \"localhost\", port = 0 }]`, with its port in place of 0,",
        ),
        (vec![grant(Protocol::Tcp, "localhost", 1)], line.as_str()),
        // A pattern grants only public addresses.
        (vec![grant(Protocol::Tcp, "*", port)], line.as_str()),
        (
            vec![grant(Protocol::Udp, "localhost", port)],
            "a tcp socket is not granted",
        ),
        (
            vec![grant(Protocol::Tcp, "other.test", port)],
            "looking up localhost is not granted",
        ),
    ] {
        let report = guests.run("tcp_echo", &to, sockets.clone()).await;
        let failed = failure(&report, Outcome::Denied);
        assert!(
            failed.message.contains(expected),
            "{sockets:?}: {}",
            failed.message
        );
    }
    let report = guests
        .run("udp_echo", &to, vec![grant(Protocol::Udp, "localhost", 1)])
        .await;
    let failed = failure(&report, Outcome::Denied);
    let expected = format!("host = \"localhost\", port = {port}, protocol = \"udp\"");
    assert!(failed.message.contains(&expected), "{}", failed.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_leads_to_private_addresses_only_when_its_grant_says_so() {
    let guests = Guests::load();
    let port = tcp_server().await;
    // Every resolver reads 127.1 as 127.0.0.1. For a grant it is a name.
    let to = format!("127.1:{port}");
    let public = grant(Protocol::Tcp, "127.1", port);
    let report = guests.run("tcp_echo", &to, vec![public.clone()]).await;
    let failed = failure(&report, Outcome::Denied);
    let expected = format!(
        "tcp to 127.1 port {port} leads to 127.0.0.1, which is not a public address (loopback); to allow it, add \
         `grants.sockets = [{{ host = \"127.1\", port = {port}, private = true }}]` at the top of the package's sidecar file"
    );
    assert!(failed.message.contains(&expected), "{}", failed.message);
    let private = SocketGrant {
        private: true,
        ..public
    };
    answered(&guests.run("tcp_echo", &to, vec![private]).await);
    // Also a private name does not lead to the service that has the machine's credentials: 169.254.169.254.
    let metadata = SocketGrant {
        private: true,
        ..grant(Protocol::Tcp, "169.254.43518", 80)
    };
    let report = guests
        .run("tcp_echo", "169.254.43518:80", vec![metadata])
        .await;
    let failed = failure(&report, Outcome::Denied);
    let expected = "leads to 169.254.169.254, which is not a public address (metadata service), and no name reaches such a service: \
                    let the task use the address; to allow it, add `grants.sockets = [{ host = \"169.254.169.254\", port = 80 }]`";
    assert!(failed.message.contains(expected), "{}", failed.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn listening_is_denied() {
    let guests = Guests::load();
    let sockets = vec![grant(Protocol::Tcp, "127.0.0.1", 80)];
    for address in ["127.0.0.1:0", "0.0.0.0:0"] {
        let report = guests.run("tcp_listen", address, sockets.clone()).await;
        assert_eq!(report.outcome, Outcome::Denied, "{report:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scripted_replies_allow_no_sockets() {
    struct Nothing;
    impl Replies for Nothing {
        fn reply(&self, _: HttpRequest) -> HttpReply {
            HttpReply::Refused
        }
    }
    let guests = Guests::load();
    let port = tcp_server().await;
    let grants = Grants {
        sockets: vec![grant(Protocol::Tcp, "127.0.0.1", port)],
        ..Grants::default()
    };
    let mut call = granted(grants);
    call.task = "tcp_echo".to_owned();
    call.context = json!({"address": format!("127.0.0.1:{port}")}).to_string();
    call.world.replies = Some(Arc::new(Nothing));
    let report = guests.sandbox.run(&guests.artifact, call).await;
    let failed = failure(&report, Outcome::Denied);
    let expected = "a script answers in place of the network";
    assert!(failed.message.contains(expected), "{}", failed.message);
}

//! A pooler in transaction mode in front of the server, as PgBouncer can be: `serve` and `doctor` refuse it.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use campanile_store::{DatabaseUrl, Db, DbError};
use campanile_tests::Cluster;

/// Sessions shared by the pooler's clients.
const SESSIONS: usize = 2;
/// Code sent by a client asking for TLS.
const TLS_REQUEST: u32 = 80_877_103;

/// Sessions not in use at the moment, and the total number.
#[derive(Default)]
struct Pool {
    idle: Mutex<(Vec<TcpStream>, usize)>,
    returned: Condvar,
}

impl Pool {
    fn take(&self) -> TcpStream {
        let mut idle = self.idle.lock().unwrap();
        loop {
            if let Some(session) = idle.0.pop() {
                return session;
            }
            idle = self.returned.wait(idle).unwrap();
        }
    }

    fn give_back(&self, session: TcpStream) {
        self.idle.lock().unwrap().0.push(session);
        self.returned.notify_one();
    }
}

/// Starts a pooler in front of a server, returning the address through it. It ends with the process.
fn pooler(cluster: &Cluster) -> DatabaseUrl {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = cluster.port();
    let pool = Arc::new(Pool::default());
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let pool = Arc::clone(&pool);
            // A client going away ends its thread.
            std::thread::spawn(move || serve(client, server, &pool));
        }
    });
    let direct = format!(":{server}/");
    let url = cluster.url().expose();
    url.replace(&direct, &format!(":{port}/")).parse().unwrap()
}

fn serve(mut client: TcpStream, server: u16, pool: &Pool) -> io::Result<()> {
    let start = read_start(&mut client)?;
    let is_new = {
        let mut idle = pool.idle.lock().unwrap();
        idle.1 += 1;
        idle.1 <= SESSIONS
    };
    if is_new {
        // The first clients log in by themselves.
        let mut session = TcpStream::connect(("127.0.0.1", server))?;
        session.write_all(&start)?;
        loop {
            let (kind, bytes) = read_message(&mut session)?;
            client.write_all(&bytes)?;
            let code = bytes.get(5..9).map(|code| code.try_into().unwrap());
            let code = u32::from_be_bytes(code.unwrap_or_default());
            match kind {
                b'Z' => break,
                // The server asks for a password, or for the next step of one.
                b'R' if code != 0 && code != 12 => {
                    let (_, answer) = read_message(&mut client)?;
                    session.write_all(&answer)?;
                }
                b'E' => return Ok(()),
                _ => {}
            }
        }
        pool.give_back(session);
    } else {
        client.write_all(b"R\0\0\0\x08\0\0\0\0")?;
        client.write_all(b"S\0\0\0\x19client_encoding\0UTF8\0")?;
        client.write_all(b"Z\0\0\0\x05I")?;
    }
    while let Ok((kind, mut bytes)) = read_message(&mut client) {
        if kind == b'X' {
            return Ok(());
        }
        let mut session = pool.take();
        let mut kind = kind;
        loop {
            session.write_all(&bytes)?;
            if matches!(kind, b'Q' | b'S') && forward_answers(&mut session, &mut client)? == b'I' {
                break;
            }
            (kind, bytes) = read_message(&mut client)?;
        }
        pool.give_back(session);
    }
    Ok(())
}

/// Forwards the server's replies, returning its transaction's state.
fn forward_answers(session: &mut TcpStream, client: &mut TcpStream) -> io::Result<u8> {
    loop {
        let (kind, bytes) = read_message(session)?;
        client.write_all(&bytes)?;
        if kind == b'Z' {
            return Ok(bytes[5]);
        }
    }
}

/// Reads a client's first message, which has no kind. TLS isn't offered.
fn read_start(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    loop {
        let mut bytes = vec![0; 4];
        client.read_exact(&mut bytes)?;
        let length = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        bytes.resize(length as usize, 0);
        client.read_exact(&mut bytes[4..])?;
        if bytes[4..8] != TLS_REQUEST.to_be_bytes() {
            return Ok(bytes);
        }
        client.write_all(b"N")?;
    }
}

fn read_message(from: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut bytes = vec![0; 5];
    from.read_exact(&mut bytes)?;
    let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap());
    bytes.resize(1 + length as usize, 0);
    from.read_exact(&mut bytes[5..])?;
    Ok((bytes[0], bytes))
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_by_serve_and_seen_by_doctor() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    Db::open_and_migrate(cluster.url()).await.unwrap();
    let url = pooler(&cluster);
    // What `doctor` does.
    let db = Db::open(&url).await.unwrap();
    let seen = db.refuse_unservable().await;
    // What `serve` does.
    let refused = Db::open_and_migrate(&url).await.map(drop);
    for found in [seen, refused] {
        let Err(error @ DbError::Refused(_)) = found else {
            panic!("{found:?}");
        };
        let said = error.to_string();
        assert!(said.contains("set `pool_mode = session`"), "{said}");
    }
    let direct = Db::open(cluster.url()).await.unwrap();
    direct.refuse_unservable().await.unwrap();
}

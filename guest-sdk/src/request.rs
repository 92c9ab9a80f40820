//! What a package cannot work without.

use serde::Serialize;

/// Something that a package cannot work without. It grants nothing: only the operator does.
///
/// ```
/// use campanile_sdk::{Package, Request};
///
/// Package::new("backup", "0.1.0")
///     .request(Request::read_directory("/source").because("what is backed up"))
///     .request(Request::write_directory("/snapshots").because("where the snapshots go"))
///     .request(Request::http("https", "api.example.com"))
///     .request(Request::env("REGION"))
///     .request(Request::config("token"))
///     .request(Request::write_bucket("state").because("how far the source was read"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Request(Wanted);

#[derive(Clone, Debug, PartialEq)]
enum Wanted {
    Directory(DirectoryRequest),
    Env(String),
    Http(HttpRequest),
    Config(String),
    Bucket(BucketRequest),
    Socket(SocketRequest),
}

impl Request {
    /// To read a directory, which the task sees at the absolute path `guest`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::read_directory("/source"));
    /// assert_eq!(package.manifest()["requests"]["directories"][0]["access"], "read");
    /// ```
    pub fn read_directory(guest: impl Into<String>) -> Request {
        Request::directory(guest.into(), Access::Read)
    }

    /// To read and write a directory, which the task sees at the absolute path `guest`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::write_directory("/snapshots"));
    /// assert_eq!(package.manifest()["requests"]["directories"][0]["access"], "write");
    /// ```
    pub fn write_directory(guest: impl Into<String>) -> Request {
        Request::directory(guest.into(), Access::Write)
    }

    fn directory(guest: String, access: Access) -> Request {
        Request(Wanted::Directory(DirectoryRequest {
            guest,
            access,
            reason: None,
        }))
    }

    /// To read an environment variable.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::env("REGION"));
    /// assert_eq!(package.manifest()["requests"]["env"][0], "REGION");
    /// ```
    pub fn env(name: impl Into<String>) -> Request {
        Request(Wanted::Env(name.into()))
    }

    /// To send requests to `host`; `scheme` is `http` or `https`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::http("https", "api.example.com"));
    /// assert_eq!(package.manifest()["requests"]["http"][0]["host"], "api.example.com");
    /// ```
    pub fn http(scheme: impl Into<String>, host: impl Into<String>) -> Request {
        Request(Wanted::Http(HttpRequest {
            scheme: scheme.into(),
            host: host.into(),
            reason: None,
        }))
    }

    /// To connect to a port of `host` with TCP.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::tcp("db.example.com", 5432));
    /// assert_eq!(package.manifest()["requests"]["sockets"][0]["port"], 5432);
    /// ```
    pub fn tcp(host: impl Into<String>, port: u16) -> Request {
        Request::socket("tcp", host.into(), port)
    }

    /// To send datagrams to a port of `host`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::udp("metrics.example.com", 8125));
    /// assert_eq!(package.manifest()["requests"]["sockets"][0]["protocol"], "udp");
    /// ```
    pub fn udp(host: impl Into<String>, port: u16) -> Request {
        Request::socket("udp", host.into(), port)
    }

    fn socket(protocol: &'static str, host: String, port: u16) -> Request {
        Request(Wanted::Socket(SocketRequest {
            protocol,
            host,
            port,
            reason: None,
        }))
    }

    /// To read a key with [`Run::config`](crate::Run::config): a value that the operator sets, or a secret of this name.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::config("token"));
    /// assert_eq!(package.manifest()["requests"]["config"][0], "token");
    /// ```
    pub fn config(key: impl Into<String>) -> Request {
        Request(Wanted::Config(key.into()))
    }

    /// To read a bucket with [`Run::bucket`](crate::Run::bucket).
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::read_bucket("facts"));
    /// assert_eq!(package.manifest()["requests"]["keyvalue"][0]["access"], "read");
    /// ```
    pub fn read_bucket(name: impl Into<String>) -> Request {
        Request::bucket(name.into(), Access::Read)
    }

    /// To read and write a bucket with [`Run::bucket`](crate::Run::bucket).
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::write_bucket("state"));
    /// assert_eq!(package.manifest()["requests"]["keyvalue"][0]["access"], "write");
    /// ```
    pub fn write_bucket(name: impl Into<String>) -> Request {
        Request::bucket(name.into(), Access::Write)
    }

    fn bucket(bucket: String, access: Access) -> Request {
        Request(Wanted::Bucket(BucketRequest {
            bucket,
            access,
            reason: None,
        }))
    }

    /// Why, in a few words for the operator. Kept for directories, hosts and buckets; a variable's or key's name speaks for itself.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let request = Request::read_directory("/source").because("what is backed up");
    /// let package = Package::new("backup", "0.1.0").request(request);
    /// assert_eq!(package.manifest()["requests"]["directories"][0]["reason"], "what is backed up");
    /// ```
    pub fn because(mut self, reason: impl Into<String>) -> Request {
        match &mut self.0 {
            Wanted::Directory(directory) => directory.reason = Some(reason.into()),
            Wanted::Http(http) => http.reason = Some(reason.into()),
            Wanted::Bucket(bucket) => bucket.reason = Some(reason.into()),
            Wanted::Socket(socket) => socket.reason = Some(reason.into()),
            Wanted::Env(_) | Wanted::Config(_) => {}
        }
        self
    }
}

#[derive(Default, Serialize)]
pub(crate) struct Requests {
    directories: Vec<DirectoryRequest>,
    env: Vec<String>,
    http: Vec<HttpRequest>,
    config: Vec<String>,
    keyvalue: Vec<BucketRequest>,
    sockets: Vec<SocketRequest>,
}

impl Requests {
    pub(crate) fn add(&mut self, request: Request) {
        match request.0 {
            Wanted::Directory(directory) => self.directories.push(directory),
            Wanted::Env(name) => self.env.push(name),
            Wanted::Http(http) => self.http.push(http),
            Wanted::Config(key) => self.config.push(key),
            Wanted::Bucket(bucket) => self.keyvalue.push(bucket),
            Wanted::Socket(socket) => self.sockets.push(socket),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct DirectoryRequest {
    guest: String,
    access: Access,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Access {
    Read,
    Write,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct HttpRequest {
    scheme: String,
    host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct BucketRequest {
    bucket: String,
    access: Access,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct SocketRequest {
    protocol: &'static str,
    host: String,
    port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

//! Grants that a package requests.

use serde::Serialize;

/// A grant that a package needs.
///
/// A request grants nothing: only the operator grants. The host denies a launch whose package requests something that
/// is not granted.
///
/// ```
/// use campanile_sdk::{Package, Request};
///
/// Package::new("backup", "0.1.0")
///     .request(Request::read_directory("/source").because("the files to back up"))
///     .request(Request::write_directory("/snapshots").because("the place of the snapshots"))
///     .request(Request::http("https", "api.example.com"))
///     .request(Request::env("REGION"))
///     .request(Request::config("token"))
///     .request(Request::write_bucket("state").because("the position in the source"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Request(Kind);

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Directory(DirectoryRequest),
    Env(String),
    Http(HttpRequest),
    Config(String),
    Bucket(BucketRequest),
    Socket(SocketRequest),
}

impl Request {
    /// Request to read a directory, which the task sees at the absolute path `guest`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::read_directory("/source"));
    /// assert_eq!(package.manifest()["requests"]["directories"][0]["access"], "read");
    /// ```
    pub fn read_directory(guest: impl Into<String>) -> Request {
        Request::directory(guest.into(), Access::Read)
    }

    /// Request to read and write a directory, which the task sees at the absolute path `guest`.
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
        Request(Kind::Directory(DirectoryRequest {
            guest,
            access,
            reason: None,
        }))
    }

    /// Request to read an environment variable.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::env("REGION"));
    /// assert_eq!(package.manifest()["requests"]["env"][0], "REGION");
    /// ```
    pub fn env(name: impl Into<String>) -> Request {
        Request(Kind::Env(name.into()))
    }

    /// Request to send HTTP requests to `host`. `scheme` is `http` or `https`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::http("https", "api.example.com"));
    /// assert_eq!(package.manifest()["requests"]["http"][0]["host"], "api.example.com");
    /// ```
    pub fn http(scheme: impl Into<String>, host: impl Into<String>) -> Request {
        Request(Kind::Http(HttpRequest {
            scheme: scheme.into(),
            host: host.into(),
            private: false,
            reason: None,
        }))
    }

    /// Request to open TCP connections to a port of `host`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::tcp("db.example.com", 5432));
    /// assert_eq!(package.manifest()["requests"]["sockets"][0]["port"], 5432);
    /// ```
    pub fn tcp(host: impl Into<String>, port: u16) -> Request {
        Request::socket("tcp", host.into(), port)
    }

    /// Request to send UDP datagrams to a port of `host`.
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
        Request(Kind::Socket(SocketRequest {
            protocol,
            host,
            port,
            private: false,
            reason: None,
        }))
    }

    /// Request to read a key with [`Run::config`](crate::Run::config): a value that the operator sets, or a secret of
    /// this name.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::config("token"));
    /// assert_eq!(package.manifest()["requests"]["config"][0], "token");
    /// ```
    pub fn config(key: impl Into<String>) -> Request {
        Request(Kind::Config(key.into()))
    }

    /// Request to read a bucket with [`Run::bucket`](crate::Run::bucket).
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::read_bucket("facts"));
    /// assert_eq!(package.manifest()["requests"]["keyvalue"][0]["access"], "read");
    /// ```
    pub fn read_bucket(name: impl Into<String>) -> Request {
        Request::bucket(name.into(), Access::Read)
    }

    /// Request to read and write a bucket with [`Run::bucket`](crate::Run::bucket).
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
        Request(Kind::Bucket(BucketRequest {
            bucket,
            access,
            reason: None,
        }))
    }

    /// Request that the host of an HTTP request or of a socket may be in a private network.
    ///
    /// Without it, the host's name leads to public addresses only. The method ignores other requests.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("backup", "0.1.0").request(Request::tcp("db.internal", 5432).private());
    /// assert_eq!(package.manifest()["requests"]["sockets"][0]["private"], true);
    /// ```
    pub fn private(mut self) -> Request {
        match &mut self.0 {
            Kind::Http(http) => http.private = true,
            Kind::Socket(socket) => socket.private = true,
            Kind::Directory(_) | Kind::Env(_) | Kind::Config(_) | Kind::Bucket(_) => {}
        }
        self
    }

    /// Give the operator a reason for the request, in a few words.
    ///
    /// Requests for environment variables and config keys have no reason in the manifest: the method ignores it.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let request = Request::read_directory("/source").because("the files to back up");
    /// let package = Package::new("backup", "0.1.0").request(request);
    /// assert_eq!(package.manifest()["requests"]["directories"][0]["reason"], "the files to back up");
    /// ```
    pub fn because(mut self, reason: impl Into<String>) -> Request {
        match &mut self.0 {
            Kind::Directory(directory) => directory.reason = Some(reason.into()),
            Kind::Http(http) => http.reason = Some(reason.into()),
            Kind::Bucket(bucket) => bucket.reason = Some(reason.into()),
            Kind::Socket(socket) => socket.reason = Some(reason.into()),
            Kind::Env(_) | Kind::Config(_) => {}
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
            Kind::Directory(directory) => self.directories.push(directory),
            Kind::Env(name) => self.env.push(name),
            Kind::Http(http) => self.http.push(http),
            Kind::Config(key) => self.config.push(key),
            Kind::Bucket(bucket) => self.keyvalue.push(bucket),
            Kind::Socket(socket) => self.sockets.push(socket),
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
    #[serde(skip_serializing_if = "is_false")]
    private: bool,
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
    #[serde(skip_serializing_if = "is_false")]
    private: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !*value
}

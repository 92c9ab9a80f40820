// A Postgres server of its own for `installation.js`, like the one that the Rust tests start.

import { execFileSync, spawn } from "node:child_process";
import { chownSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** How long a server may take to start. */
const START_MAX_MS = 30_000;
const DATABASE = `campanile_installation_${process.pid}`;

/** Returns the folder with `initdb` and `postgres`: one of `PATH`, else the newest version in Debian's folder. */
function programs() {
  const debian = "/usr/lib/postgresql";
  const versions = existsSync(debian) ? readdirSync(debian).sort((a, b) => b - a) : [];
  const folders = [...(process.env.PATH ?? "").split(":"), ...versions.map((version) => join(debian, version, "bin"))];
  return folders.find((folder) => ["initdb", "postgres"].every((name) => existsSync(join(folder, name))));
}

/** Returns the ids of the user for the server: Postgres doesn't run as root. Null if there's no such user. */
function unprivileged() {
  if (process.getuid() !== 0) return {};
  for (const line of readFileSync("/etc/passwd", "utf8").split("\n")) {
    const [name, , uid, gid] = line.split(":");
    if (name === "postgres" || name === "nobody") return { uid: Number(uid), gid: Number(gid) };
  }
  return null;
}

/** Returns a free port of 127.0.0.1. */
function freePort() {
  return new Promise((done, failed) => {
    const server = createServer().on("error", failed);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

/** Makes a database on the server of the variable TEST_POSTGRES_URL. */
function onGivenServer(given) {
  const sql = (text) => execFileSync("psql", [given, "-qc", text]);
  sql(`CREATE DATABASE ${DATABASE}`);
  const url = new URL(given);
  url.pathname = `/${DATABASE}`;
  return { url: url.href, stop: async () => sql(`DROP DATABASE ${DATABASE} WITH (FORCE)`) };
}

/** Starts a server in a temporary folder. Returns the address of a database and a function that stops it, or null without Postgres. */
export async function startPostgres() {
  if (process.env.TEST_POSTGRES_URL) return onGivenServer(process.env.TEST_POSTGRES_URL);
  const found = programs();
  const user = unprivileged();
  if (!found || !user) return null;
  // It's not in a folder of this script's user, which the server's user can't enter.
  const folder = mkdtempSync(join(tmpdir(), "campanile-postgres-"));
  if (user.uid !== undefined) chownSync(folder, user.uid, user.gid);
  const data = join(folder, "data");
  const options = { ...user, cwd: folder, stdio: ["ignore", "ignore", "pipe"] };
  const port = await freePort();
  const settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "full_page_writes=off"];
  let server;
  let ended;
  let log = "";
  const stop = async () => {
    server?.kill("SIGINT");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const created = ["-U", "campanile", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"];
    execFileSync(join(found, "initdb"), ["-D", data, ...created], options);
    server = spawn(join(found, "postgres"), ["-D", data, "-p", port, ...settings.flatMap((one) => ["-c", one])], options);
    ended = new Promise((done) => server.on("close", done));
    await new Promise((done, failed) => {
      const late = setTimeout(() => failed(new Error(`Postgres doesn't start: ${log}`)), START_MAX_MS);
      server.on("close", () => failed(new Error(`Postgres has ended: ${log}`)));
      server.stderr.on("data", (text) => {
        log = (log + text).slice(-4_000);
        if (!log.includes("ready to accept connections")) return;
        clearTimeout(late);
        done();
      });
    });
  } catch (error) {
    await stop();
    throw error;
  }
  return { url: `postgres://campanile@127.0.0.1:${port}/postgres`, stop };
}

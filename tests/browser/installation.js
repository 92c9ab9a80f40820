// Makes an installation as people have it, with much that's wrong, and takes a picture of every page.
//
// usage: node installation.js CAMPANILE FOLDER
//
// Starts three hosts on a Postgres of its own (or in a database of its own on the server of TEST_POSTGRES_URL), or one host on
// SQLite without Postgres. It has 26 schedules in five packages: three that fail for one cause since a version was approved, one
// that has never succeeded, a flaky one, one that skips slots, one that looks stuck, one paused with a note, a version to approve,
// a backfill with failures, a drained host, and a channel that gets no alert. Waits until all of that is on record, which takes
// about three minutes, then writes `PAGE-WIDTH-THEME.png` into FOLDER for each page, three widths and both themes, and prints how
// high and how large each page is. Exits with 1 if axe finds something, a page is wider than its window, or a page is higher than it
// may be. Needs `npm ci`, and Chromium with its driver.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { appendFileSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { faultsOf, host, LOAD_MAX_MS, start } from "./host.js";
import { startPostgres } from "./postgres.js";

const WIDTHS = [1440, 1024, 390];
const THEMES = ["light", "dark"];
/** The greatest height of a page at a width, in pixels; `broken` is where the last thing that's broken ends. */
const HEIGHTS_MAX = { now: { 1440: 1_500, 390: 2_600, broken: 800 }, schedules: { 1440: 1_400, 390: 2_600 } };
/** How long the installation may take until there's enough to see, and how often it's asked. */
const STATE_MAX_MS = 600_000;
const ASKED_MS = 500;
/** A run looks stuck once it has lasted for a minute, and three times as long as usual. */
const STUCK_MS = 65_000;
/** How many launches make a full timeline. */
const LAUNCHES_LEAST = 250;
/** The most pictures that are named for a fault. */
const NAMED_MAX = 6;
const HOSTS = ["zurich-1", "zurich-2", "zurich-3"];

const [, , program, folder] = process.argv;
assert(program && folder, "usage: node installation.js CAMPANILE FOLDER");
const campanile = resolve(program);
const pictures = resolve(folder);
const root = fileURLToPath(new URL("../..", import.meta.url));
const work = mkdtempSync(join(tmpdir(), "campanile-installation-"));
/** What to stop at the end, the newest first. */
const stops = [() => rmSync(work, { recursive: true, force: true })];
/** What's wrong, and on which pictures. */
const faults = new Map();
const say = (text) => console.log(`${new Date().toISOString().slice(11, 19)} ${text}`);

/** Stops all that was started here, by its own handle. */
async function stop() {
  while (stops.length > 0) {
    try {
      await stops.pop()();
    } catch (error) {
      console.error(error);
    }
  }
}
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => stop().finally(() => process.exit(1)));

function fault(what, where) {
  faults.set(what, [...(faults.get(what) ?? []), where]);
}

// ---- What's checked and told

/** Starts a server that the checks ask, which fails at times, and two channels, one of which fails always. Returns its port. */
async function startServer() {
  const counts = {};
  const server = createServer((request, answer) => {
    const { pathname } = new URL(request.url, "http://server");
    const count = (counts[pathname] = (counts[pathname] ?? 0) + 1);
    const fails = {
      "/partner": count % 5 === 0 || count % 5 === 2,
      // Each launch succeeds with its second call.
      "/docs": count % 2 === 1,
      "/links": count % 3 === 0,
      "/ops": true,
    };
    answer.writeHead(fails[pathname] ? 503 : 200).end(fails[pathname] ? "upstream timed out" : "ok");
    request.resume();
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  stops.push(() => new Promise((done) => { server.closeAllConnections(); server.close(done); }));
  return server.address().port;
}

// ---- Hosts

/** Where the file of a package comes from: the guests have a task for each behaviour. */
const FILES = {
  billing: "plugins/hello.wasm",
  infra: "tests/guests/guests.wasm",
  "web-checks": "plugins/http-check.wasm",
  reports: "plugins/etl.wasm",
  "data-pipeline": "tests/guests/guests.wasm",
};
/** A version that asks for directories, which no sidecar grants. */
const ASKING = "plugins/backup.wasm";

/** Puts the file of a package in place, whole. */
function put(name, file) {
  const [temporary, final] = [`.${name}.tmp`, `${name}.wasm`].map((one) => join(work, "plugins", one));
  copyFileSync(join(root, file), temporary);
  renameSync(temporary, final);
}

/** Writes the plugins folder: no package has schedules of its own, and the checks may ask the server. */
function putPackages(port) {
  const sidecars = {
    "web-checks": `[[grants.http]]\nscheme = "http"\nhost = "127.0.0.1"\nport = ${port}\n`,
    "data-pipeline": '[limits]\ntimeout = "30m"\n',
  };
  mkdirSync(join(work, "plugins"));
  for (const [name, file] of Object.entries(FILES)) {
    writeFileSync(join(work, "plugins", `${name}.toml`), `schedules = []\n${sidecars[name] ?? ""}`);
    put(name, file);
  }
}

const configuration = (port) => `
[host]
runs_max = 24
drain = "1s"
[server]
upload = true
[policy]
approval_key = "${join(work, "approval.key")}"
[sandbox]
cache_dir = "${join(work, "cache")}"
[[alerts]]
kind = "failed"
after = 3
severity = "critical"
channels = ["ops", "desk"]
[[alerts]]
name = "stuck"
kind = "too_long"
than = "45s"
channels = ["desk"]
[channels.ops]
url = "http://127.0.0.1:${port}/ops"
private = true
group_wait = "1s"
[channels.desk]
url = "http://127.0.0.1:${port}/desk"
private = true
group_wait = "1s"
`;

/** Runs the program to its end. */
async function run(...args) {
  const child = spawn(campanile, args, { cwd: work, stdio: ["ignore", "ignore", "pipe"] });
  let text = "";
  child.stderr.on("data", (part) => { text += part; });
  const code = await new Promise((done) => child.on("close", done));
  assert.equal(code, 0, `campanile ${args.join(" ")}: ${text}`);
}

/** Starts a host in a folder of its own. Returns the address of its API, and its token. */
async function startHost(name, database, port) {
  const own = join(work, name);
  mkdirSync(own);
  writeFileSync(join(own, "campanile.toml"), configuration(port));
  const args = ["serve", "--name", name, "--plugins", join(work, "plugins"), "--listen", "127.0.0.1:0", "--database", database];
  const child = spawn(campanile, args, { cwd: own, stdio: ["ignore", "ignore", "pipe"] });
  const ended = new Promise((done) => child.on("close", done));
  stops.push(async () => {
    child.kill("SIGTERM");
    await ended;
  });
  let log = "";
  let found = () => {};
  const kept = join(pictures, `${name}.log`);
  writeFileSync(kept, "");
  const url = new Promise((done, failed) => {
    found = () => {
      const [, address] = log.match(/the API answers at (http:\/\/[^/]*)\/api\/v1/) ?? [];
      if (address && log.includes(" serving ")) done(address);
    };
    child.on("close", () => failed(new Error(`${name} has ended: ${log}`)));
    setTimeout(() => failed(new Error(`${name} doesn't serve: ${log}`)), LOAD_MAX_MS).unref();
  });
  child.stderr.on("data", (part) => {
    log = (log + part).slice(-100_000);
    appendFileSync(kept, part);
    found();
  });
  const base = await url;
  const file = database.startsWith("sqlite:") ? `${database.slice("sqlite:".length)}.token` : join(own, "campanile.token");
  return { base, token: readFileSync(file, "utf8").trim() };
}

// ---- What's on record

/** The schedules of each package: a name, a rule, a task and a context. A rule with spaces is one of cron. */
const schedules = (port) => {
  const url = (path) => ({ urls: [`http://127.0.0.1:${port}${path}`] });
  return {
    billing: [
      ["payment-sync", "5s"],
      ["invoice-run", "10s"],
      ["dunning-letters", "15s"],
      ["card-expiry-mails", "0 8 * * MON-FRI", null, {}, { timezone: "Europe/Berlin" }],
      ["tax-report", "0 6 1 * *"],
      ["ledger-close", "45 23 * * *", null, {}, { timezone: "Europe/Zurich" }],
    ],
    infra: [
      ["certificate-expiry", "12s", "fail_permanent", { message: "the certificate of partner.example expired 2 days ago (2026-11-27T12:00:00Z)" }],
      ["rotate-logs", "15s", "log_levels"],
      ["disk-usage", "10s", "echo", { warn_above: "85 %" }],
      ["dns-records", "20s", "sleep", { ms: 400 }],
      ["vacuum", "0 4 * * SUN", "ok"],
    ],
    "web-checks": [
      ["check-website", "5s", null, url("/website")],
      ["check-api", "6s", null, url("/api")],
      ["check-partner-api", "5s", null, url("/partner"), { policies: { max_attempts: 1 } }],
      ["check-docs", "20s", null, url("/docs")],
      ["check-status-page", "15s", null, url("/status")],
      ["nightly-links", "30 2 * * *", null, url("/links"), { policies: { max_attempts: 1 } }],
    ],
    reports: [
      ["sensor-report", "20s"],
      ["daily-revenue", "0 7 * * MON-FRI", null, {}, { timezone: "Europe/Berlin" }],
      ["weekly-kpi", "30 7 * * MON"],
      ["monthly-board", "0 9 1 * *", null, {}, { timezone: "America/New_York" }],
    ],
    "data-pipeline": [
      ["export-to-warehouse", "6s", "sleep", { ms: 8_000 }],
      ["import-partner-feed", "40 * * * *", "sleep", { ms: 600 }],
      ["sync-crm", "30s", "sleep", { ms: 900 }],
      ["dedupe-contacts", "8s", "sleep", { ms: 1_700 }],
      ["search-index", "30s", "sleep", { ms: 14_000 }],
    ],
  };
};

/** Fills the record, and waits until all of it is there. Returns the paths of single things. */
async function record(server, port, hasMany) {
  const { api, ended, eventually } = server;
  const wait = (what, found) => {
    say(`waits for ${what}`);
    return eventually(what, found, STATE_MAX_MS, ASKED_MS);
  };
  const launches = (schedule, status = "") => api("GET", `launches?limit=100&schedule=${schedule}${status && `&status=${status}`}`);
  const atLeast = async (count, schedule, status) => (await launches(schedule, status)).length >= count;
  // On a busy machine a file may still be loading.
  const state = (name, wanted) => async () => (await api("GET", "packages")).some((one) => one.name === name && one.state === wanted);
  const trigger = async (name, context) => (await api("POST", `schedules/${name}/trigger`, { context })).launch;

  for (const name of Object.keys(FILES)) await wait(`the package ${name}`, state(name, "active"));
  for (const [name, all] of Object.entries(schedules(port))) {
    for (const [schedule, expression, task, context, others] of all) {
      const kind = expression.includes(" ") ? "cron" : "every";
      await api("POST", "schedules", { name: schedule, package: name, kind, expression, task, context, ...others });
    }
  }
  const [from, to] = [60, 1].map((days) => new Date(Date.now() - days * 86_400_000).toISOString());
  const { id: backfill } = await api("POST", "backfills", { schedule: "nightly-links", from, to });
  for (let time = 0; time < 4; time++) await ended(await trigger("import-partner-feed"));
  const stuck = await trigger("import-partner-feed", { ms: 1_500_000 });
  await wait("the paused schedule", () => atLeast(1, "sync-crm", "succeeded"));
  await api("POST", "schedules/sync-crm/pause", { note: "The CRM moves to another provider until Monday (OPS-1432)" });
  if (hasMany) await api("POST", "hosts/zurich-3/drain", {});

  const billing = ["payment-sync", "invoice-run", "dunning-letters"];
  for (const name of billing) await wait(`successes of ${name}`, () => atLeast(2, name, "succeeded"));
  put("billing", ASKING);
  await wait("the new version of billing", state("billing", "pending_approval"));
  await api("POST", "packages/billing/approve", { note: "release 1.5.0", anyway: true });
  put("reports", ASKING);
  await wait("the new version of reports", state("reports", "pending_approval"));
  for (const name of billing) await wait(`failures of ${name}`, () => atLeast(3, name, "failed"));
  await wait("the schedule that never succeeded", () => atLeast(5, "certificate-expiry", "failed"));
  await wait("the flaky schedule", () => atLeast(20, "check-partner-api", "succeeded,failed"));
  await wait("the slots that are skipped", () => atLeast(6, "export-to-warehouse", "skipped"));
  await wait("the backfill", async () => (await api("GET", `backfills/${backfill}`)).status === "done");
  await wait("an alert", async () => (await api("GET", "alerts")).some((alert) => alert.status === "firing"));
  await wait("the channel that fails", async () => {
    const health = await fetch(new URL("/api/v1/health", server.base), { headers: { Authorization: `Bearer ${server.token}` } });
    return (await health.text()).includes("channel `ops`");
  });
  await wait("the run that looks stuck", async () => {
    const { status, started_at } = await api("GET", `launches/${stuck}`);
    return status === "running" && Date.now() - Date.parse(started_at) > STUCK_MS;
  });
  await wait(`${LAUNCHES_LEAST} launches`, async () => {
    const names = Object.values(schedules(port)).flatMap((all) => all.map(([name]) => name));
    let count = 0;
    for (const name of names) count += (await launches(name)).length;
    return count >= LAUNCHES_LEAST;
  });
  const first = async (schedule, status) => (await launches(schedule, status))[0].id;
  return {
    stuck,
    failed: await first("payment-sync", "failed"),
    tasks: await first("sensor-report", "succeeded"),
    flaky: await first("check-partner-api", "failed"),
    retried: await first("check-docs", "succeeded"),
    skipped: await first("export-to-warehouse", "skipped"),
    run: (await api("GET", `launches/${await first("sensor-report", "succeeded")}`)).run_id,
  };
}

/** The pages, by the name of their pictures. */
function pages(found) {
  return {
    now: "/",
    "now-2h": "/?span=2h",
    schedules: "/schedules",
    "schedules-failing": "/schedules?state=failing",
    "schedules-ungrouped": "/schedules?group=none&sort=state",
    schedule: "/schedules/payment-sync",
    "schedule-flaky": "/schedules/check-partner-api",
    "schedule-paused": "/schedules/sync-crm",
    "schedule-skips": "/schedules/export-to-warehouse",
    "schedule-edit": "/schedules/check-partner-api/edit",
    calendar: "/schedules/nightly-links/calendar",
    backfills: "/backfills",
    launches: "/launches",
    "launches-failed": "/launches?status=failed",
    "launch-failed": `/launches/${found.failed}`,
    "launch-flaky": `/launches/${found.flaky}`,
    "launch-retried": `/launches/${found.retried}`,
    "launch-skipped": `/launches/${found.skipped}`,
    "launch-stuck": `/launches/${found.stuck}`,
    "launch-tasks": `/launches/${found.tasks}`,
    run: `/runs/${found.run}`,
    plan: "/plan",
    packages: "/packages",
    package: "/packages/billing",
    "package-pending": "/packages/reports",
    "package-diff": "/packages/reports/diff",
    hosts: "/hosts",
    events: "/events",
    alerts: "/alerts",
  };
}

// ---- Pictures

/** Sets the window and the theme. */
async function show(browser, width, theme) {
  const metrics = { width, height: 900, deviceScaleFactor: 1, mobile: width < 500 };
  await browser.sendDevToolsCommand("Emulation.setDeviceMetricsOverride", metrics);
  const features = [{ name: "prefers-color-scheme", value: theme }];
  await browser.sendDevToolsCommand("Emulation.setEmulatedMedia", { features });
}

/** Takes a picture of the whole page that is open. Returns its height, and where the last thing that's broken ends. */
async function picture(browser, name, width, theme) {
  const [height, broken] = await browser.executeScript(`
    const end = (it) => Math.ceil(it.getBoundingClientRect().bottom + scrollY);
    return [end(document.body), Math.max(0, ...[...document.querySelectorAll(".trouble:not(.warn)")].map(end))];`);
  const clip = { x: 0, y: 0, width, height: Math.max(height, 200), scale: 1 };
  const { data } = await browser.sendAndGetDevToolsCommand("Page.captureScreenshot", { captureBeyondViewport: true, clip });
  writeFileSync(join(pictures, `${name}-${width}-${theme}.png`), data, "base64");
  return { height, broken };
}

/** Returns the bytes of a page, and of the same with gzip. */
async function bytes(browser, base, path) {
  const cookies = (await browser.manage().getCookies()).map(({ name, value }) => `${name}=${value}`).join("; ");
  const answer = await fetch(new URL(path, base), { headers: { Cookie: cookies, Accept: "text/html" } });
  if (!answer.ok) fault(`the answer is ${answer.status}`, path);
  const body = Buffer.from(await answer.arrayBuffer());
  return [body.length, gzipSync(body).length];
}

/** Takes all pictures. Prints a table of the pages, with the greatest height of both themes. */
async function takePictures(server, all) {
  const browser = await start();
  stops.push(() => browser.quit());
  await show(browser, WIDTHS[0], THEMES[0]);
  await server.signIn(browser, "/");
  // Pages of the navigation that this script doesn't know have a picture too.
  const linked = await browser.executeScript("return [...document.querySelectorAll('#pages a')].map((it) => it.getAttribute('href'))");
  for (const path of linked.filter((path) => !Object.values(all).includes(path))) all[path.slice(1).replaceAll(/[^a-z0-9]+/g, "-")] = path;
  // An update between measuring and the picture would change the height.
  await browser.sendDevToolsCommand("Network.enable", {});
  await browser.sendDevToolsCommand("Network.setBlockedURLs", { urls: ["*/updates"] });
  const rows = Object.fromEntries(Object.keys(all).map((name) => [name, { broken: 0 }]));
  for (const theme of THEMES) {
    for (const width of WIDTHS) {
      say(`takes pictures at ${width} px, ${theme}`);
      await show(browser, width, theme);
      for (const [name, path] of Object.entries(all)) {
        await browser.get(new URL(path, server.base).href);
        const { height, broken } = await picture(browser, name, width, theme);
        const row = rows[name];
        row[width] = Math.max(row[width] ?? 0, height);
        if (width === WIDTHS[0]) row.broken = Math.max(row.broken, broken);
        for (const what of await faultsOf(browser)) fault(what, `${name}-${width}-${theme}`);
      }
    }
  }
  const cell = (text) => String(text).padStart(8);
  console.log(["page".padEnd(22), ...[...WIDTHS.map((width) => `${width} px`), "bytes", "gzip"].map(cell)].join(""));
  for (const [name, path] of Object.entries(all)) {
    const [raw, zipped] = await bytes(browser, server.base, path);
    console.log([name.padEnd(22), ...[...WIDTHS.map((width) => rows[name][width]), raw, zipped].map(cell)].join(""));
  }
  console.log(`what's broken ends at ${rows.now.broken} px of Now, at ${WIDTHS[0]} px`);
  for (const [name, limits] of Object.entries(HEIGHTS_MAX)) {
    for (const [what, most] of Object.entries(limits)) {
      const height = rows[name][what];
      if (height > most) fault(`${height} px high, at most ${most}`, `${name} (${what})`);
    }
  }
}

try {
  mkdirSync(pictures, { recursive: true });
  const port = await startServer();
  const postgres = await startPostgres();
  if (postgres) stops.push(postgres.stop);
  putPackages(port);
  const database = postgres?.url ?? `sqlite:${join(work, "campanile.db")}`;
  await run("db", "migrate", "--database", database);
  await run("package", "approval-key", join(work, "approval.key"), "--database", database);
  const names = postgres ? HOSTS : HOSTS.slice(0, 1);
  const hosts = [];
  for (const name of names) hosts.push(await startHost(name, database, port));
  const [{ base, token }] = hosts;
  say(`${names.join(", ")} on ${postgres ? "Postgres" : "SQLite"}: ${base}`);
  const server = { base, token, ...host(base, token) };
  const found = await record(server, port, names.length > 1);
  await takePictures(server, pages(found));
} finally {
  await stop();
}
for (const [what, where] of faults) {
  const more = where.length > NAMED_MAX ? ` and ${where.length - NAMED_MAX} more` : "";
  console.error(`${what}\n    on ${where.slice(0, NAMED_MAX).join(", ")}${more}`);
}
process.exitCode = faults.size > 0 ? 1 : 0;

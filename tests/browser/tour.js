// Makes the screenshots of the tour in the documentation, and compares each with the committed one.
//
// usage: tour.js URL TOKEN FOLDER COMMITTED: screenshots go to FOLDER. The host has the package `guests` and no schedule. With
// UPDATE_SCREENSHOTS=1 the pictures in COMMITTED are replaced.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { host, start, WAIT_MAX_MS } from "./host.js";
import { changed, small } from "./picture.js";

/** A view with a larger changed share has another layout, or other colours: times and ids change up to a twentieth. */
const CHANGED_MAX = 0.2;
/** The most bytes of a committed picture. */
const BYTES_MAX = 60_000;
/** How long the backfills may take. */
const BACKFILL_MAX_MS = 120_000;
/** The view of each screenshot. */
const VIEW = { width: 1024, height: 768, deviceScaleFactor: 1, mobile: false };

const [, , base, token, folder, committed] = process.argv;
assert(base && token && folder && committed, "usage: tour.js URL TOKEN FOLDER COMMITTED");
const update = process.env.UPDATE_SCREENSHOTS === "1";
const { api, ended, eventually, loaded, signIn } = host(base, token);
const faults = [];

/** Record what the tour shows. Return the path of each page, by the name of its picture. */
async function record() {
  await loaded();
  const night = { package: "guests", kind: "cron", timezone: "Europe/Paris" };
  for (const [name, task, expression, context] of [
    ["backup", "ok", "30 2 * * *"],
    ["invoices", "ok", "0 6 * * 1-5"],
    ["orders", "ok", "15 4 * * *"],
    ["report", "ok", "0 5 1 * *"],
    ["thumbnails", "sleep", "45 3 * * *", { ms: 600_000 }],
  ]) {
    await api("POST", "schedules", { ...night, name, task, expression, context });
  }
  await api("POST", "schedules/report/pause", { note: "until the figures of the year are in" });
  for (const [schedule, from, to] of [
    ["backup", "2025-10-01T00:00:00Z", "2026-01-01T00:00:00Z"],
    ["invoices", "2025-12-01T00:00:00Z", "2025-12-15T00:00:00Z"],
  ]) {
    const { id } = await api("POST", "backfills", { schedule, from, to });
    await eventually(`the backfill of ${schedule}`, async () => (await api("GET", `backfills/${id}`)).status === "done", BACKFILL_MAX_MS);
  }
  const trigger = async (name) => (await api("POST", `schedules/${name}/trigger`, {})).launch;
  for (const name of ["orders", "backup"]) await ended(await trigger(name));
  // Alerts are about launches of slots, not about those that a person asked for.
  const soon = new Date(Date.now() + 3_000).toISOString();
  await api("POST", "schedules", { package: "guests", task: "fail_permanent", kind: "at", expression: soon, name: "import" });
  const [{ id: failed }] = await eventually("a failure", async () => {
    const found = await api("GET", "launches?schedule=import&status=failed");
    return found.length > 0 && found;
  });
  const long = await trigger("thumbnails");
  await eventually("a run", async () => (await api("GET", `launches/${long}`)).status === "running");
  await eventually("an alert", async () => (await api("GET", "alerts")).some((alert) => alert.status === "firing"));
  await api("POST", "silences", { rule: "late*", subjects: ["report"], for: "2h", note: "it is paused" });
  return {
    now: "/",
    schedules: "/schedules",
    schedule: "/schedules/backup",
    calendar: "/schedules/backup/calendar?year=2025",
    launch: `/launches/${failed}`,
    plan: "/plan",
    packages: "/packages/guests",
    hosts: "/hosts",
    events: "/events",
    alerts: "/alerts",
  };
}

/** Compare a screenshot with the committed one, or replace that. */
async function compare(browser, name, shot, path) {
  const kept = join(committed, `${name}.png`);
  if (update) {
    const bytes = await small(browser, shot);
    assert(bytes.length <= BYTES_MAX, `${kept} would have ${bytes.length} bytes`);
    writeFileSync(kept, bytes);
    return;
  }
  if (!existsSync(kept)) {
    faults.push(`there is no ${kept}: make it with UPDATE_SCREENSHOTS=1`);
    return;
  }
  const share = await changed(browser, readFileSync(kept), shot);
  const percent = `${Math.round(100 * share)} %`;
  console.log(`${percent} of ${name} differ from the committed picture`);
  if (share > CHANGED_MAX) {
    faults.push(`${percent} of what is shown differ between ${path} and ${kept}: mend the page, or make the pictures again with UPDATE_SCREENSHOTS=1`);
  }
}

mkdirSync(folder, { recursive: true });
const pages = await record();
const browser = await start();
try {
  await browser.sendDevToolsCommand("Emulation.setDeviceMetricsOverride", VIEW);
  const features = [{ name: "prefers-color-scheme", value: "light" }];
  await browser.sendDevToolsCommand("Emulation.setEmulatedMedia", { features });
  await signIn(browser, "/");
  const shots = {};
  for (const [name, path] of Object.entries(pages)) {
    await browser.get(new URL(path, base).href);
    await browser.wait(() => browser.executeScript("return document.fonts.status === 'loaded'"), WAIT_MAX_MS);
    const shot = Buffer.from(await browser.takeScreenshot(), "base64");
    const file = join(folder, `tour-${name}.png`);
    writeFileSync(file, shot);
    shots[name] = { shot, file };
  }
  // The policy of the pages forbids what the comparison does.
  await browser.get("about:blank");
  for (const [name, { shot, file }] of Object.entries(shots)) await compare(browser, name, shot, file);
} finally {
  await browser.quit();
}
for (const fault of faults) console.error(fault);
assert.equal(faults.length, 0, `${faults.length} faults`);
console.log(update ? `the pictures in ${committed} are made again` : "the pages of the tour look as in its pictures");

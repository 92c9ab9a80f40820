import assert from "node:assert/strict";
import test from "node:test";

import { call, reply, type Facts } from "campanile/testing";

import { primes } from "./app.js";
import { countPrimes, reportFile } from "./primes.js";

const HOOK = "https://hooks.example/primes";

test("primes are counted", () => {
  const counts = [0, 2, 3, 4, 10, 1000].map(countPrimes);
  assert.deepEqual(counts, [0, 0, 1, 2, 4, 168]);
});

test("the report is named after the slot", () => {
  assert.equal(reportFile("/reports/", "2026-11-21T02:00:00Z"), "/reports/primes-2026-11-21T02-00-00Z.json");
});

test("absent keys have defaults", async () => {
  const { output, host } = await call(primes, "count", { report: null });
  assert.deepEqual([output.below, output.primes], [1000, 168]);
  assert.deepEqual(host.progress, [[100, "1 of 1 rounds"]]);
});

test("an invalid context is a permanent failure that names the key", async () => {
  for (const context of [{ below: "many" }, { below: -1 }, { below: 1.5 }, { rounds: 0 }, { report: 7 }, { notify: [] }]) {
    const { failure } = await call(primes, "count", context);
    assert.match(failure?.message ?? "", new RegExp(`^.${Object.keys(context)[0]}. must be`));
    assert.equal(failure?.retryable, false);
  }
});

test("a repeated run leaves the same report", async () => {
  let facts: Facts = { directories: { "/reports": {} } };
  for (const attempt of [1, 2]) {
    const { host } = await call(primes, "count", { report: "/reports" }, { attempt, ...facts });
    const report = { below: 1000, primes: 168, slot: "2026-01-01T00:00:00Z" };
    const name = "primes-2026-01-01T00-00-00Z.json";
    assert.deepEqual(host.directories, { "/reports": { [name]: JSON.stringify(report) } });
    facts = { directories: host.directories };
  }
});

test("the result is sent with the id of the launch", async () => {
  const { host } = await call(primes, "count", { notify: HOOK }, { replies: { [`POST ${HOOK}`]: reply(204) } });
  const [sent] = host.requests;
  assert.equal(JSON.parse(sent?.body ?? "").primes, 168);
  assert.equal(sent?.headers.get("idempotency-key"), host.executionId);
});

test("a missing grant is a denial", async () => {
  for (const context of [{ notify: HOOK }, { report: "/reports" }]) {
    const { failure } = await call(primes, "count", context);
    assert.equal(failure?.kind, "denied");
  }
});

import assert from "node:assert/strict";
import test from "node:test";

import { countPrimes, readParams, reportFile } from "./primes.js";

test("primes are counted", () => {
  const counts = [0, 2, 3, 4, 10, 1000].map(countPrimes);
  assert.deepEqual(counts, [0, 0, 1, 2, 4, 168]);
});

test("absent keys have defaults, and the host's keys are ignored", () => {
  const params = readParams({ execution_id: "…", attempt: 1, report: null });
  assert.deepEqual(params, { below: 1000, rounds: 1, report: undefined, notify: undefined });
});

test("an invalid context is an error that names the key", () => {
  for (const context of [{ below: "many" }, { below: -1 }, { below: 1.5 }, { rounds: 0 }, { report: 7 }, { notify: [] }]) {
    assert.throws(() => readParams(context), new RegExp(`^Error: .${Object.keys(context)[0]}. must be`));
  }
});

test("the report is named after the slot", () => {
  assert.equal(reportFile("/reports/", "2026-11-21T02:00:00Z"), "/reports/primes-2026-11-21T02-00-00Z.json");
});

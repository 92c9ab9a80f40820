import assert from "node:assert/strict";
import test from "node:test";

import { countPrimes, orderOf, reportFile } from "./primes.js";

test("primes are counted", () => {
  const counts = [0, 2, 3, 4, 10, 1000].map(countPrimes);
  assert.deepEqual(counts, [0, 0, 1, 2, 4, 168]);
});

test("what the context does not say has a default, and the host's keys are no trouble", () => {
  const order = orderOf({ execution_id: "…", attempt: 1, report: null });
  assert.deepEqual(order, { below: 1000, rounds: 1, report: undefined, notify: undefined });
});

test("a context of the wrong shape is refused by name", () => {
  for (const context of [{ below: "many" }, { below: -1 }, { below: 1.5 }, { rounds: 0 }, { report: 7 }, { notify: [] }]) {
    assert.throws(() => orderOf(context), new RegExp(`^Error: .${Object.keys(context)[0]}. must be`));
  }
});

test("a slot has one report, whatever its run", () => {
  assert.equal(reportFile("/reports/", "2026-11-21T02:00:00Z"), "/reports/primes-2026-11-21T02-00-00Z.json");
});

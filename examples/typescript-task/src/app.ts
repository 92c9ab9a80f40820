// The package: its task, and the schedule that it proposes. The manifest grants nothing.

import { Package, files, http, t } from "campanile";

import { countPrimes, reportFile } from "./primes.js";

/** The task's keys of the context. The SDK checks their types. */
const Params = t.object({
  below: t.integer().check((below) => below >= 0, "at least 0").default(1000),
  rounds: t.integer().check((rounds) => rounds >= 1, "at least 1").default(1),
  report: t.string().optional(),
  notify: t.string().optional(),
});

export const primes = new Package("typescript-task", "0.1.0", {
  summary: "Counts primes with a sieve",
  schedules: [{ cron: "0 2 * * *" }],
});

primes.task("count", { context: Params }, async (run, params) => {
  // The slot is the same for every run of this launch, however late the run is.
  if (run.isRecovery) run.warn(`an earlier run for ${run.slot} was lost; this run repeats its work`);
  let found = 0;
  let reported = 0;
  for (let round = 1; round <= params.rounds; round++) {
    found = countPrimes(params.below);
    const percent = Math.floor((round / params.rounds) * 100);
    if (percent > reported) run.progress((reported = percent), `${round} of ${params.rounds} rounds`);
  }
  run.info(`${found} primes below ${params.below}`);
  // The result does not depend on the run, so a repeated run leaves the same result.
  const result = { below: params.below, primes: found, slot: run.slot };
  if (params.report) files.write(reportFile(params.report, run.slot), JSON.stringify(result));
  if (params.notify) {
    // The id is the same for every run of this launch: the receiver can detect a repetition.
    await http.post(params.notify, { json: result, idempotencyKey: run.executionId });
  }
  return { ...result, is_recovery: run.isRecovery, attempt: run.attempt };
});

// The functions that the engine looks for: what the world in wit/ exports.
export const { describe, task } = primes.exports();

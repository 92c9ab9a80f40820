// The functions that Campanile calls: the exports of the world in wit/.
// `./build` generates the types of the interfaces from wit/.

import { attempt, executionId, isRecovery, reportProgress } from "campanile:task/run-info@0.1.0";
import type { Completion, Failure } from "campanile:task/types@0.1.0";
import { log } from "wasi:logging/logging@0.1.0-draft";

import { Denied, writeFile } from "./files.js";
import { BadContext, countPrimes, readParams, reportFile } from "./primes.js";

/** The result that is written and sent. */
interface Report {
  below: number;
  primes: number;
  slot: string;
}

/** The output that the host records. */
interface Result extends Report {
  is_recovery: boolean;
  attempt: number;
}

export const describe = {
  /** The host calls this when it loads the file, without any capability. The manifest grants nothing. */
  describe(): string {
    return JSON.stringify({
      name: "typescript-task",
      version: "0.1.0",
      summary: "Counts primes with a sieve",
      schedules: [{ cron: "0 2 * * *" }],
    });
  },
};

export const task = {
  /** May be async: the engine waits for the promise. */
  async run(_task: string, context: string): Promise<Completion> {
    try {
      return { output: JSON.stringify(await work(JSON.parse(context))) };
    } catch (error) {
      // A thrown value becomes the `failure` of the contract.
      throw failureOf(error);
    }
  },
};

async function work(context: Record<string, unknown>): Promise<Result> {
  const params = readParams(context);
  // The slot is the same for every run of this launch, however late the run is.
  const slot = String(context["original_scheduled_time"]);
  if (isRecovery()) log("warn", "", `an earlier run for ${slot} was lost; this run repeats its work`);
  let primes = 0;
  let reported = 0;
  for (let round = 1; round <= params.rounds; round++) {
    primes = countPrimes(params.below);
    const percent = Math.floor((round / params.rounds) * 100);
    if (percent > reported) reportProgress((reported = percent), `${round} of ${params.rounds} rounds`);
  }
  log("info", "", `${primes} primes below ${params.below}`);
  // The result does not depend on the run, so a repeated run leaves the same result.
  const report: Report = { below: params.below, primes, slot };
  if (params.report) writeFile(reportFile(params.report, slot), JSON.stringify(report));
  if (params.notify) await post(params.notify, report);
  return { ...report, is_recovery: isRecovery(), attempt: attempt() };
}

async function post(url: string, report: Report): Promise<void> {
  const response = await fetch(url, {
    method: "POST",
    // The id is the same for every run of this launch: the receiver can detect a repetition.
    headers: { "content-type": "application/json", "idempotency-key": executionId() },
    body: JSON.stringify(report),
  });
  if (!response.ok) throw new Error(`${url} responded with ${response.status}`);
}

function failureOf(error: unknown): Failure {
  const denied = error instanceof Denied;
  return {
    message: error instanceof Error ? error.message : String(error),
    retryable: !(denied || error instanceof BadContext),
    ...(denied && { details: JSON.stringify({ kind: "denied" }) }),
  };
}

// The functions that Campanile calls: the exports of the world in wit/.
// `./build` generates the types of the interfaces from wit/.

import { attempt, executionId, isRecovery, reportProgress } from "campanile:task/run-info@0.1.0";
import type { Completion, Failure } from "campanile:task/types@0.1.0";
import { log } from "wasi:logging/logging@0.1.0-draft";

import { Denied, writeFile } from "./files.js";
import { BadContext, countPrimes, orderOf, reportFile } from "./primes.js";

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
  /** The host calls this when it loads the file, without any capability. A proposal grants nothing. */
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
  const order = orderOf(context);
  // The slot is the same for every run of this launch, however late the run is.
  const slot = String(context["original_scheduled_time"]);
  if (isRecovery()) log("warn", "", `an earlier run for ${slot} was lost; this one does its work again`);
  let primes = 0;
  let reported = 0;
  for (let round = 1; round <= order.rounds; round++) {
    primes = countPrimes(order.below);
    const percent = Math.floor((round / order.rounds) * 100);
    if (percent > reported) reportProgress((reported = percent), `${round} of ${order.rounds} rounds`);
  }
  log("info", "", `${primes} primes below ${order.below}`);
  // The result does not depend on the run, so a repeated run leaves the same result.
  const report: Report = { below: order.below, primes, slot };
  if (order.report) writeFile(reportFile(order.report, slot), JSON.stringify(report));
  if (order.notify) await post(order.notify, report);
  return { ...report, is_recovery: isRecovery(), attempt: attempt() };
}

async function post(url: string, report: Report): Promise<void> {
  const answer = await fetch(url, {
    method: "POST",
    // The id is the same for every run of this launch: the receiver recognises a repetition.
    headers: { "content-type": "application/json", "idempotency-key": executionId() },
    body: JSON.stringify(report),
  });
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}`);
}

function failureOf(error: unknown): Failure {
  const denied = error instanceof Denied;
  return {
    message: error instanceof Error ? error.message : String(error),
    retryable: !(denied || error instanceof BadContext),
    ...(denied && { details: JSON.stringify({ kind: "denied" }) }),
  };
}

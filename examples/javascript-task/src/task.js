// The task as Campanile calls it: the exports of the world in wit/, and what they need of the host.

import { attempt, executionId, isRecovery, reportProgress } from "campanile:task/run-info@0.1.0";
import { log } from "wasi:logging/logging@0.1.0-draft";

import { Denied, writeFile } from "./files.js";
import { BadContext, countPrimes, orderOf, reportFile } from "./primes.js";

export const describe = {
  /** Called without any capability when the file is loaded. A proposal: it grants nothing. */
  describe() {
    return JSON.stringify({
      name: "javascript-task",
      version: "0.1.0",
      summary: "Counts primes with a sieve",
      schedules: [{ cron: "0 2 * * *" }],
    });
  },
};

export const task = {
  /** May be async, although the contract is not: the engine waits for the promise. */
  async run(_task, context) {
    try {
      return { output: JSON.stringify(await work(JSON.parse(context))) };
    } catch (error) {
      // What is thrown becomes the `failure` of the contract.
      throw failureOf(error);
    }
  },
};

async function work(context) {
  const order = orderOf(context);
  // The same for every run of this launch, however late it is.
  const slot = context.original_scheduled_time;
  if (isRecovery()) log("warn", "", `an earlier run for ${slot} was lost; this one does its work again`);
  let primes = 0;
  let told = 0;
  for (let round = 1; round <= order.rounds; round++) {
    primes = countPrimes(order.below);
    const percent = Math.floor((round / order.rounds) * 100);
    if (percent > told) reportProgress((told = percent), `${round} of ${order.rounds} rounds`);
  }
  log("info", "", `${primes} primes below ${order.below}`);
  // What stays in the world says nothing of the run that made it: a second run leaves the same.
  const report = { below: order.below, primes, slot };
  if (order.report) writeFile(reportFile(order.report, slot), JSON.stringify(report));
  if (order.notify) await post(order.notify, report);
  return { ...report, is_recovery: isRecovery(), attempt: attempt() };
}

async function post(url, report) {
  const answer = await fetch(url, {
    method: "POST",
    // The same for every run of this launch, so that the receiver can drop what it has already.
    headers: { "content-type": "application/json", "idempotency-key": executionId() },
    body: JSON.stringify(report),
  });
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}`);
}

function failureOf(error) {
  const denied = error instanceof Denied;
  return {
    message: String(error?.message ?? error),
    retryable: !(denied || error instanceof BadContext),
    details: denied ? JSON.stringify({ kind: "denied" }) : undefined,
  };
}

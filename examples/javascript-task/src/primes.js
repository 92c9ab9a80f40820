// The work itself. It needs no host, so its tests run anywhere.

/** The context has the wrong shape. A retry cannot fix that. */
export class BadContext extends Error {}

/** This task's keys of the context. It ignores other keys: some are the host's. */
export function orderOf(context) {
  return {
    below: wholeNumber(context, "below", 0, 1000),
    rounds: wholeNumber(context, "rounds", 1, 1),
    report: text(context, "report"),
    notify: text(context, "notify"),
  };
}

function wholeNumber(context, name, least, absent) {
  const value = context[name] ?? absent;
  if (!Number.isSafeInteger(value) || value < least) {
    throw new BadContext(`\`${name}\` must be a whole number of at least ${least}, not ${JSON.stringify(value)}`);
  }
  return value;
}

function text(context, name) {
  const value = context[name] ?? undefined;
  if (value !== undefined && typeof value !== "string") {
    throw new BadContext(`\`${name}\` must be a text, not ${JSON.stringify(value)}`);
  }
  return value;
}

/** The sieve of Eratosthenes: one byte of memory for each number. */
export function countPrimes(below) {
  const composite = new Uint8Array(below);
  let primes = 0;
  for (let number = 2; number < below; number++) {
    if (composite[number]) continue;
    primes++;
    for (let multiple = number * number; multiple < below; multiple += number) composite[multiple] = 1;
  }
  return primes;
}

/** One name for each slot: a repeated run overwrites its report. */
export function reportFile(folder, slot) {
  return `${folder.replace(/\/+$/, "")}/primes-${slot.replaceAll(":", "-")}.json`;
}

// The task's logic. It needs no host, so its tests run natively.

/** The context is invalid. A retry cannot fix that. */
export class BadContext extends Error {}

/** Read the task's keys of the context. Other keys are ignored, because the host sets some. */
export function readParams(context) {
  return {
    below: wholeNumber(context, "below", 0, 1000),
    rounds: wholeNumber(context, "rounds", 1, 1),
    report: text(context, "report"),
    notify: text(context, "notify"),
  };
}

function wholeNumber(context, name, minimum, defaultValue) {
  const value = context[name] ?? defaultValue;
  if (!Number.isSafeInteger(value) || value < minimum) {
    throw new BadContext(`\`${name}\` must be a whole number of at least ${minimum}, not ${JSON.stringify(value)}`);
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

/** Count the primes with the sieve of Eratosthenes. It needs one byte of memory for each number. */
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

/** Return the file name of a slot's report. A repeated run overwrites the report. */
export function reportFile(folder, slot) {
  return `${folder.replace(/\/+$/, "")}/primes-${slot.replaceAll(":", "-")}.json`;
}

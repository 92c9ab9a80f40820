// The task's logic. It needs no host.

/** Count the primes with the sieve of Eratosthenes. It needs one byte of memory for each number. */
export function countPrimes(below: number): number {
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
export function reportFile(folder: string, slot: string): string {
  return `${folder.replace(/\/+$/, "")}/primes-${slot.replaceAll(":", "-")}.json`;
}

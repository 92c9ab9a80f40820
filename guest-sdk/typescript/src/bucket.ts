/** Buckets: keys and values that a package keeps from one run to the next, in the host's database. */

import { Denied, type Failure, Permanent, Retryable } from "./failures.js";
import { current, Fault, type OpenBucket } from "./host.js";
import { dumps } from "./json.js";

/**
 * An open bucket. Each call is atomic, and its effect stays even if the task fails later, unless the bucket was opened in a
 * session.
 *
 * A call throws `Denied` if the grant does not allow it, and `Retryable` if the host could not do it.
 */
export class Bucket {
  readonly #open: OpenBucket;

  constructor(
    readonly name: string,
    open: (name: string) => OpenBucket = (name) => current().openBucket(name),
  ) {
    this.#open = this.#explained("opening a bucket", () => open(name));
  }

  /** Return the bytes under `key`; undefined for an absent key. */
  get(key: string): Uint8Array | undefined {
    return this.#in(`reading \`${key}\``, () => this.#open.get(key));
  }

  /** Store a text or bytes under `key`, and replace an earlier value. */
  set(key: string, value: string | Uint8Array): void {
    this.#in(`writing \`${key}\``, () => this.#open.set(key, bytes(value)));
  }

  /** Return the value under `key`, read from JSON; undefined for an absent key. Throws `Permanent` if it is not JSON. */
  getJson(key: string): unknown {
    const value = this.get(key);
    if (value === undefined) return undefined;
    try {
      return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(value));
    } catch (cause) {
      const message = `the value under \`${key}\` in the bucket \`${this.name}\` cannot be read: ${cause}`;
      throw new Permanent(message, { cause });
    }
  }

  /** Store `value` as JSON. */
  setJson(key: string, value: unknown): void {
    this.set(key, dumps(value));
  }

  /** Delete `key`. An absent key is ignored. */
  delete(key: string): void {
    this.#in(`deleting \`${key}\``, () => this.#open.delete(key));
  }

  exists(key: string): boolean {
    return this.#in(`checking for \`${key}\``, () => this.#open.exists(key));
  }

  /** Return all keys, in the order in which they were first set. */
  keys(): string[] {
    return this.#in("listing the keys", () => this.#open.keys());
  }

  /** Add to the number under `key`, and return the sum. An absent key counts as 0. */
  increment(key: string, by = 1): number {
    return this.#in(`incrementing \`${key}\``, () => this.#open.increment(key, by));
  }

  /** Return the bytes under each key, in their order. One call takes 1000 keys. */
  getMany(keys: string[]): (Uint8Array | undefined)[] {
    return this.#in(`reading ${keys.length} keys`, () => this.#open.getMany(keys));
  }

  /** Store all entries, or none of them if there is an error. One call takes 1000 entries. */
  setMany(entries: Iterable<[string, string | Uint8Array]>): void {
    const list = [...entries].map(([key, value]): [string, Uint8Array] => [key, bytes(value)]);
    this.#in(`writing ${list.length} keys`, () => this.#open.setMany(list));
  }

  /** Delete all keys, or none of them if there is an error. One call takes 1000 keys. */
  deleteMany(keys: string[]): void {
    this.#in(`deleting ${keys.length} keys`, () => this.#open.deleteMany(keys));
  }

  #in<Value>(operation: string, call: () => Value): Value {
    return this.#explained(`${operation} in the bucket \`${this.name}\``, call);
  }

  #explained<Value>(operation: string, call: () => Value): Value {
    try {
      return call();
    } catch (error) {
      throw error instanceof Fault ? failureOf(error, this.name, operation) : error;
    }
  }
}

function failureOf(fault: Fault, name: string, operation: string): Failure {
  switch (fault.kind) {
    case "no-such-store":
      return new Denied(
        `${operation}: the bucket \`${name}\` is not granted; the operator grants it with \`[[grants.keyvalue]] bucket = "${name}"\` in the package's sidecar file`,
      );
    case "access-denied":
      return new Denied(
        `${operation}: the bucket's grant does not allow writing; the operator allows it with \`access = "write"\` in the bucket's \`[[grants.keyvalue]]\` in the package's sidecar file`,
      );
    case "other":
      return new Retryable(`${operation}: ${fault.message}`);
  }
}

function bytes(value: string | Uint8Array): Uint8Array {
  return typeof value === "string" ? new TextEncoder().encode(value) : value;
}

/** The functions of the host, as the SDK calls them. `campanile/testing` has another implementation, for tests. */

export type Level = "trace" | "debug" | "info" | "warn" | "error" | "critical";

/** What a task can ask its host. The facts are those of the current run. */
export interface Host {
  readonly executionId: string;
  readonly runId: string;
  readonly taskName: string;
  readonly attempt: number;
  readonly isRecovery: boolean;
  readonly scheduledTime: Date;
  readonly originalScheduledTime: Date;
  readonly deadline: Date | undefined;
  readonly cancelRequested: boolean;
  reportProgress(percent: number | undefined, message: string): void;
  log(level: Level, context: string, message: string): void;
  config(name: string): string | undefined;
  /** Throws a `Fault`. */
  openBucket(name: string): OpenBucket;
  /** Open a bucket in the session of the call. Throws a `Fault`. */
  openSessionBucket(name: string): OpenBucket;
  /** Return the id of the message. Throws a `Refused`. */
  sendMessage(message: Message): string;
  /** Return the bytes of a file, or undefined for a file that does not exist. */
  readFile(path: string): Uint8Array | undefined;
  writeFile(path: string, bytes: Uint8Array): void;
  listFiles(folder: string): string[];
  removeFile(path: string): void;
}

/** A bucket of the host. Each function throws a `Fault`. */
export interface OpenBucket {
  get(key: string): Uint8Array | undefined;
  set(key: string, value: Uint8Array): void;
  delete(key: string): void;
  exists(key: string): boolean;
  keys(): string[];
  increment(key: string, by: number): number;
  getMany(keys: string[]): (Uint8Array | undefined)[];
  setMany(entries: [string, Uint8Array][]): void;
  deleteMany(keys: string[]): void;
}

/** A message as the host takes it. */
export interface Message {
  readonly method: string;
  readonly url: string;
  readonly headers: [string, string][];
  readonly body: Uint8Array;
}

/** The reason why the host did not accept a message. */
export class Refused extends Error {
  constructor(
    readonly kind: "access-denied" | "refused",
    message = "",
  ) {
    super(message);
  }
}

/** The reason why a bucket operation failed in the host. */
export class Fault extends Error {
  constructor(
    readonly kind: "no-such-store" | "access-denied" | "other",
    message = "",
  ) {
    super(message);
  }
}

let find: () => Host | undefined = () => undefined;

/** Let `current` ask this function for the host. */
export function provide(host: () => Host | undefined): void {
  find = host;
}

/** Return the host of the current call: a fake one in a test, and the real one inside WebAssembly. */
export function current(): Host {
  const host = find();
  if (host === undefined) {
    throw new Error("no host is here: call the task with `call` of `campanile/testing`, or build it with jco");
  }
  return host;
}

/**
 * Fakes for unit tests: call a task without a host.
 *
 *     const outcome = await call(hello, "hello", { name: "world" });
 *     assert.deepEqual(outcome.output, { message: "Hello, world!" });
 *
 * Import this in tests alone: it needs Node.js.
 *
 * @module
 */

import { AsyncLocalStorage } from "node:async_hooks";

import { Denied, Failure } from "./failures.js";
import { Fault, type Host, type Level, type Message, type OpenBucket, provide, Refused } from "./host.js";
import { dumps } from "./json.js";
import { LEVELS, line } from "./logs.js";
import type { Package } from "./package.js";

/** The content of a key or a file: a text, or bytes that are not text. */
export type Content = string | Uint8Array;

type Contents = Record<string, Record<string, Content>>;

/** What a test sets of the host. */
export interface Facts {
  /** The replies, by request: `"POST https://host/path"`. A failure is thrown. A request without a reply is denied. */
  replies?: Record<string, Response | Failure>;
  /** The values of the configuration and the secrets. */
  values?: Record<string, string>;
  /** The granted buckets and their keys, and those that are granted for reading alone. */
  buckets?: Contents;
  readOnlyBuckets?: Contents;
  /** The granted directories and their files, such as `{ "/reports": { "a/b.json": "{}" } }`, and those for reading alone. */
  directories?: Contents;
  readOnlyDirectories?: Contents;
  executionId?: string;
  runId?: string;
  attempt?: number;
  isRecovery?: boolean;
  scheduledTime?: Date;
  originalScheduledTime?: Date;
  deadline?: Date;
  cancelRequested?: boolean;
}

/** A request that a task sent. */
export interface SentRequest {
  method: string;
  url: string;
  headers: Headers;
  body: string;
}

/** A message that a task sent. */
export interface SentMessage {
  method: string;
  url: string;
  headers: Headers;
  body: string;
}

const SLOT = new Date("2026-01-01T00:00:00Z");

/** A host that records what a task does. */
export class FakeHost implements Host {
  readonly executionId: string;
  readonly runId: string;
  readonly attempt: number;
  readonly isRecovery: boolean;
  readonly scheduledTime: Date;
  readonly originalScheduledTime: Date;
  readonly deadline: Date | undefined;
  readonly cancelRequested: boolean;
  readonly buckets: Contents;
  readonly directories: Contents;
  readonly logs: [Level, string][] = [];
  readonly progress: [number | undefined, string][] = [];
  readonly requests: SentRequest[] = [];
  /** The messages of the call, if it succeeded. */
  readonly messages: SentMessage[] = [];
  readonly #facts: Facts;
  readonly #session: Contents = {};
  readonly #heldBack: SentMessage[] = [];

  constructor(
    readonly taskName: string,
    facts: Facts = {},
  ) {
    this.executionId = facts.executionId ?? "0197a000-0000-7000-8000-000000000001";
    this.runId = facts.runId ?? "0197a000-0000-7000-8000-000000000002";
    this.attempt = facts.attempt ?? 1;
    this.isRecovery = facts.isRecovery ?? false;
    this.originalScheduledTime = facts.originalScheduledTime ?? SLOT;
    this.scheduledTime = facts.scheduledTime ?? this.originalScheduledTime;
    this.deadline = facts.deadline;
    this.cancelRequested = facts.cancelRequested ?? false;
    this.buckets = structuredClone(facts.buckets ?? {});
    this.directories = structuredClone(facts.directories ?? {});
    this.#facts = facts;
  }

  reportProgress(percent: number | undefined, message: string): void {
    this.progress.push([percent, message]);
  }

  log(level: Level, context: string, message: string): void {
    this.logs.push([level, context ? `${context}: ${message}` : message]);
  }

  config(name: string): string | undefined {
    return this.#facts.values?.[name];
  }

  openBucket(name: string): OpenBucket {
    const writable = this.buckets[name];
    const entries = writable ?? this.#facts.readOnlyBuckets?.[name];
    if (entries === undefined) throw new Fault("no-such-store");
    return new FakeBucket(entries, writable !== undefined);
  }

  openSessionBucket(name: string): OpenBucket {
    const writable = this.buckets[name];
    if (writable === undefined) return this.openBucket(name);
    return new FakeBucket((this.#session[name] ??= { ...writable }), true);
  }

  sendMessage({ method, url, headers, body }: Message): string {
    if (!/^https?:\/\/[^/]/.test(url)) throw new Refused("refused", "the address must begin with https:// or http://");
    this.#heldBack.push({ method, url, headers: new Headers(headers), body: new TextDecoder().decode(body) });
    return `${this.executionId}-${this.#heldBack.length}`;
  }

  /** Keep the writes of the session and the messages of a call that succeeded. Those of another call are dropped. */
  commit(): void {
    Object.assign(this.buckets, this.#session);
    this.messages.push(...this.#heldBack);
  }

  readFile(path: string): Uint8Array | undefined {
    const { files, name } = this.#granted(path);
    return bytes(files[name]);
  }

  writeFile(path: string, content: Uint8Array): void {
    this.#writable(path, "written", (files, name) => (files[name] = contentOf(content)));
  }

  listFiles(folder: string): string[] {
    const { files, name } = this.#granted(folder);
    const prefix = name ? `${name}/` : "";
    const below = Object.keys(files).filter((file) => file.startsWith(prefix));
    return [...new Set(below.map((file) => file.slice(prefix.length).split("/")[0] ?? ""))];
  }

  removeFile(path: string): void {
    this.#writable(path, "removed", (files, name) => delete files[name]);
  }

  /** Reply to `fetch`. */
  async fetch(request: Request): Promise<Response> {
    const { method, url, headers } = request;
    const reply = this.#facts.replies?.[`${method} ${url}`];
    if (reply === undefined) throw new Denied(`${method} ${url} is not granted: the test has no reply to it`);
    this.requests.push({ method, url, headers, body: await request.text() });
    if (reply instanceof Failure) throw reply;
    return reply.clone();
  }

  #writable(path: string, done: string, change: (files: Record<string, Content>, name: string) => void): void {
    const { files, name, isReadOnly } = this.#granted(path);
    if (isReadOnly) throw new Denied(`${path} cannot be ${done}; grant its directory with access = "write"`);
    change(files, name);
  }

  #granted(path: string) {
    const readOnly = this.#facts.readOnlyDirectories ?? {};
    const folders = [...Object.entries(this.directories), ...Object.entries(readOnly)];
    const within = folders.filter(([folder]) => `${path}/`.startsWith(`${folder}/`));
    const [found] = within.sort(([a], [b]) => b.length - a.length);
    if (found === undefined) throw new Denied(`${path} is not in a granted directory`);
    const [folder, files] = found;
    return { files, name: path.slice(folder.length + 1).replace(/\/+$/, ""), isReadOnly: files === readOnly[folder] };
  }
}

class FakeBucket implements OpenBucket {
  readonly #entries: Record<string, Content>;
  readonly #isWritable: boolean;

  constructor(entries: Record<string, Content>, isWritable: boolean) {
    this.#entries = entries;
    this.#isWritable = isWritable;
  }

  get(key: string): Uint8Array | undefined {
    return bytes(this.#entries[key]);
  }

  set(key: string, value: Uint8Array): void {
    this.#writable()[key] = contentOf(value);
  }

  delete(key: string): void {
    delete this.#writable()[key];
  }

  exists(key: string): boolean {
    return key in this.#entries;
  }

  keys(): string[] {
    return Object.keys(this.#entries);
  }

  increment(key: string, by: number): number {
    const sum = Number(this.#writable()[key] ?? "0") + by;
    if (!Number.isSafeInteger(sum)) throw new Fault("other", "the value is not a decimal number, or the sum is too large");
    this.#writable()[key] = String(sum);
    return sum;
  }

  getMany(keys: string[]): (Uint8Array | undefined)[] {
    return keys.map((key) => this.get(key));
  }

  setMany(entries: [string, Uint8Array][]): void {
    for (const [key, value] of entries) this.set(key, value);
  }

  deleteMany(keys: string[]): void {
    for (const key of keys) this.delete(key);
  }

  #writable(): Record<string, Content> {
    if (!this.#isWritable) throw new Fault("access-denied");
    return this.#entries;
  }
}

/** How a call ended: its output and the keys for dependent tasks, or its failure; and what the host saw. */
export interface Outcome {
  readonly output: any;
  readonly context: Record<string, unknown> | undefined;
  readonly failure: Failure | undefined;
  readonly host: FakeHost;
}

/** What a test sets of a reply. */
export interface ReplyOptions {
  json?: unknown;
  body?: string | Uint8Array<ArrayBuffer>;
  headers?: Record<string, string>;
}

/** Return a reply for `replies`. */
export function reply(status = 200, { json, body, headers = {} }: ReplyOptions = {}): Response {
  const hasNoBody = [204, 205, 304].includes(status);
  return new Response(hasNoBody ? null : json === undefined ? (body ?? "") : dumps(json), { status, headers });
}

/** Call a task with a fake host. A bug of the task is thrown. */
export async function call(
  of: Package,
  task: string,
  context: Record<string, unknown> = {},
  facts: Facts = {},
): Promise<Outcome> {
  install();
  const host = new FakeHost(task, facts);
  const reserved = {
    execution_id: host.executionId,
    attempt: host.attempt,
    is_recovery: host.isRecovery,
    original_scheduled_time: slotText(host.originalScheduledTime),
    scheduled_time: slotText(host.scheduledTime),
  };
  return hosts.run(host, async () => {
    try {
      const { output, context: passed } = await of.call(task, { ...context, ...reserved });
      // A host takes JSON: a value that JSON does not have is an error here too.
      const outcome = { output: throughJson(output), context: throughJson(passed), failure: undefined, host };
      host.commit();
      return outcome;
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return { output: undefined, context: undefined, failure: error, host };
    }
  });
}

/** The host of each call. Calls at the same time have a host each. */
const hosts = new AsyncLocalStorage<FakeHost>();
let isInstalled = false;

/** Let the SDK, `fetch` and `console` use the fake host inside a call. Elsewhere `fetch` and `console` are Node's own. */
function install(): void {
  if (isInstalled) return;
  isInstalled = true;
  provide(() => hosts.getStore());
  const own = globalThis.fetch;
  globalThis.fetch = (input, init) => {
    const host = hosts.getStore();
    return host === undefined ? own(input, init) : host.fetch(new Request(input, init));
  };
  for (const [method, level] of Object.entries(LEVELS) as [keyof typeof LEVELS, Level][]) {
    const print = console[method].bind(console);
    console[method] = (...values: unknown[]) => {
      const host = hosts.getStore();
      return host === undefined ? print(...values) : host.log(level, "", line(values));
    };
  }
}

function throughJson(value: unknown): any {
  return value === undefined ? undefined : JSON.parse(dumps(value));
}

function slotText(time: Date): string {
  return time.toISOString().replace(/\.000Z$/, "Z");
}

function bytes(content: Content | undefined): Uint8Array | undefined {
  return typeof content === "string" ? new TextEncoder().encode(content) : content;
}

function contentOf(content: Uint8Array): Content {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    return content.slice();
  }
}

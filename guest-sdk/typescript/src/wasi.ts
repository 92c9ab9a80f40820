/** The host inside WebAssembly. The world in `wit/` imports these interfaces. */

import * as outbox from "campanile:task/outbox@0.1.0";
import * as runInfo from "campanile:task/run-info@0.1.0";
import * as session from "campanile:task/session@0.1.0";
import * as config from "wasi:config/store@0.2.0-rc.1";
import { getDirectories } from "wasi:filesystem/preopens@0.2.12";
import type { Descriptor } from "wasi:filesystem/types@0.2.12";
import * as atomics from "wasi:keyvalue/atomics@0.2.0-draft";
import * as batch from "wasi:keyvalue/batch@0.2.0-draft";
import * as store from "wasi:keyvalue/store@0.2.0-draft";
import { log } from "wasi:logging/logging@0.1.0-draft";

import { Denied, type Failure, Retryable } from "./failures.js";
import { Fault, type Host, type OpenBucket, Refused } from "./host.js";

const READ_BYTES = 64n * 1024n;

export const wasi: Host | undefined = {
  get executionId() {
    return runInfo.executionId();
  },
  get runId() {
    return runInfo.runId();
  },
  get taskName() {
    return runInfo.taskName();
  },
  get attempt() {
    return runInfo.attempt();
  },
  get isRecovery() {
    return runInfo.isRecovery();
  },
  get scheduledTime() {
    return date(runInfo.scheduledFor());
  },
  get originalScheduledTime() {
    return date(runInfo.originalScheduledTime());
  },
  get deadline() {
    const deadline = runInfo.deadline();
    return deadline && date(deadline);
  },
  get cancelRequested() {
    return runInfo.cancelRequested();
  },
  reportProgress: (percent, message) => runInfo.reportProgress(percent, message),
  log: (level, context, message) => log(level, context, message),
  config: (name) => {
    try {
      return config.get(name);
    } catch (error) {
      throw new Retryable(`the configuration \`${name}\` cannot be read: ${JSON.stringify(payload(error))}`);
    }
  },
  openBucket: (name) => openedBucket(() => store.open(name)),
  openSessionBucket: (name) => openedBucket(() => session.open(name)),
  sendMessage: (message) => {
    try {
      return outbox.send({ ...message });
    } catch (error) {
      const refused = payload<outbox.Error>(error);
      throw new Refused(refused.tag, refused.tag === "refused" ? refused.val : "");
    }
  },
  readFile,
  writeFile,
  listFiles,
  removeFile,
};

function date({ seconds, nanoseconds }: { seconds: bigint; nanoseconds: number }): Date {
  return new Date(Number(seconds) * 1000 + Math.floor(nanoseconds / 1_000_000));
}

/** Return the error of a WIT `result`, which is thrown as the payload of an error. Throws any other error. */
function payload<Of>(error: unknown): Of {
  if (typeof error === "object" && error !== null && "payload" in error) return error.payload as Of;
  throw error;
}

function openedBucket(open: () => store.Bucket): OpenBucket {
  const bucket = faulty(open);
  return {
    get: (key) => faulty(() => bucket.get(key)),
    set: (key, value) => faulty(() => bucket.set(key, value)),
    delete: (key) => faulty(() => bucket.delete(key)),
    exists: (key) => faulty(() => bucket.exists(key)),
    keys: () => faulty(() => allKeys(bucket)),
    increment: (key, by) => faulty(() => Number(atomics.increment(bucket, key, BigInt(by)))),
    getMany: (keys) => faulty(() => batch.getMany(bucket, keys).map((entry) => entry?.[1])),
    setMany: (entries) => faulty(() => batch.setMany(bucket, entries)),
    deleteMany: (keys) => faulty(() => batch.deleteMany(bucket, keys)),
  };
}

function allKeys(bucket: store.Bucket): string[] {
  const keys: string[] = [];
  let cursor: bigint | undefined;
  do {
    const page = bucket.listKeys(cursor);
    keys.push(...page.keys);
    cursor = page.cursor;
  } while (cursor !== undefined);
  return keys;
}

function faulty<Value>(call: () => Value): Value {
  try {
    return call();
  } catch (error) {
    const fault = payload<store.Error>(error);
    throw new Fault(fault.tag, fault.tag === "other" ? fault.val : "");
  }
}

function readFile(path: string): Uint8Array | undefined {
  const [folder, name] = granted(path);
  const file = absentOr(`${path} cannot be read`, () => folder.openAt({ symlinkFollow: true }, name, {}, { read: true }));
  if (file === undefined) return undefined;
  const parts: Uint8Array[] = [];
  let offset = 0n;
  for (let isEnd = false; !isEnd; ) {
    const [part, end] = fallible(`${path} cannot be read`, () => file.read(READ_BYTES, offset));
    parts.push(part);
    offset += BigInt(part.length);
    isEnd = end;
  }
  return joined(parts, Number(offset));
}

function writeFile(path: string, bytes: Uint8Array): void {
  const what = `${path} cannot be written`;
  const [folder, name] = granted(path);
  const open = () => folder.openAt({ symlinkFollow: true }, name, { create: true, truncate: true }, { write: true });
  let file = absentOr(what, open);
  if (file === undefined) {
    createParents(folder, name, what);
    file = fallible(what, open);
  }
  let written = 0;
  while (written < bytes.length) {
    const rest = bytes.subarray(written);
    const opened = file;
    written += Number(fallible(what, () => opened.write(rest, BigInt(written))));
  }
  const opened = file;
  fallible(what, () => opened.sync());
}

function createParents(folder: Descriptor, name: string, what: string): void {
  const parts = name.split("/").slice(0, -1);
  for (let count = 1; count <= parts.length; count++) {
    const create = () => folder.createDirectoryAt(parts.slice(0, count).join("/"));
    expecting("exist", what, create);
  }
}

function listFiles(path: string): string[] {
  const what = `${path} cannot be listed`;
  const [folder, name] = granted(path);
  const open = () => folder.openAt({ symlinkFollow: true }, name || ".", { directory: true }, { read: true });
  const entries = fallible(what, () => open().readDirectory());
  const names: string[] = [];
  for (;;) {
    const entry = fallible(what, () => entries.readDirectoryEntry());
    if (entry === undefined) return names;
    names.push(entry.name);
  }
}

function removeFile(path: string): void {
  const [folder, name] = granted(path);
  absentOr(`${path} cannot be removed`, () => folder.unlinkFileAt(name));
}

/** Return the granted directory of `path`, and the path in the directory. The innermost directory counts. */
function granted(path: string): [Descriptor, string] {
  const within = getDirectories()
    .map(([folder, name]): [Descriptor, string] => [folder, name.endsWith("/") ? name : `${name}/`])
    .filter(([, prefix]) => `${path}/`.startsWith(prefix))
    .sort(([, a], [, b]) => b.length - a.length);
  const [found] = within;
  if (found === undefined) throw new Denied(`${path} is not in a granted directory`);
  return [found[0], path.slice(found[1].length).replace(/\/+$/, "")];
}

/** Return the result of `call`; undefined if the file does not exist. */
function absentOr<Value>(what: string, call: () => Value): Value | undefined {
  return expecting("no-entry", what, call);
}

function fallible<Value>(what: string, call: () => Value): Value {
  return expecting("", what, call) as Value;
}

/** Return the result of `call`; undefined for the expected error. */
function expecting<Value>(expected: string, what: string, call: () => Value): Value | undefined {
  try {
    return call();
  } catch (error) {
    const code = payload<string>(error);
    if (code === expected) return undefined;
    throw failureOf(code, what);
  }
}

function failureOf(code: string, what: string): Failure {
  if (["access", "not-permitted", "read-only"].includes(code)) {
    const access = what.endsWith("written") || what.endsWith("removed") ? ' with access = "write"' : "";
    return new Denied(`${what} (${code}); grant its directory${access}`);
  }
  return new Retryable(`${what}: ${code}`);
}

function joined(parts: Uint8Array[], length: number): Uint8Array {
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

// The functions of the host that the SDK calls, as jco offers the interfaces of wit/ to JavaScript. A `result` is returned,
// or its error is thrown as the `payload` of an error.

declare module "campanile:task/run-info@0.1.0" {
  interface Instant {
    seconds: bigint;
    nanoseconds: number;
  }
  export function executionId(): string;
  export function runId(): string;
  export function taskName(): string;
  export function attempt(): number;
  export function isRecovery(): boolean;
  export function scheduledFor(): Instant;
  export function originalScheduledTime(): Instant;
  export function deadline(): Instant | undefined;
  export function cancelRequested(): boolean;
  export function reportProgress(percent: number | undefined, message: string): void;
}

declare module "campanile:task/session@0.1.0" {
  import type { Bucket } from "wasi:keyvalue/store@0.2.0-draft";
  export function open(identifier: string): Bucket;
}

declare module "campanile:task/outbox@0.1.0" {
  export interface Message {
    method: string;
    url: string;
    headers: [string, string][];
    body: Uint8Array;
  }
  export function send(message: Message): string;
  export type Error = { tag: "access-denied" } | { tag: "refused"; val: string };
}

declare module "wasi:logging/logging@0.1.0-draft" {
  export function log(
    level: "trace" | "debug" | "info" | "warn" | "error" | "critical",
    context: string,
    message: string,
  ): void;
}

declare module "wasi:config/store@0.2.0-rc.1" {
  export function get(key: string): string | undefined;
}

declare module "wasi:keyvalue/store@0.2.0-draft" {
  export function open(identifier: string): Bucket;
  export interface Bucket {
    get(key: string): Uint8Array | undefined;
    set(key: string, value: Uint8Array): void;
    delete(key: string): void;
    exists(key: string): boolean;
    listKeys(cursor: bigint | undefined): { keys: string[]; cursor?: bigint };
  }
  export type Error = { tag: "no-such-store" } | { tag: "access-denied" } | { tag: "other"; val: string };
}

declare module "wasi:keyvalue/atomics@0.2.0-draft" {
  import type { Bucket } from "wasi:keyvalue/store@0.2.0-draft";
  export function increment(bucket: Bucket, key: string, delta: bigint): bigint;
}

declare module "wasi:keyvalue/batch@0.2.0-draft" {
  import type { Bucket } from "wasi:keyvalue/store@0.2.0-draft";
  export function getMany(bucket: Bucket, keys: string[]): ([string, Uint8Array] | undefined)[];
  export function setMany(bucket: Bucket, entries: [string, Uint8Array][]): void;
  export function deleteMany(bucket: Bucket, keys: string[]): void;
}

declare module "wasi:filesystem/preopens@0.2.12" {
  import type { Descriptor } from "wasi:filesystem/types@0.2.12";
  export function getDirectories(): [Descriptor, string][];
}

declare module "wasi:filesystem/types@0.2.12" {
  export interface Descriptor {
    openAt(
      pathFlags: { symlinkFollow?: boolean },
      path: string,
      openFlags: { create?: boolean; directory?: boolean; exclusive?: boolean; truncate?: boolean },
      flags: { read?: boolean; write?: boolean },
    ): Descriptor;
    read(length: bigint, offset: bigint): [Uint8Array, boolean];
    write(buffer: Uint8Array, offset: bigint): bigint;
    sync(): void;
    readDirectory(): { readDirectoryEntry(): { type: string; name: string } | undefined };
    createDirectoryAt(path: string): void;
    unlinkFileAt(path: string): void;
  }
  export type ErrorCode = string;
}

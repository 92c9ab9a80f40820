/**
 * Write tasks for Campanile in TypeScript.
 *
 *     import { Package, t } from "campanile";
 *
 *     export const hello = new Package("hello", "0.1.0");
 *
 *     hello.task("hello", { context: t.object({ name: t.string() }) }, (run, { name }) => {
 *       run.info(`hello for the slot ${run.slot}`);
 *       return { message: `Hello, ${name}!` };
 *     });
 *
 *     export const { describe, task } = hello.exports();
 *
 * `jco componentize` builds the module that has this. `campanile/testing` calls a task without a host.
 *
 * @module
 */

export { Bucket } from "./bucket.js";
export type { Schema } from "./context.js";
export { ContextError, Denied, Failure, Permanent, Retryable } from "./failures.js";
export type { Manifest, Requests, Schedule, Task } from "./manifest.js";
export type { MessageOptions } from "./outbox.js";
export { Completion, Package, type TaskOptions } from "./package.js";
export type { Run } from "./run.js";

export * as files from "./files.js";
export * as http from "./http.js";
export * as t from "./context.js";

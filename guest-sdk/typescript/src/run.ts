/** The run that a task is called in. */

import { Bucket } from "./bucket.js";
import { current } from "./host.js";
import { type MessageOptions, send } from "./outbox.js";

/** Facts about the current run, its log, its progress, and what the operator granted it. */
export class Run {
  /** `context` is the whole context, with the keys that the host sets. */
  constructor(readonly context: Readonly<Record<string, unknown>>) {}

  /** The id of the launch. It is the same for every run of one slot: use it as an idempotency key. */
  get executionId(): string {
    return current().executionId;
  }

  /** The id of this run. The new run of a recovered launch has a new id. */
  get runId(): string {
    return current().runId;
  }

  get taskName(): string {
    return current().taskName;
  }

  /** The number of this call of the task for this launch, from 1. */
  get attempt(): number {
    return current().attempt;
  }

  /** Whether an earlier run was lost with its host. Some of its effects may have happened. */
  get isRecovery(): boolean {
    return current().isRecovery;
  }

  /** The time at which the host should start this run: the slot plus jitter. */
  get scheduledTime(): Date {
    return current().scheduledTime;
  }

  /** The slot. It is the same for every run of a launch, however late the run is. */
  get originalScheduledTime(): Date {
    return current().originalScheduledTime;
  }

  /** The slot as the host writes it, such as `2026-11-21T02:00:00Z`. */
  get slot(): string {
    return String(this.context["original_scheduled_time"]);
  }

  /** The output of the last run that succeeded; undefined before the first. */
  get lastResult(): unknown {
    return this.context["last_result"] ?? undefined;
  }

  /** The time at which the host stops this call. */
  get deadline(): Date | undefined {
    return current().deadline;
  }

  /** Whether this run was asked to stop. The host stops it at the deadline in any case. */
  get cancelRequested(): boolean {
    return current().cancelRequested;
  }

  /** Return the value of a configuration key or a secret that the sidecar grants; undefined without a grant. */
  config(name: string): string | undefined {
    return current().config(name);
  }

  /** Open a bucket that the sidecar grants. Throws `Denied` without a grant. */
  bucket(name: string): Bucket {
    return new Bucket(name);
  }

  /**
   * Open a bucket in the session of this call: what it writes is kept if and only if the call succeeds.
   *
   * The host commits the session together with the success of the call. Reads through this bucket see the writes of the
   * session. If another call has changed a value that the session read, this call fails and is retried. Throws `Denied`
   * without a grant.
   */
  sessionBucket(name: string): Bucket {
    return new Bucket(name, (name) => current().openSessionBucket(name));
  }

  /**
   * Hand over a message: the host delivers it if and only if this call succeeds. Return the message's id.
   *
   * Each delivery has the header `Idempotency-Key` with the id. A retry or a recovery of the call sends the same ids in the
   * same order. Throws `Denied` without a grant for the address, and `Permanent` if the message is not valid.
   */
  send(url: string, options?: MessageOptions): string {
    return send(url, options);
  }

  /** Report the progress, from 0 to 100 percent if it is known. */
  progress(percent: number | undefined, message = ""): void {
    current().reportProgress(percent, message);
  }

  debug(message: string): void {
    current().log("debug", "", message);
  }

  info(message: string): void {
    current().log("info", "", message);
  }

  warn(message: string): void {
    current().log("warn", "", message);
  }

  error(message: string): void {
    current().log("error", "", message);
  }
}

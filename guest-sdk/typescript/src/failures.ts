/** The failures that a task can throw. Any other error is a bug: it ends the call, and its stack is recorded. */

/** More about a failure. */
export interface FailureOptions {
  /** The least time before the next attempt, in seconds. */
  retryAfter?: number | undefined;
  /** Any JSON value, for programs. */
  details?: unknown;
  /** The error that led to the failure. */
  cause?: unknown;
}

/** A failure with a message for the person who reads it. Throw one of its kinds. */
export abstract class Failure extends Error {
  abstract readonly retryable: boolean;
  readonly kind: string | undefined;
  readonly retryAfter: number | undefined;
  readonly details: unknown;

  constructor(message: string, { retryAfter, details, cause }: FailureOptions = {}) {
    super(message, cause === undefined ? {} : { cause });
    this.name = new.target.name;
    this.retryAfter = retryAfter;
    this.details = details;
  }
}

/** The same call may succeed later. The host retries it, with increasing pauses. */
export class Retryable extends Failure {
  override readonly retryable = true;
}

/** A retry cannot help. The host does not retry the call. */
export class Permanent extends Failure {
  override readonly retryable: boolean = false;
}

/** The sidecar does not grant something that the task needs. */
export class Denied extends Permanent {
  override readonly kind: string = "denied";
}

/** The context does not have the type that the task declares. */
export class ContextError extends Permanent {}

/** Return the details with the kind of the failure, as JSON. */
export function detailsJson({ kind, details }: Failure): string | undefined {
  if (kind === undefined) return details === undefined ? undefined : JSON.stringify(details);
  const isObject = typeof details === "object" && details !== null && !Array.isArray(details);
  return JSON.stringify({ kind, ...(isObject ? details : details === undefined ? {} : { details }) });
}

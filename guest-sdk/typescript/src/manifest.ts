/** The manifest of a package, as `wit/manifest.schema.json` has it. It grants nothing. */

export interface Manifest {
  name: string;
  version: string;
  language?: string;
  summary?: string;
  tasks?: Task[];
  schedules?: Schedule[];
  /** A JSON Schema of the context, for people and editors. */
  context_schema?: object;
  requests?: Requests;
}

export interface Task {
  /** Lower-case letters, digits, `_` and `-`. */
  id: string;
  summary?: string;
  depends_on?: string[];
  /** The limit of one call, such as `30s`. */
  timeout?: string;
  /** The attempts of a task that fails retryably, including the first. */
  max_attempts?: number;
}

/** A schedule that the package proposes: its rule, and its policies. */
export type Schedule = Rule & Policies;

type Rule =
  | { cron: string; day_match?: "or" | "and" }
  | { every: string; anchor?: string }
  | { at: string }
  | { after_completion: string };

interface Policies {
  name?: string;
  /** Launch only this task and its dependencies. */
  task?: string;
  /** An IANA time zone; UTC by default. */
  timezone?: string;
  dst_gap?: "shift" | "skip";
  dst_fold?: "first" | "second" | "both";
  exclude?: string[];
  catchup?: "latest" | "none" | "earliest" | "all" | "execute" | "skip" | "run_all" | "execute_with_delay";
  catchup_window?: string;
  catchup_max?: number;
  catchup_spread?: string;
  misfire_grace?: string;
  overlap?: "skip" | "buffer_one" | "buffer_all" | "cancel_other" | "terminate_other" | "allow";
  max_buffered?: number;
  keep?: "first" | "latest";
  max_concurrent?: number;
  cancel_grace?: string;
  delivery?: "at_least_once" | "at_most_once";
  jitter?: string;
  start_at?: string;
  end_at?: string;
  max_launches?: number;
  pause_on_failure?: number;
  priority?: number;
  group?: string;
  run_on?: string[];
  retention?: string;
  /** The time after a slot within which a launch must have succeeded. */
  expect_within?: string;
  /** The most calls of each task in one launch. */
  max_attempts?: number;
  backoff?: string;
  backoff_coefficient?: number;
  backoff_max?: string;
  retry_expiration?: string;
  non_retryable?: ("failed" | "trapped" | "timed_out" | "memory_exceeded" | "host_error")[];
  context?: Record<string, unknown>;
}

/** The grants that the package needs. */
export interface Requests {
  directories?: { guest: string; access?: "read" | "write"; reason?: string }[];
  env?: string[];
  http?: { scheme?: "http" | "https"; host: string; private?: boolean; reason?: string }[];
  config?: string[];
  keyvalue?: { bucket: string; access?: "read" | "write"; reason?: string }[];
  sockets?: { protocol?: "tcp" | "udp"; host: string; port: number; private?: boolean; reason?: string }[];
}

/** A package: its tasks, and the functions that the host calls. */

import { read, type Schema } from "./context.js";
import { detailsJson, Failure, Permanent, Retryable } from "./failures.js";
import { current, provide } from "./host.js";
import { dumps } from "./json.js";
import * as logs from "./logs.js";
import type { Manifest, Task } from "./manifest.js";
import { Run } from "./run.js";
import { wasi } from "#wasi";

/** The result of a task that passes keys to the tasks that depend on it. */
export class Completion {
  readonly output: unknown;
  readonly context: Record<string, unknown> | undefined;

  constructor({ output, context }: { output?: unknown; context?: Record<string, unknown> }) {
    this.output = output;
    this.context = context;
  }
}

/** What a package declares of a task. */
export interface TaskOptions<Context> extends Omit<Task, "id"> {
  /** The type of the context, such as `t.object({ name: t.string() })`. Without it, the task gets the whole context. */
  context?: Schema<Context>;
}

type Body<Context> = (run: Run, context: Context) => unknown;

/** A task: its function, which takes the context as the host gives it, and its entry in the manifest. */
interface TaskFunction {
  call(run: Run): Promise<unknown>;
  entry: Omit<Task, "id">;
}

/** The functions of the contract, as the engine takes them. */
export interface Exports {
  describe: { describe(): string };
  task: { run(task: string, context: string): Promise<{ output: string | undefined; context: string | undefined }> };
}

/** A package with tasks. */
export class Package {
  readonly tasks = new Map<string, TaskFunction>();
  readonly #manifest: Manifest;

  /** `manifest` has more keys of the manifest, such as `schedules` and `requests`. It grants nothing. */
  constructor(
    readonly name: string,
    readonly version: string,
    manifest: Omit<Manifest, "name" | "version" | "tasks"> = {},
  ) {
    this.#manifest = { name, version, ...manifest };
  }

  /**
   * Add a task. Its function takes the run and the context, and may be async. It returns the output as a JSON value, or a
   * `Completion`.
   */
  task(id: string, run: Body<Readonly<Record<string, unknown>>>): void;
  task<Context = Readonly<Record<string, unknown>>>(
    id: string,
    options: TaskOptions<Context>,
    run: Body<Context>,
  ): void;
  task<Context>(id: string, options: TaskOptions<Context> | Body<Context>, run?: Body<Context>): void {
    if (typeof options === "function") return this.task(id, {}, options);
    if (run === undefined) throw new TypeError(`the task "${id}" has no function`);
    if (this.tasks.has(id)) throw new Error(`the package has two tasks named "${id}"; give one another id`);
    const { context, ...entry } = options;
    const typed = async (of: Run) => (context ? await read(of.context, context) : (of.context as Context));
    this.tasks.set(id, { entry, call: async (of) => run(of, await typed(of)) });
  }

  /** Return the manifest of the package. */
  manifest(): Manifest {
    if (this.tasks.size === 0) throw new Error(`the package "${this.name}" has no task; add one with \`task\``);
    const tasks = [...this.tasks].map(([id, { entry }]) => ({ id, ...entry }));
    return { ...this.#manifest, tasks };
  }

  /** Call a task. Throws a `Failure` for what the task foresaw. */
  async call(task: string, context: Record<string, unknown>): Promise<Completion> {
    const found = this.tasks.get(task);
    if (found === undefined) {
      throw new Permanent(`the package has no task "${task}"; it has ${[...this.tasks.keys()].join(", ")}`);
    }
    const result = await found.call(new Run(context));
    return result instanceof Completion ? result : new Completion({ output: result });
  }

  /** Return what the module of the component exports: `export const { describe, task } = hello.exports();`. */
  exports(): Exports {
    if (wasi !== undefined) {
      logs.install();
      provide(() => wasi);
    }
    return {
      describe: { describe: () => dumps(this.manifest()) },
      task: { run: (task, context) => this.#run(task, context) },
    };
  }

  async #run(task: string, context: string) {
    try {
      const { output, context: passed } = await this.call(task, JSON.parse(context));
      return { output: json(output), context: json(passed) };
    } catch (error) {
      throw contractFailure(error instanceof Failure ? error : bug(error));
    }
  }
}

function json(value: unknown): string | undefined {
  return value === undefined ? undefined : dumps(value);
}

/** Return the failure of an error that the task did not foresee: its name and where it was thrown. The stack is logged. */
function bug(error: unknown): Failure {
  const stack = error instanceof Error ? logs.withStack(error) : String(error);
  current().log("error", "", stack);
  const place = /[^\s(]+:\d+:\d+/.exec(stack);
  return new Retryable(`${error}${place ? ` (${place[0].replace(/^@/, "")})` : ""}`, { cause: error });
}

/** Return the failure as the contract has it: the engine takes a thrown object for a `failure`. */
function contractFailure(failure: Failure) {
  const { message, retryable, retryAfter } = failure;
  return {
    message,
    retryable,
    retryAfterMs: retryAfter === undefined ? undefined : BigInt(Math.max(0, Math.trunc(retryAfter * 1000))),
    details: detailsJson(failure),
  };
}

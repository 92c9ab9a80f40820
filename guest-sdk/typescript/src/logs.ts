/** `console`, to the log of the launch. */

import { current, type Level } from "./host.js";

export const LEVELS = {
  debug: "debug",
  log: "info",
  info: "info",
  warn: "warn",
  error: "error",
} as const satisfies Partial<Record<keyof Console, Level>>;

/** Let `console` send to the host. */
export function install(): void {
  for (const [method, level] of Object.entries(LEVELS) as [keyof typeof LEVELS, Level][]) {
    console[method] = (...values: unknown[]) => current().log(level, "", line(values));
  }
}

/** Return the arguments of `console.log` as one line: texts as they are, errors with their stack, the rest as JSON. */
export function line(values: unknown[]): string {
  return values.map(shown).join(" ");
}

function shown(value: unknown): string {
  if (typeof value === "string") return value;
  if (value instanceof Error) return withStack(value);
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    // A cycle, or a BigInt.
    return String(value);
  }
}

/** Return the error and its stack. The stack begins with the error in some engines, and not in others. */
export function withStack(error: Error): string {
  const stack = error.stack ?? "";
  return (stack.startsWith(String(error)) ? stack : `${error}\n${stack}`).trimEnd();
}

/** Return why a request failed: the message of an error with those of its causes, or the case that the host names. */
export function reason(error: unknown): string {
  if (error instanceof Error) {
    const { cause, message: text } = error;
    return [text, cause === undefined ? "" : reason(cause)].filter((part) => part !== "").join(": ") || error.name;
  }
  if (typeof error !== "object" || error === null) return String(error);
  const { tag, val, payload } = error as { tag?: unknown; val?: unknown; payload?: unknown };
  if (tag === undefined) return payload === undefined ? "the host gave no reason" : reason(payload);
  const details = val === undefined ? "" : typeof val === "object" ? JSON.stringify(val) : String(val);
  return [String(tag).replaceAll("-", " "), details].filter((part) => part !== "").join(": ");
}

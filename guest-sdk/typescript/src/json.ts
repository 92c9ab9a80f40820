/** JSON without the silent losses of `JSON.stringify`. */

/** Return `value` as JSON. Throws a `TypeError` for what JSON does not have, such as `NaN` or a `Map`. */
export function dumps(value: unknown): string {
  return JSON.stringify(value, refuse);
}

function refuse(key: string, value: unknown): unknown {
  if (isJson(value)) return value;
  const kind = typeof value === "object" ? value?.constructor.name : typeof value === "number" ? value : typeof value;
  throw new TypeError(`${key ? `\`${key}\`: ` : ""}${kind} is not a JSON value`);
}

function isJson(value: unknown): boolean {
  switch (typeof value) {
    case "number":
      return Number.isFinite(value);
    case "string":
    case "boolean":
      return true;
    case "undefined":
      // An absent key of an object.
      return true;
    case "object":
      return !(value instanceof Map || value instanceof Set || ArrayBuffer.isView(value) || value instanceof Promise);
    default:
      return false;
  }
}

/**
 * The types of contexts: `t.object({ name: t.string(), count: t.integer().default(1) })`.
 *
 * TypeScript's own types do not exist when a task runs, so a task declares its context with these. A schema of zod,
 * valibot or arktype is as good: they share the interface `Schema`, the Standard Schema.
 */

import { ContextError } from "./failures.js";

/** What validates a context: the Standard Schema, version 1. */
export interface Schema<Value> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Validated<Value> | Promise<Validated<Value>>;
    readonly types?: { readonly input: unknown; readonly output: Value } | undefined;
  };
}

type Validated<Value> = { readonly value: Value; readonly issues?: undefined } | { readonly issues: readonly Issue[] };

interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** The TypeScript type of a schema: `type Params = t.Infer<typeof Params>`. */
export type Infer<Of> = Of extends Schema<infer Value> ? Value : never;

/** Read `value` as `schema` has it. Throws a `ContextError` that names the key. */
export async function read<Value>(value: unknown, schema: Schema<Value>): Promise<Value> {
  const validated = await schema["~standard"].validate(value);
  if (validated.issues === undefined) return validated.value;
  throw new ContextError(validated.issues.map(issueText).join("; "));
}

function issueText({ message, path }: Issue): string {
  const keys = (path ?? []).map((part) => String(typeof part === "object" ? part.key : part));
  return keys.length === 0 ? message : `\`${keys.join(".")}\`: ${message}`;
}

/** A type of JSON values. */
export class Type<Value> implements Schema<Value> {
  readonly "~standard": Schema<Value>["~standard"];

  /** `read` returns the value or throws a `ContextError`. `absent` returns the value of an absent key, if it has one. */
  constructor(
    readonly read: (value: unknown, path: string) => Value,
    readonly absent?: () => Value,
  ) {
    this["~standard"] = { version: 1, vendor: "campanile", validate: (value) => this.#validate(value) };
  }

  /** Allow the key to be absent or null. */
  optional(): Type<Value | undefined> {
    return new Type<Value | undefined>((value, path) => (value === null ? undefined : this.read(value, path)), () => undefined);
  }

  /** Replace an absent key or a null. */
  default(value: Value): Type<Value> {
    return new Type((given, path) => (given === null ? value : this.read(given, path)), () => value);
  }

  /** Require more of the value: `t.integer().check((count) => count > 0, "at least 1")`. */
  check(is: (value: Value) => boolean, expected: string): Type<Value> {
    const read = (given: unknown, path: string) => {
      const value = this.read(given, path);
      if (!is(value)) throw wrong(given, expected, path);
      return value;
    };
    return new Type(read, this.absent);
  }

  #validate(value: unknown): Validated<Value> {
    try {
      return { value: this.read(value, "") };
    } catch (error) {
      if (error instanceof ContextError) return { issues: [{ message: error.message }] };
      throw error;
    }
  }
}

export function string(): Type<string> {
  return expected("a text", (value) => typeof value === "string");
}

export function number(): Type<number> {
  return expected("a number", (value) => typeof value === "number");
}

/** A whole number that JavaScript has exactly: up to 2^53 - 1. */
export function integer(): Type<number> {
  return expected("a whole number", Number.isSafeInteger);
}

export function boolean(): Type<boolean> {
  return expected("true or false", (value) => typeof value === "boolean");
}

/** Any JSON value. */
export function any(): Type<unknown> {
  return new Type((value) => value);
}

/** One of these values. */
export function literal<const Choice extends string | number | boolean | null>(...choices: Choice[]): Type<Choice> {
  const words = choices.map((choice) => JSON.stringify(choice)).join(" or ");
  return expected(words, (value) => choices.includes(value as Choice));
}

export function array<Item>(item: Type<Item>): Type<Item[]> {
  return new Type((value, path) => {
    if (!Array.isArray(value)) throw wrong(value, "a list", path);
    return value.map((part, at) => item.read(part, `${path}[${at}]`));
  });
}

/** An object with any keys, whose values have one type. */
export function record<Value>(of: Type<Value>): Type<Record<string, Value>> {
  return new Type((value, path) => {
    const entries = Object.entries(asObject(value, path));
    return Object.fromEntries(entries.map(([key, part]) => [key, of.read(part, below(path, key))]));
  });
}

/** An object with these keys. Other keys are ignored, because the host sets some. */
export function object<Shape extends Record<string, Type<unknown>>>(
  shape: Shape,
): Type<{ [Key in keyof Shape]: Infer<Shape[Key]> }> {
  return new Type((value, path) => {
    const given = asObject(value, path);
    const found = Object.entries(shape).map(([key, type]) => [key, readKey(given, key, type, below(path, key))]);
    return Object.fromEntries(found) as { [Key in keyof Shape]: Infer<Shape[Key]> };
  });
}

/** A value of one of these types. The failure is that of the first. */
export function union<Of extends [Type<unknown>, ...Type<unknown>[]]>(...types: Of): Type<Infer<Of[number]>> {
  return new Type((value, path) => {
    let first: unknown;
    for (const type of types) {
      try {
        return type.read(value, path) as Infer<Of[number]>;
      } catch (error) {
        first ??= error;
      }
    }
    throw first;
  });
}

function readKey(given: object, key: string, type: Type<unknown>, path: string): unknown {
  if (Object.hasOwn(given, key)) return type.read(given[key as keyof object], path);
  if (type.absent) return type.absent();
  throw new ContextError(`the context has no \`${path}\`; set it in the schedule's context`);
}

function expected<Value>(words: string, is: (value: unknown) => boolean): Type<Value> {
  return new Type((value, path) => {
    if (!is(value)) throw wrong(value, words, path);
    return value as Value;
  });
}

function asObject(value: unknown, path: string): object {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw wrong(value, "an object", path);
  return value;
}

function below(path: string, key: string): string {
  return path ? `${path}.${key}` : key;
}

function wrong(value: unknown, words: string, path: string): ContextError {
  const where = path ? `\`${path}\`` : "the context";
  return new ContextError(`${where} must be ${words}, not ${JSON.stringify(value)}`);
}

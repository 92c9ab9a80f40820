import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { ContextError, t, type Schema } from "campanile";

const Point = t.object({ x: t.integer(), y: t.number().default(0) });

const Params = t.object({
  name: t.string(),
  count: t.integer().check((count) => count >= 1, "at least 1").default(1),
  mode: t.literal("fast", "exact").default("fast"),
  points: t.array(Point).default([]),
  labels: t.record(t.string()).default({}),
  limit: t.integer().optional(),
  verbose: t.boolean().default(false),
});

/** The types are those of TypeScript: `tsc` refuses this file otherwise. */
const typed: t.Infer<typeof Params> = {
  name: "a",
  count: 1,
  mode: "fast",
  points: [{ x: 1, y: 2 }],
  labels: { k: "v" },
  limit: undefined,
  verbose: false,
};

describe("contexts", () => {
  test("a context has the declared type", async () => {
    const value = {
      name: "a",
      points: [{ x: 1, y: 2 }, { x: 3 }],
      labels: { k: "v" },
      limit: null,
      execution_id: "set by the host",
    };
    const expected = { ...typed, points: [{ x: 1, y: 2 }, { x: 3, y: 0 }] };
    assert.deepEqual(await t.read(value, Params), expected);
    assert.deepEqual(await t.read({ a: [1] }, t.record(t.array(t.integer()))), { a: [1] });
    assert.deepEqual(await t.read([1, "a"], t.array(t.union(t.integer(), t.string()))), [1, "a"]);
    assert.deepEqual(await t.read({ any: [1] }, t.any()), { any: [1] });
    assert.equal(await t.read(null, t.literal(null, 7)), null);
  });

  test("a null or an absent key has the default", async () => {
    assert.deepEqual(await t.read({ name: "a", count: null, verbose: null }, Params), {
      ...typed,
      points: [],
      labels: {},
    });
  });

  for (const [value, message] of [
    [{}, "the context has no `name`; set it in the schedule's context"],
    [{ name: 7 }, "`name` must be a text, not 7"],
    [{ name: null }, "`name` must be a text, not null"],
    [{ name: "a", count: true }, "`count` must be a whole number, not true"],
    [{ name: "a", count: 1.5 }, "`count` must be a whole number, not 1.5"],
    [{ name: "a", count: 0 }, "`count` must be at least 1, not 0"],
    [{ name: "a", mode: "slow" }, '`mode` must be "fast" or "exact", not "slow"'],
    [{ name: "a", points: {} }, "`points` must be a list, not {}"],
    [{ name: "a", points: [{ x: 1 }, {}] }, "the context has no `points[1].x`; set it in the schedule's context"],
    [{ name: "a", points: [{ x: 1, y: "2" }] }, '`points[0].y` must be a number, not "2"'],
    [{ name: "a", labels: { k: 1 } }, "`labels.k` must be a text, not 1"],
    [{ name: "a", limit: "x" }, '`limit` must be a whole number, not "x"'],
    [{ name: "a", verbose: 1 }, "`verbose` must be true or false, not 1"],
    [[], "the context must be an object, not []"],
  ] as const) {
    test(`a wrong context is refused: ${message}`, async () => {
      await assert.rejects(t.read(value, Params), (error) => {
        assert.ok(error instanceof ContextError);
        assert.equal(error.message, message);
        assert.equal(error.retryable, false);
        return true;
      });
    });
  }

  test("a value of no type of a union fails as its first type does", async () => {
    await assert.rejects(t.read(true, t.union(t.integer(), t.string())), /must be a whole number, not true/);
  });

  test("a schema of another library is as good", async () => {
    // What zod, valibot and arktype have.
    const even: Schema<number> = {
      "~standard": {
        version: 1,
        vendor: "another",
        validate: async (value) =>
          Number(value) % 2 === 0
            ? { value: Number(value) }
            : { issues: [{ message: "must be even", path: ["pairs", { key: 0 }] }, { message: "is odd" }] },
      },
    };
    assert.equal(await t.read("4", even), 4);
    await assert.rejects(t.read(3, even), { name: "ContextError", message: "`pairs.0`: must be even; is odd" });
  });
});

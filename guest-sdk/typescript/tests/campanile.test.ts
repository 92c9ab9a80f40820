// The SDK's tests: `npm test`. They need no host.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { type AddressInfo } from "node:net";
import { describe, test } from "node:test";

import { Completion, Denied, Package, Permanent, Retryable, type Run, files, http, t } from "campanile";
import { call, reply } from "campanile/testing";

const demo = new Package("demo", "0.1.0", { summary: "A demo", schedules: [{ cron: "0 2 * * *" }] });

demo.task("hello", { context: t.object({ name: t.string() }) }, (run, params) => {
  run.info(`attempt ${run.attempt}`);
  console.warn("slow:", 7, { rows: [1] });
  run.progress(50, "half");
  return { message: `Hello, ${params.name}!` };
});

demo.task("push", { depends_on: ["hello"], max_attempts: 5 }, async (run, context) => {
  const sent = await http.post(String(context["url"]), { json: { slot: run.slot }, idempotencyKey: run.executionId });
  return new Completion({ output: sent.json(), context: { status: sent.status } });
});

demo.task("broken", () => {
  throw new RangeError("url");
});

demo.task("facts", (run) => ({
  slot: run.slot,
  year: run.originalScheduledTime.getUTCFullYear(),
  recovery: run.isRecovery,
  region: run.config("region"),
  stop: run.cancelRequested,
  last: run.lastResult,
}));

/** Return a package with one task, which is `run`. */
function of(run: (run: Run, context: Readonly<Record<string, unknown>>) => unknown): Package {
  const made = new Package("made", "0.1.0");
  made.task("do", run);
  return made;
}

describe("tasks", () => {
  test("a task is called with its context, and its output is JSON", async () => {
    const outcome = await call(demo, "hello", { name: "world" }, { attempt: 3 });
    assert.deepEqual(outcome.output, { message: "Hello, world!" });
    assert.equal(outcome.failure, undefined);
    assert.deepEqual(outcome.host.logs, [
      ["info", "attempt 3"],
      ["warn", 'slow: 7 {"rows":[1]}'],
    ]);
    assert.deepEqual(outcome.host.progress, [[50, "half"]]);
  });

  test("a task reads the facts of its run", async () => {
    const outcome = await call(
      demo,
      "facts",
      { last_result: 7 },
      {
        originalScheduledTime: new Date("2026-11-21T02:00:00Z"),
        isRecovery: true,
        values: { region: "north" },
        cancelRequested: true,
      },
    );
    assert.deepEqual(outcome.output, {
      slot: "2026-11-21T02:00:00Z",
      year: 2026,
      recovery: true,
      region: "north",
      stop: true,
      last: 7,
    });
  });

  test("an expected failure is returned, and a bug is thrown", async () => {
    const outcome = await call(demo, "hello", { name: 7 });
    assert.equal(outcome.failure?.message, "`name` must be a text, not 7");
    await assert.rejects(call(demo, "broken"), RangeError);
    const unknown = await call(demo, "nope");
    assert.match(unknown.failure?.message ?? "", /it has hello, push, broken, facts/);
  });

  test("calls at the same time have a host each", async () => {
    const slow = of(async (run) => {
      await new Promise((resolve) => setTimeout(resolve, 20 / run.attempt));
      run.info(`attempt ${run.attempt}`);
    });
    const outcomes = await Promise.all([1, 2].map((attempt) => call(slow, "do", {}, { attempt })));
    assert.deepEqual(
      outcomes.map(({ host }) => host.logs),
      [[["info", "attempt 1"]], [["info", "attempt 2"]]],
    );
  });

  test("without a host the error says what to do", async () => {
    let kept: Run | undefined;
    await call(of((run) => void (kept = run)), "do");
    assert.throws(() => kept?.info("lost"), /call the task with `call` of `campanile\/testing`/);
  });
});

describe("manifests", () => {
  test("the manifest has the tasks in order", () => {
    const manifest = JSON.parse(demo.exports().describe.describe());
    assert.equal(manifest.name, "demo");
    assert.equal(manifest.summary, "A demo");
    assert.deepEqual(manifest.schedules, [{ cron: "0 2 * * *" }]);
    assert.deepEqual(manifest.tasks.slice(0, 2), [
      { id: "hello" },
      { id: "push", depends_on: ["hello"], max_attempts: 5 },
    ]);
  });

  test("a package that cannot work is refused", () => {
    const empty = new Package("empty", "0.1.0");
    assert.throws(() => empty.manifest(), /has no task/);
    empty.task("a", () => undefined);
    assert.throws(() => empty.task("a", () => undefined), /two tasks named "a"/);
  });

  const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");
  const schema = JSON.parse(read("../../wit/manifest.schema.json"));
  const types = read("src/manifest.ts");

  for (const [name, from, to, properties] of [
    ["Manifest", "interface Manifest", "interface Task", schema.properties],
    ["Task", "interface Task", "type Schedule", schema.$defs.task.properties],
    ["Schedule", "type Schedule", "interface Requests", schema.$defs.schedule.properties],
    ["Requests", "interface Requests", undefined, schema.$defs.requests.properties],
  ] as const) {
    test(`the type ${name} has every key of the schema`, () => {
      const text = types.slice(types.indexOf(from), to && types.indexOf(to));
      const keys = [properties, ...Object.values<any>(properties).map((of) => of.items?.properties)].flatMap((of) =>
        Object.keys(of ?? {}),
      );
      assert.ok(keys.length > 4, `${keys}`);
      assert.deepEqual(
        keys.filter((key) => !new RegExp(`\\b${key}\\??:`).test(text)),
        [],
      );
    });
  }
});

describe("the contract", () => {
  const { task } = of((_, context) => {
    const kind = context["kind"];
    if (kind === "denied") throw new Denied("no", { details: { host: "a" } });
    if (kind === "later") throw new Retryable("busy", { retryAfter: 1.5 });
    if (kind === "bug") throw new RangeError("a bug");
    return kind === "nothing" ? undefined : new Completion({ output: [1], context: { rows: 2 } });
  }).exports();

  const run = (kind: string) => task.run("do", JSON.stringify({ kind }));

  test("a completion is JSON", async () => {
    assert.deepEqual(await run("ok"), { output: "[1]", context: '{"rows":2}' });
    assert.deepEqual(await run("nothing"), { output: undefined, context: undefined });
  });

  test("a failure is thrown as the engine takes it", async () => {
    await assert.rejects(run("denied"), {
      message: "no",
      retryable: false,
      retryAfterMs: undefined,
      details: '{"kind":"denied","host":"a"}',
    });
    await assert.rejects(run("later"), { message: "busy", retryable: true, retryAfterMs: 1500n, details: undefined });
  });

  test("a bug is a failure that names the error and its place, and its stack is logged", async () => {
    let thrown: unknown;
    const attempt = of(() => run("bug").catch((error) => void (thrown = error)));
    const { host } = await call(attempt, "do");
    const { message, retryable } = thrown as { message: string; retryable: boolean };
    assert.match(message, /^RangeError: a bug \(.*campanile\.test\.js:\d+:\d+\)$/);
    assert.equal(retryable, true);
    const [log] = host.logs;
    assert.match(log?.join(" ") ?? "", /^error RangeError: a bug\n(?!RangeError)/);
  });

  test("the details of a denial that are no object have their own key", async () => {
    const denied = of(() => {
      throw new Denied("no", { details: [1] });
    });
    await assert.rejects(denied.exports().task.run("do", "{}"), { details: '{"kind":"denied","details":[1]}' });
  });
});

describe("HTTP", () => {
  const URL = "https://hooks.example/primes";

  const push = (answer?: Response | Retryable) =>
    call(demo, "push", { url: URL }, { replies: answer ? { [`POST ${URL}`]: answer } : {} });

  test("a request is one line", async () => {
    const outcome = await push(reply(200, { json: { ok: true } }));
    assert.deepEqual([outcome.output, outcome.context], [{ ok: true }, { status: 200 }]);
    const [sent] = outcome.host.requests;
    assert.deepEqual(JSON.parse(sent?.body ?? ""), { slot: "2026-01-01T00:00:00Z" });
    assert.equal(sent?.headers.get("content-type"), "application/json");
    assert.equal(sent?.headers.get("idempotency-key"), outcome.host.executionId);
  });

  for (const [what, answer, kind, after] of [
    ["503", reply(503, { headers: { "Retry-After": "7" } }), Retryable, 7],
    ["429", reply(429, { headers: { "Retry-After": "Mon, 23 Nov 2026 00:00:00 GMT" } }), Retryable, undefined],
    ["404", reply(404), Permanent, undefined],
    ["no JSON", reply(200, { body: "<html>" }), Retryable, undefined],
    ["a closed connection", new Retryable("the connection was closed"), Retryable, undefined],
    ["no grant", undefined, Denied, undefined],
  ] as const) {
    test(`the reply decides whether a retry can help: ${what}`, async () => {
      const { failure } = await push(answer);
      assert.equal(failure?.constructor, kind);
      assert.equal(failure?.retryAfter, after);
    });
  }

  test("any reply is returned without the check, and to fetch", async () => {
    const address = "http://a.example/";
    const get = of(async () => {
      const unchecked = await http.get(address, { check: false });
      const { status } = await fetch(address);
      return [unchecked.status, unchecked.text, status];
    });
    const outcome = await call(get, "do", {}, { replies: { [`GET ${address}`]: reply(404, { body: "gone" }) } });
    assert.deepEqual(outcome.output, [404, "gone", 404]);
  });

  test("a request that is no HTTP is a permanent failure", async () => {
    for (const [method, url] of [
      ["GET", "ftp://a.example/"],
      ["GET", "https://"],
      ["a b", "https://a.example/"],
    ] as const) {
      const { failure } = await call(of(() => http.request(method, url)), "do");
      assert.equal(failure?.constructor, Permanent, url);
      assert.match(failure?.message ?? "", /is not a valid request/);
    }
  });
});

describe("results", () => {
  for (const [what, value] of [
    ["a set", new Set([1])],
    ["NaN", { rate: NaN }],
    ["a function", () => 1],
    ["bytes", new Uint8Array(2)],
    ["a promise in an object", { rows: Promise.resolve(1) }],
    ["a map in what is passed on", new Completion({ context: { ids: new Map() } })],
  ] as const) {
    test(`a value that JSON does not have is refused: ${what}`, async () => {
      await assert.rejects(call(of(() => value), "do"), /is not a JSON value/);
    });
  }

  test("a value of JSON is the output, and an absent key is left out", async () => {
    const value = { at: new Date(0), rows: [1, null], none: undefined };
    const outcome = await call(of(() => value), "do");
    assert.deepEqual(outcome.output, { at: "1970-01-01T00:00:00.000Z", rows: [1, null] });
  });
});

describe("sessions and messages", () => {
  const bill = of((run) => {
    const state = run.sessionBucket("state");
    const position = Number(state.getJson("position") ?? 0);
    state.setJson("position", position + 1);
    const again = run.sessionBucket("state").getJson("position");
    const seen = run.bucket("state").getJson("position");
    const first = run.send("https://a.example/1", { json: { cents: 42 }, headers: { "X-Kind": "invoice" } });
    const second = run.send("https://a.example/2", { method: "PUT", body: "text" });
    if (run.attempt === 1) throw new Retryable("later");
    if (run.attempt === 2) throw new RangeError("a bug");
    if (run.attempt === 3) return NaN;
    return [again, seen, first, second];
  });
  const buckets = { state: { position: "7" } };

  test("they are kept if the call succeeds", async () => {
    const { output, host } = await call(bill, "do", {}, { buckets, attempt: 4 });
    assert.deepEqual(output.slice(0, 2), [8, 7], "only the session sees its writes");
    assert.deepEqual(host.buckets, { state: { position: "8" } });
    const sent = host.messages.map(({ method, url, headers, body }) => [method, url, Object.fromEntries(headers), body]);
    const headers = { "content-type": "application/json", "x-kind": "invoice" };
    assert.deepEqual(sent, [
      ["POST", "https://a.example/1", headers, '{"cents":42}'],
      ["PUT", "https://a.example/2", {}, "text"],
    ]);
    const later = await call(bill, "do", {}, { buckets: host.buckets, attempt: 5 });
    assert.deepEqual(later.output.slice(2), output.slice(2), "a repetition sends the same ids");
    assert.notEqual(output[2], output[3]);
  });

  test("they are dropped if the call fails", async () => {
    const { failure, host } = await call(bill, "do", {}, { buckets });
    assert.ok(failure instanceof Retryable);
    assert.deepEqual([host.buckets, host.messages], [buckets, []]);
    await assert.rejects(call(bill, "do", {}, { buckets, attempt: 2 }), RangeError);
    await assert.rejects(call(bill, "do", {}, { buckets, attempt: 3 }), /NaN/);
  });

  test("what is not granted is denied, and a message without an address is refused", async () => {
    const readOnlyBuckets = { facts: {} };
    for (const [run, kind, words] of [
      [(run: Run) => run.sessionBucket("other"), Denied, /`other` is not granted/],
      [(run: Run) => run.sessionBucket("facts").set("a", "b"), Denied, /access = "write"/],
      [(run: Run) => run.send("a.example/1"), Permanent, /^sending the message POST a.example\/1: the address must begin/],
    ] as const) {
      const { failure } = await call(of(run), "do", {}, { readOnlyBuckets });
      assert.ok(failure instanceof kind, String(failure));
      assert.match(failure.message, words);
    }
    const both = of((run) => run.send("https://a.example/", { json: 1, body: "1" }));
    await assert.rejects(call(both, "do"), /not both/);
  });
});

describe("buckets", () => {
  test("a bucket keeps keys and values", async () => {
    const count = of((run) => {
      const bucket = run.bucket("own");
      const last = bucket.getJson("last");
      bucket.setJson("last", { slot: run.slot });
      bucket.setMany([
        ["a", "1"],
        ["bytes", new Uint8Array([255, 0])],
      ]);
      bucket.delete("old");
      const [a, none] = bucket.getMany(["a", "none"]);
      return [last, bucket.increment("calls"), bucket.keys(), bucket.exists("old"), a?.length, none === undefined];
    });
    const facts = { buckets: { own: { calls: "41", old: "x", last: "7" } } };
    const outcome = await call(count, "do", {}, facts);
    assert.deepEqual(outcome.output, [7, 42, ["calls", "last", "a", "bytes"], false, 1, true]);
    assert.deepEqual(outcome.host.buckets["own"], {
      calls: "42",
      last: '{"slot":"2026-01-01T00:00:00Z"}',
      a: "1",
      bytes: new Uint8Array([255, 0]),
    });
    assert.equal(facts.buckets.own.calls, "41", "a call does not change what the test gave");
    const again = await call(count, "do", {}, { buckets: outcome.host.buckets });
    assert.equal(again.output[1], 43);
  });

  test("a bucket without a grant is denied, and so is a write to one for reading alone", async () => {
    const facts = { readOnlyBuckets: { facts: { limit: "1.5" } }, buckets: { own: { text: "seven" } } };
    for (const [use, kind, message] of [
      [(run: Run) => run.bucket("other"), Denied, /`other` is not granted; .* bucket = "other"/],
      [(run: Run) => run.bucket("facts").set("limit", "3"), Denied, /access = "write"/],
      [(run: Run) => run.bucket("facts").increment("n"), Denied, /access = "write"/],
      [(run: Run) => run.bucket("own").increment("text"), Retryable, /^incrementing `text` in the bucket `own`: /],
      [(run: Run) => run.bucket("own").getJson("text"), Permanent, /`text` in the bucket `own` cannot be read/],
    ] as const) {
      const { failure } = await call(of((run) => void use(run)), "do", {}, facts);
      assert.equal(failure?.constructor, kind);
      assert.match(failure?.message ?? "", message);
    }
    const read = await call(of((run) => run.bucket("facts").getJson("limit")), "do", {}, facts);
    assert.equal(read.output, 1.5);
  });
});

describe("files", () => {
  test("files are those of the granted directories", async () => {
    const work = of(() => {
      files.write("/out/2026/report.txt", "new");
      files.remove("/out/old");
      files.remove("/out/never");
      return [files.readText("/in/a.txt"), files.readText("/out/none"), files.list("/in/"), files.list("/out/2026")];
    });
    const facts = {
      directories: { "/out": { old: "x" } },
      readOnlyDirectories: { "/in": { "b/c.txt": "c", "b/d.txt": "d", "a.txt": "a" } },
    };
    const outcome = await call(work, "do", {}, facts);
    assert.deepEqual(outcome.output, ["a", undefined, ["a.txt", "b"], ["report.txt"]].map((part) => part ?? null));
    assert.deepEqual(outcome.host.directories, { "/out": { "2026/report.txt": "new" } });
  });

  test("a path without a grant is denied", async () => {
    for (const use of [
      () => files.read("/input/a"),
      () => files.write("/in/a", "x"),
      () => files.remove("/in/a"),
      () => files.list("/"),
    ]) {
      const { failure } = await call(of(use), "do", {}, { readOnlyDirectories: { "/in": { a: "a" } } });
      assert.equal(failure?.kind, "denied");
    }
  });
});

test("a request that fails without a host has its reason", async () => {
  await assert.rejects(http.get("http://127.0.0.1:1/"), (failure: unknown) => {
    assert.ok(failure instanceof Retryable);
    return /^GET http:\/\/127\.0\.0\.1:1\/: fetch failed: .+/.test(failure.message);
  });
  const server = createServer((_, reply) => {
    reply.writeHead(200, { "content-length": "10" });
    reply.write("part", () => reply.destroy());
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  try {
    await assert.rejects(http.get(`http://127.0.0.1:${port}/`), (failure: unknown) => {
      assert.ok(failure instanceof Retryable);
      return /terminated: other side closed$/.test(failure.message);
    });
  } finally {
    server.close();
  }
});

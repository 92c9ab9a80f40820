// Drives the whole life of a package and its schedules with a client whose types are generated from docs/openapi.json.
//
// The compiler checks each path, parameter, body and answer against the document; this program checks what the host does.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

import createClient from "openapi-fetch";

import type { components, paths } from "./api.js";

const WAIT_MAX_MS = 30_000;

const [, , baseUrl, token] = process.argv;
assert(baseUrl && token, "usage: life.js URL TOKEN");
const headers = { Authorization: `Bearer ${token}` };
const api = createClient<paths>({ baseUrl, headers });

type Launch = components["schemas"]["LaunchDetail"];

/** Return the answer, or fail with the problem. */
function answer<T>(result: { data?: T; error?: unknown }): T {
  assert.equal(result.error, undefined, JSON.stringify(result.error));
  assert(result.data !== undefined, "an answer without a body");
  return result.data;
}

/** Ask until `ask` returns something. */
async function eventually<T>(what: string, ask: () => Promise<T | undefined>): Promise<T> {
  const end = Date.now() + WAIT_MAX_MS;
  while (Date.now() < end) {
    const found = await ask();
    if (found !== undefined) return found;
    await sleep(50);
  }
  throw new Error(`${what}: not within ${WAIT_MAX_MS} ms`);
}

async function launch(id: string): Promise<Launch> {
  return answer(await api.GET("/api/v1/launches/{id}", { params: { path: { id } } }));
}

async function end(id: string): Promise<Launch> {
  return eventually(`the end of ${id}`, async () => {
    const shown = await launch(id);
    return shown.finished_at === null ? undefined : shown;
  });
}

async function trigger(name: string, context: Record<string, unknown>): Promise<string> {
  const result = await api.POST("/api/v1/schedules/{name}/trigger", {
    params: { path: { name }, header: { "idempotency-key": `${name}-${Date.now()}` } },
    body: { context },
  });
  return answer(result).launch;
}

/** Read events of a stream until one of the kind is about the subject. */
async function event(stream: Response, kind: string, subject: string): Promise<void> {
  assert(stream.body, "a stream without a body");
  let text = "";
  for await (const chunk of stream.body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    for (const line of text.split("\n")) {
      if (!line.startsWith("data: ") || !text.includes(`${line}\n`)) continue;
      const found = JSON.parse(line.slice("data: ".length)) as components["schemas"]["Event"];
      if (found.kind === kind && found.subject === subject) return;
    }
  }
  throw new Error(`the stream ended before ${kind} of ${subject}`);
}

// Approve the package that waits in the folder.
const pending = await eventually("a version that waits for approval", async () => {
  const result = await api.GET("/api/v1/packages/{name}", { params: { path: { name: "guests" } } });
  return result.data?.pending_digest ?? undefined;
});
const approved = answer(
  await api.POST("/api/v1/packages/{name}/approve", {
    params: { path: { name: "guests" } },
    body: { digest: pending, note: "read by a person" },
  }),
);
assert.equal(approved.digest, pending);

// Create schedules, and read one back with its revision.
const definition = {
  package: "guests",
  kind: "cron",
  expression: "0 3 * * *",
  policies: { overlap: "allow" },
} as const;
await eventually("a schedule of the approved package", async () => {
  const body = { ...definition, name: "life", task: "echo" };
  return (await api.POST("/api/v1/schedules", { body })).data;
});
answer(await api.POST("/api/v1/schedules", { body: { ...definition, name: "long", task: "sleep" } }));
const names = answer(await api.GET("/api/v1/schedules", { params: { query: { limit: 10 } } }));
assert.deepEqual(
  names.map((schedule) => schedule.name),
  ["life", "long"],
);

// Follow the events while a launch runs.
const stream = await fetch(new URL("/api/v1/events/stream", baseUrl), { headers });
const first = await trigger("life", { day: 7 });
const ended = await end(first);
assert.equal(ended.status, "succeeded");

// Retry it: a new run with the same execution.
const retried = answer(
  await api.POST("/api/v1/launches/{id}/retry", { params: { path: { id: first } }, body: {} }),
);
assert.equal((await end(retried.launch)).status, "succeeded");
await event(stream, "launch_retried", "life");

// Cancel one that would run for ten minutes.
const long = await trigger("long", { ms: 600_000 });
await eventually("a running launch", async () => {
  const shown = await launch(long);
  return shown.status === "running" ? shown : undefined;
});
answer(
  await api.POST("/api/v1/launches/{id}/cancel", {
    params: { path: { id: long } },
    body: { grace: "200ms" },
  }),
);
assert.equal((await end(long)).status, "cancelled");

// Backfill three slots.
const span = { schedule: "life", from: "2026-01-01T00:00:00Z", to: "2026-01-03T12:00:00Z" };
const backfill = answer(await api.POST("/api/v1/backfills", { body: span })).id;
await eventually("the end of the backfill", async () => {
  const path = { id: backfill };
  const shown = answer(await api.GET("/api/v1/backfills/{id}", { params: { path } }));
  return shown.status === "done" && shown.succeeded === 3 ? shown : undefined;
});

// Page through the launches.
let after: string | undefined;
const seen = new Set<string>();
for (;;) {
  const query = { limit: 2, ...(after === undefined ? {} : { after }) };
  const page = answer(await api.GET("/api/v1/launches", { params: { query } }));
  for (const row of page) seen.add(row.id);
  if (page.length < 2) break;
  after = page.at(-1)?.id;
}
assert.equal(seen.size, 6);

// An edit at a former revision is refused with problem details, and changes nothing.
const path = { name: "life" };
const stale = await api.PATCH("/api/v1/schedules/{name}", {
  params: { path, header: { "If-Match": '"9"' } },
  body: { expression: "0 4 * * *" },
});
assert.equal(stale.response.status, 412);
assert.equal(stale.error?.code, "conflict");
const edited = await api.PATCH("/api/v1/schedules/{name}", {
  params: { path, header: { "If-Match": '"1"' } },
  body: { expression: "0 4 * * *" },
});
assert.equal(answer(edited).expression, "0 4 * * *");
assert.equal(edited.response.headers.get("etag"), '"2"');
answer(
  await api.DELETE("/api/v1/schedules/{name}", { params: { path, header: { "If-Match": '"2"' } } }),
);
console.log("the generated client drove a whole life");
process.exit(0);

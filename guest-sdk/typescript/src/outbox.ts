/** The outbox: HTTP messages that the host delivers after the task has succeeded. */

import { Denied, Permanent } from "./failures.js";
import { current, Refused } from "./host.js";
import { dumps } from "./json.js";

/** What a message has besides its address. */
export interface MessageOptions {
  /** `POST` by default. */
  method?: string;
  /** The body, as JSON. Give it or `body`. */
  json?: unknown;
  body?: string | Uint8Array;
  /** In a value, `{secret:NAME}` stands for a granted secret. */
  headers?: Record<string, string>;
}

/** Hand over a message. Return its id. */
export function send(url: string, { method = "POST", json, body, headers = {} }: MessageOptions = {}): string {
  if (json !== undefined && body !== undefined) throw new TypeError("give `json` or `body`, not both");
  const sent = new Map(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  if (json !== undefined && !sent.has("content-type")) sent.set("content-type", "application/json");
  const content = json === undefined ? (body ?? "") : dumps(json);
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  try {
    return current().sendMessage({ method, url, headers: [...sent], body: bytes });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    const what = `sending the message ${method} ${url}`;
    if (error.kind === "access-denied") {
      throw new Denied(
        `${what}: it is not granted; the operator grants its host with \`[[grants.http]]\` in the package's sidecar file`,
      );
    }
    throw new Permanent(`${what}: ${error.message}`);
  }
}

/**
 * HTTP in one line: `await http.post(url, { json: {…} })`.
 *
 * The sidecar of the package grants the address. A reply of 5xx or 429, or no reply, is `Retryable`; any other reply that
 * is not 2xx is `Permanent`. With `check: false`, every reply is returned. The global `fetch` works too, without these
 * failures. The host ends the call at a request without a grant; in a test it throws `Denied`.
 */

import { Failure, Permanent, Retryable } from "./failures.js";
import { dumps } from "./json.js";
import { reason } from "./reason.js";

export interface Options {
  /** The body, as JSON. Give it or `body`. */
  json?: unknown;
  body?: string | Uint8Array<ArrayBuffer>;
  headers?: Record<string, string>;
  /** The header `idempotency-key`: the id of the launch, so that the receiver can detect a repetition. */
  idempotencyKey?: string;
  /** Whether a reply that is not 2xx throws; true by default. */
  check?: boolean;
}

/** A reply, with its whole body. */
export class Response {
  constructor(
    readonly status: number,
    readonly headers: Headers,
    readonly body: Uint8Array,
  ) {}

  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  get text(): string {
    return new TextDecoder().decode(this.body);
  }

  /** Return the body, read from JSON. Throws `Retryable` if it is not JSON. */
  json(): any {
    try {
      return JSON.parse(this.text);
    } catch (cause) {
      throw new Retryable(`the reply is not JSON: ${cause}`, { cause });
    }
  }
}

/** Send one request and wait for its reply. */
export async function request(method: string, url: string, options: Options = {}): Promise<Response> {
  const response = await send(outgoing(method, url, options));
  if ((options.check ?? true) && !response.ok) {
    const message = `${method} ${url} responded with ${response.status}`;
    if (response.status >= 500 || response.status === 429) {
      throw new Retryable(message, { retryAfter: seconds(response.headers.get("retry-after")) });
    }
    throw new Permanent(message);
  }
  return response;
}

export function get(url: string, options?: Options): Promise<Response> {
  return request("GET", url, options);
}

export function post(url: string, options?: Options): Promise<Response> {
  return request("POST", url, options);
}

export function put(url: string, options?: Options): Promise<Response> {
  return request("PUT", url, options);
}

function _delete(url: string, options?: Options): Promise<Response> {
  return request("DELETE", url, options);
}
export { _delete as delete };

/** Return the request. Throws `Permanent` for one that is not valid HTTP. */
function outgoing(method: string, url: string, { json, body, headers, idempotencyKey }: Options): Request {
  if (json !== undefined && body !== undefined) throw new TypeError("give `json` or `body`, not both");
  try {
    const sent = new Headers(headers);
    if (json !== undefined && !sent.has("content-type")) sent.set("content-type", "application/json");
    if (idempotencyKey !== undefined) sent.set("idempotency-key", idempotencyKey);
    if (!/^https?:\/\//i.test(url)) throw new TypeError("the URL must begin with http:// or https://");
    return new Request(url, { method, headers: sent, body: json === undefined ? (body ?? null) : dumps(json) });
  } catch (cause) {
    throw new Permanent(`${method} ${url} is not a valid request: ${reason(cause)}`, { cause });
  }
}

async function send(request: Request): Promise<Response> {
  try {
    const reply = await fetch(request);
    return new Response(reply.status, reply.headers, new Uint8Array(await reply.arrayBuffer()));
  } catch (cause) {
    if (cause instanceof Failure) throw cause;
    throw new Retryable(`${request.method} ${request.url}: ${reason(cause)}`, { cause });
  }
}

/** Return the seconds of a `retry-after`; undefined for a date, so that the host's backoff applies. */
function seconds(header: string | null): number | undefined {
  return header !== null && /^[0-9]+$/.test(header) ? Number(header) : undefined;
}

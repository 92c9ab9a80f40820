// Files through wasi:filesystem: the engine has no other file access.

import { getDirectories } from "wasi:filesystem/preopens@0.2.12";
import type { Descriptor, ErrorCode } from "wasi:filesystem/types@0.2.12";

/** The sidecar does not grant the operation. */
export class Denied extends Error {}

const REFUSALS: ErrorCode[] = ["access", "not-permitted", "read-only"];

/** Write a whole file, and replace an existing one. */
export function writeFile(path: string, contents: string): void {
  const [folder, name] = granted(path);
  const file = open(folder, name, path);
  const bytes = new TextEncoder().encode(contents);
  let written = 0n;
  while (written < bytes.length) {
    written += file.write(bytes.subarray(Number(written)), written);
  }
  file.sync();
}

function open(folder: Descriptor, name: string, path: string): Descriptor {
  try {
    return folder.openAt({ symlinkFollow: true }, name, { create: true, truncate: true }, { write: true });
  } catch (error) {
    // The error of a WIT `result` is thrown, with the error as its payload.
    const { payload } = error as { payload: ErrorCode };
    if (REFUSALS.includes(payload)) {
      throw new Denied(`${path} cannot be written (${payload}); grant its directory with access = "write"`);
    }
    throw new Error(`${path} cannot be written: ${payload}`);
  }
}

/** Return the granted directory of `path`, and the path in the directory. */
function granted(path: string): [Descriptor, string] {
  for (const [folder, name] of getDirectories()) {
    if (path.startsWith(`${name}/`)) return [folder, path.slice(name.length + 1)];
  }
  throw new Denied(`${path} is not in a granted directory`);
}

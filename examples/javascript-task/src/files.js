// Files through wasi:filesystem: the engine has no other file access.

import { getDirectories } from "wasi:filesystem/preopens@0.2.12";

/** The sidecar does not grant the operation. */
export class Denied extends Error {}

/** Write a whole file, and replace an existing one. */
export function writeFile(path, contents) {
  const [folder, name] = granted(path);
  let file;
  try {
    file = folder.openAt({ symlinkFollow: true }, name, { create: true, truncate: true }, { write: true });
  } catch (error) {
    const code = error.payload ?? error;
    if (["not-permitted", "read-only", "access"].includes(code)) {
      throw new Denied(`${path} cannot be written (${code}); grant its directory with access = "write"`);
    }
    throw new Error(`${path} cannot be written: ${code}`);
  }
  const bytes = new TextEncoder().encode(contents);
  let written = 0n;
  while (written < bytes.length) {
    written += file.write(bytes.subarray(Number(written)), written);
  }
  file.sync();
}

/** Return the granted directory of `path`, and the path in the directory. */
function granted(path) {
  for (const [folder, name] of getDirectories()) {
    if (path.startsWith(`${name}/`)) return [folder, path.slice(name.length + 1)];
  }
  throw new Denied(`${path} is not in a granted directory`);
}

/**
 * Files of the directories that the sidecar grants: the engine has no other file access.
 *
 * A path outside of them, or a write to a directory that is granted for reading, is `Denied`. Another failure of the file
 * system is `Retryable`.
 */

import { current } from "./host.js";

/** Return the bytes of a file; undefined for a file that does not exist. */
export function read(path: string): Uint8Array | undefined {
  return current().readFile(path);
}

/** Return a file as text; undefined for a file that does not exist. */
export function readText(path: string): string | undefined {
  const bytes = read(path);
  return bytes && new TextDecoder().decode(bytes);
}

/** Write a whole file, and replace an existing one. Missing folders are created. */
export function write(path: string, content: string | Uint8Array): void {
  current().writeFile(path, typeof content === "string" ? new TextEncoder().encode(content) : content);
}

/** Return the names of the files and folders in a folder, sorted. */
export function list(folder: string): string[] {
  return current().listFiles(folder).sort();
}

/** Remove a file. A file that does not exist is ignored. */
export function remove(path: string): void {
  current().removeFile(path);
}

/** Outside WebAssembly there is no host: `package.json` puts this in the place of `wasi.ts`. */

import type { Host } from "./host.js";

export const wasi: Host | undefined = undefined;

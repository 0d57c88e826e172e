import { kernelBytes } from "./kernel-bytes.ts";

/** What is used of the global of the same name, of which the types of Node.js say nothing. */
interface WebAssemblyGlobal {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: unknown };
}

/** The functions of `kernel.wat`. Addresses and sizes in bytes. */
export interface Kernel {
  readonly memory: { readonly buffer: ArrayBuffer; grow(pages: number): number };
  readonly isSuspect: { readonly value: number };
  readonly scan: (bytes: number, shift: number, nodes: number, maxDepth: number) => number;
}

/** What lies where in its memory; `kernel.wat` has the same numbers. */
export const kernelMemory = { textAt: 256, zerosBehind: 64, nodeBytes: 16, pageBytes: 65_536 } as const;

/** What `scan` answers instead of a number of nodes. */
export const scanFault = { invalid: -1, tooDeep: -2, noMemory: -3 } as const;

let compiled: object | undefined;

/**
 * A kernel with a memory of its own, which takes some 50 us once it is compiled.
 *
 * @throws Error where WebAssembly is switched off; Node's own HTTP client needs it as well
 */
export function createKernel(): Kernel {
  const api = (globalThis as { readonly WebAssembly?: WebAssemblyGlobal }).WebAssembly;
  if (api === undefined) throw new Error("WebAssembly is switched off in this process");
  compiled ??= new api.Module(Buffer.from(kernelBytes, "base64"));
  return new api.Instance(compiled).exports as Kernel;
}

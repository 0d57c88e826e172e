import { kernelBytes } from "./kernel-bytes.ts";
import { type KernelArithmetic, kernelMemory } from "./kernel-memory.ts";

/** What is used of the global of the same name, of which the types of Node.js say nothing. */
interface WebAssemblyGlobal {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: KernelExports };
}

type KernelExports = Omit<KernelArithmetic, "memory"> & { readonly memory: { readonly buffer: ArrayBuffer } };

/** The engine's WebAssembly, or undefined where it is switched off (`node --jitless`). */
export function webAssembly(): WebAssemblyGlobal | undefined {
  return (globalThis as { readonly WebAssembly?: WebAssemblyGlobal }).WebAssembly;
}

/**
 * Compiles the kernel, which takes well under a millisecond.
 *
 * @throws Error where WebAssembly is switched off
 */
export function createWasmKernel(): KernelArithmetic {
  const api = webAssembly();
  if (api === undefined) throw new Error("WebAssembly is switched off in this process");
  const { exports } = new api.Instance(new api.Module(Buffer.from(kernelBytes, "base64")));
  const { memory, hashBlocks, mixContents, absorb } = exports;
  if (memory.buffer.byteLength !== kernelMemory.totalBytes) throw new Error("The kernel has another memory layout");
  return { memory: memory.buffer, hashBlocks, mixContents, absorb };
}

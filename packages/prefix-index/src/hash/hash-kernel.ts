import { createJsKernel } from "./js-kernel.ts";
import type { HashKernel, KernelName } from "./kernel-memory.ts";
import { requireLittleEndian } from "./little-endian.ts";
import { createWasmKernel, webAssembly } from "./wasm-kernel.ts";

const kernels = new Map<KernelName, HashKernel>();

/**
 * The kernel of this process. All that use it write their input and read their output within one synchronous call, so
 * one memory serves them all.
 *
 * @param name by default `wasm`, or `js` where WebAssembly is switched off
 * @throws Error when the processor is not little-endian, or `wasm` is asked for and WebAssembly is switched off
 */
export function hashKernel(name: KernelName = webAssembly() ? "wasm" : "js"): HashKernel {
  let kernel = kernels.get(name);
  if (kernel === undefined) {
    requireLittleEndian();
    const arithmetic = name === "wasm" ? createWasmKernel() : createJsKernel();
    const { memory } = arithmetic;
    kernel = { ...arithmetic, name, bytes: new Uint8Array(memory), words: new Uint32Array(memory) };
    kernels.set(name, kernel);
  }
  return kernel;
}

const lineLength = 100;

/**
 * The source module that contains a compiled `kernel.wat`, for a test to compare with the existing one.
 *
 * @param wasm the compiled text
 * @param testFile path from the repository's folder; the module names it as the test that regenerates it
 */
export function kernelModule(wasm: Uint8Array, testFile: string): string {
  const lines = Buffer.from(wasm)
    .toString("base64")
    .match(new RegExp(`.{1,${lineLength}}`, "g"));
  return [
    "/**",
    " * `kernel.wat`, compiled. After a change of it, run the test of this file with `--update`, which writes it anew:",
    ` * \`npx vitest run --project unit ${testFile} --update\``,
    " */",
    "export const kernelBytes = [",
    ...(lines ?? []).map((line) => `  "${line}",`),
    '].join("");',
    "",
  ].join("\n");
}

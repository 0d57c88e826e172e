const lineLength = 100;

/**
 * The module of the sources that holds a compiled `kernel.wat`, for a test to compare with the one that is there.
 *
 * @param wasm the compiled text
 * @param testFile from the repository's folder; told in the module, as what writes it anew
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

import { readFileSync } from "node:fs";
import { relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { shippedModelFolder } from "../src/shipped-model.ts";

/** Installed from its tarball the demo died at its start: the model that comes along was not among the package's files. */
test("the model that comes along is in the package", () => {
  const root = fileURLToPath(new URL("..", import.meta.url));
  const { files } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as {
    files: string[];
  };
  expect(files).toContain(relative(root, shippedModelFolder()).split(sep)[0]);
});

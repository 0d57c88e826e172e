// Renders the chart for each file of examples/ into deploy/kubernetes/: `node deploy/helm/render.mjs`. Needs Helm 3 or 4, found by
// the variable HELM or on the path: go install helm.sh/helm/v3/cmd/helm@v3.18.6.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const chart = fileURLToPath(new URL("espalier/", import.meta.url));
const examples = fileURLToPath(new URL("examples/", import.meta.url));
const manifests = fileURLToPath(new URL("../kubernetes/", import.meta.url));

/** The examples' names, without their endings. */
export const exampleNames = readdirSync(examples)
  .filter((name) => name.endsWith(".yaml"))
  .map((name) => name.slice(0, -".yaml".length))
  .sort();

/** SHA-256 over the chart and an example: what is rendered depends on nothing else, the linked rules and dashboards being off. */
export function digestOf(example) {
  const parts = readdirSync(chart, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name !== "README.md")
    .map((entry) => `${entry.parentPath ?? entry.path}/${entry.name}`.replaceAll("//", "/"))
    .sort();
  const hash = createHash("sha256");
  for (const path of [...parts, `${examples}${example}.yaml`])
    hash.update(`${path.slice(chart.length)}\n`).update(readFileSync(path));
  return hash.digest("hex");
}

/** @param {string} helm the program @param {string} example @returns the text of the manifest's file */
export function render(helm, example) {
  const rendered = execFileSync(
    helm,
    [
      "template",
      "espalier",
      chart,
      "--namespace",
      "espalier",
      "--kube-version",
      "1.33.0",
      "--values",
      `${examples}${example}.yaml`,
    ],
    // Helm tells on standard error of each link that it follows.
    { encoding: "utf8", stdio: "pipe" },
  );
  const [first] = readFileSync(`${examples}${example}.yaml`, "utf8").split("\n");
  return `${first}\n# Made of deploy/helm/examples/${example}.yaml by deploy/helm/render.mjs.\n# inputs: ${digestOf(example)}\n${rendered}`;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const example of exampleNames)
    writeFileSync(`${manifests}${example}.yaml`, render(process.env.HELM ?? "helm", example));

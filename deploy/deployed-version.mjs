// What `npm run release:version` changes here.

/** Files that name the image or the chart by version, beside the manifests that Helm renders. */
export const deployedFiles = [
  "deploy/compose/compose.yaml",
  "deploy/docker/Dockerfile",
  "deploy/helm/espalier/Chart.yaml",
  "deploy/kubernetes/pickers/kserve.yaml",
  "deploy/kubernetes/pickers/llm-d-values.yaml",
  "docs/guides/deploy.md",
  "docs/start/kubernetes.md",
];

/** @returns the text of such a file with the next version in place of the last */
export function withVersion(text, last, next) {
  return text.replaceAll(
    /(\bespalier:|\bversion: |\btag: |appVersion: "|--version )(\d+\.\d+\.\d+)\b/gi,
    (all, before, version) => (version === last ? `${before}${next}` : all),
  );
}

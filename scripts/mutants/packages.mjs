/**
 * What `npm run test:mutants` changes unless `--files` says otherwise, by package: paths from its folder. The tests are those
 * that `npm test` runs of the package, and `tests` besides, which then meet its sources and not what was built of them.
 */
export const mutatedFiles = {
  engines: { files: ["src/workers/**", "src/proxy/**"] },
  mesh: { files: ["src/membership/**"] },
  policies: { files: ["src/**"] },
  routing: { files: ["src/admission/**"] },
  server: {
    files: ["src/data-plane/**"],
    tests: [
      "admission",
      "api-keys",
      "bad-bodies",
      "bad-http",
      "bodies-in-flight",
      "breaker",
      "client-abort",
      "connections",
      "cors",
      "dashboard",
      "disaggregation",
      "forward-paths",
      "half-close",
      "headers",
      "health-panic",
      "models",
      "own-headers",
      "pipelining",
      "policies",
      "responses",
      "retries",
      "transfer-fields",
      "usage",
    ].map((suite) => `test/integration/${suite}.test.ts`),
  },
  tokenizer: { files: ["src/template/**", "src/prompt/**"] },
  "shared-tree": { files: ["src/events/**", "src/facts/**", "src/feeds/**"] },
};

// The site of the documents. Pages are the Markdown of the repository as it stands; what they link to besides is copied beside them.
import { copyFileSync, existsSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, posix, relative } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const site = fileURLToPath(new URL("..", import.meta.url));
const outDir = join(site, "dist");

/** Files that pages link to and that are no pages: configurations, examples, schemas. */
const linkedFiles = new Set();

const section = (text, items) => ({
  text,
  collapsed: false,
  items: items.map(([name, link]) => ({ text: name, link: `/${link}` })),
});

const sidebar = [
  section("Start", [
    ["All documents", "docs/README"],
    ["Data-parallel ranks", "docs/start/data-parallel"],
    ["Coding agents", "docs/start/coding-agents"],
    ["Two engines, two routers", "docs/start/two-engines"],
    ["Kubernetes", "docs/start/kubernetes"],
    ["Ray and Slurm", "docs/start/ray-and-slurm"],
  ]),
  section("Concepts", [
    ["The prefix tree", "docs/concepts/prefix-tree"],
    ["KV event feeds", "docs/concepts/feeds"],
    ["Cells", "docs/concepts/cells"],
    ["Internals", "docs/concepts/internals"],
  ]),
  section("Guides", [
    ["Your engines", "docs/guides/engines"],
    ["In front", "docs/guides/in-front"],
    ["Deploy", "docs/guides/deploy"],
    ["Discovery", "docs/guides/discovery"],
    ["Endpoint picker", "docs/guides/kubernetes-endpoint-picker"],
    ["Migrate", "docs/MIGRATION"],
    ["Observe", "docs/guides/observe"],
    ["Traces", "docs/guides/tracing"],
    ["Runbook", "docs/OPERATIONS"],
    ["Maintenance", "docs/guides/maintain"],
    ["Debug a misroute", "docs/guides/debug-a-misroute"],
    ["Several tenants", "docs/guides/multi-tenant"],
    ["Scheduling", "docs/SCHEDULING"],
    ["When capacity runs out", "docs/guides/scale"],
    ["Prefill and decode apart", "docs/guides/disaggregation"],
    ["KV blocks from another engine", "docs/guides/kv-pull"],
    ["Write a policy", "docs/guides/write-a-policy"],
    ["Extend and embed", "docs/guides/extend"],
    ["What is read of requests", "docs/guides/requests"],
    ["Regions", "docs/guides/regions"],
    ["Measure and tune", "docs/guides/measure"],
    ["Scenarios", "docs/guides/scenarios"],
    ["Benchmark it yourself", "docs/guides/benchmark"],
  ]),
  section("Reference", [
    ["Configuration", "docs/CONFIGURATION"],
    ["Policies", "docs/POLICIES"],
    ["Metrics", "docs/METRICS"],
    ["Errors", "docs/ERRORS"],
    ["Limits", "docs/LIMITS"],
    ["Bounds", "docs/reference/bounds"],
    ["Engine defaults", "docs/reference/engine-defaults"],
    ["Fields of explain", "docs/reference/explain"],
    ["Reserved fields", "docs/RESERVED_FIELDS"],
    ["Protocol", "docs/PROTOCOL"],
    ["Wire layouts", "docs/reference/wire-layouts"],
    ["Threat model", "docs/THREAT_MODEL"],
    ["Presets", "docs/PRESETS"],
    ["Glossary", "docs/GLOSSARY"],
  ]),
  section("Why", [
    ["What it does", "docs/why/features"],
    ["What it is not", "docs/why/what-it-is-not"],
    ["Questions", "docs/why/questions"],
    ["Why a CRDT mesh", "docs/why/crdt-mesh"],
    ["Benchmarks", "docs/BENCHMARKS"],
    ["The numbers you have read", "docs/benchmarks/published"],
    ["Decisions", "docs/decisions/README"],
  ]),
  section("Project", [
    ["Architecture", "ARCHITECTURE"],
    ["Contributing", "CONTRIBUTING"],
    ["Changes", "CHANGELOG"],
  ]),
];

/** Diagrams are drawn in the browser, by a library that is part of the site. */
function mermaidFences(markdown) {
  const usual = markdown.renderer.rules.fence;
  markdown.renderer.rules.fence = (tokens, index, ...rest) => {
    const { info, content } = tokens[index];
    if (info.trim() !== "mermaid") return usual(tokens, index, ...rest);
    return `<Mermaid code="${encodeURIComponent(content)}" />`;
  };
}

/** Text in angle brackets is text, as on GitHub, but for the few elements that pages use. */
function plainBrackets(markdown) {
  const isElement = /^\s*<(?:\/?(?:a|br|img|picture|source|sub|sup)\b|!--)/;
  const rule = (tokens, index) => {
    const { content } = tokens[index];
    // What does not begin so is taken for a package.
    const withPaths = content.replace(/\b(src|srcset)="(?![./]|[a-z]+:)/g, '$1="./');
    return isElement.test(content) ? withPaths : markdown.utils.escapeHtml(content);
  };
  markdown.renderer.rules.html_inline = rule;
  markdown.renderer.rules.html_block = rule;
}

/** Remembers files that are linked; a folder is named, not linked: there is no page of it. */
function linksToFiles(markdown) {
  const usual = markdown.renderer.rules.link_open;
  markdown.renderer.rules.link_open = (tokens, index, options, env, self) => {
    const token = tokens[index];
    const target = token.attrGet("href") ?? "";
    if (!/^([a-z]+:|#|\/)/i.test(target)) {
      const path = posix.join(posix.dirname(env.relativePath), decodeURI(target.split("#")[0]));
      const file = join(root, path);
      if (existsSync(file) && statSync(file).isDirectory()) {
        token.attrs = [];
        return self.renderToken(tokens, index, options);
      }
      if (existsSync(file) && !path.endsWith(".md")) {
        linkedFiles.add(path);
        token.attrSet("href", `/${path}`);
        token.attrSet("target", "_self");
        return self.renderToken(tokens, index, options);
      }
    }
    return usual(tokens, index, options, env, self);
  };
}

/** Pages stand outside of the folder that has the tools: what they import is looked for here. */
const resolveForPages = {
  name: "resolve-for-pages",
  enforce: "pre",
  resolveId(id, importer, options) {
    if (!/^vue($|\/)/.test(id)) return undefined;
    if (options.ssr) return { id, external: true };
    if (importer === undefined || importer.startsWith(site)) return undefined;
    return this.resolve(id, join(site, "package.json"), { ...options, skipSelf: true });
  },
};

/** What the search knows of a page. Tables of benchmarks would drown what people look for, so BENCHMARKS leads to them. */
const searchText = (source, env, markdown) =>
  env.relativePath.startsWith("docs/benchmarks/") ? "" : markdown.render(source, env);

export default {
  title: "Espalier",
  description: "A router tier for LLM engines",
  srcDir: relative(site, root),
  outDir,
  srcExclude: [
    "{packages,bench,test,examples,scripts,apps/router,apps/dashboard}/**",
    "deploy/{compose,docker,grafana,kubernetes,prometheus,systemd}/**",
    "docs/site/**",
    ".*/**",
  ],
  lastUpdated: false,
  // `npm start` prints addresses of this machine.
  ignoreDeadLinks: "localhostLinks",
  markdown: {
    config(markdown) {
      plainBrackets(markdown);
      mermaidFences(markdown);
      linksToFiles(markdown);
    },
  },
  themeConfig: {
    sidebar,
    nav: [
      { text: "Start", link: "/docs/start/two-engines" },
      { text: "Reference", link: "/docs/CONFIGURATION" },
      { text: "Glossary", link: "/docs/GLOSSARY" },
    ],
    search: { provider: "local", options: { _render: searchText } },
    outline: [2, 3],
  },
  vite: {
    plugins: [resolveForPages],
    server: { fs: { allow: [root] } },
    build: { chunkSizeWarningLimit: 5_000 },
  },
  buildEnd() {
    for (const path of linkedFiles) {
      mkdirSync(dirname(join(outDir, path)), { recursive: true });
      copyFileSync(join(root, path), join(outDir, path));
    }
    writeFileSync(
      join(outDir, "index.html"),
      '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=docs/README.html"><title>Espalier</title>\n',
    );
  },
};

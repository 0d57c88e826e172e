// Writes the dashboards as Grafana reads them: `node deploy/grafana/write.mjs`.
import { writeFileSync } from "node:fs";
import { engines } from "./dashboards/engines.mjs";
import { mesh } from "./dashboards/mesh.mjs";
import { queues } from "./dashboards/queues.mjs";
import { traffic } from "./dashboards/traffic.mjs";
import { layOut } from "./panels.mjs";

/** By the name of the file. */
const dashboards = {
  "espalier-traffic": traffic,
  "espalier-engines": engines,
  "espalier-mesh": mesh,
  "espalier-queues": queues,
};

const variable = (name, query, label) => ({
  name,
  label,
  type: "query",
  datasource: { type: "prometheus", uid: "${datasource}" },
  query: { query, refId: name },
  definition: query,
  includeAll: true,
  multi: true,
  current: { text: "All", value: "$__all" },
  refresh: 2,
  sort: 1,
});

function dashboardJson(uid, { title, panels }) {
  return {
    uid,
    title,
    tags: ["espalier"],
    editable: true,
    schemaVersion: 39,
    version: 1,
    refresh: "10s",
    time: { from: "now-1h", to: "now" },
    timezone: "browser",
    links: [{ type: "dashboards", title: "Espalier", tags: ["espalier"], asDropdown: true, keepTime: true }],
    templating: {
      list: [
        { name: "datasource", label: "Data source", type: "datasource", query: "prometheus", current: {}, refresh: 1 },
        variable("job", "label_values(espalier_requests_in_flight, job)", "Job"),
        variable("instance", 'label_values(espalier_requests_in_flight{job=~"$job"}, instance)', "Router"),
      ],
    },
    annotations: { list: [] },
    panels: layOut(panels),
  };
}

/** Lists of one text stand on one line, as the formatter of this repository has them. */
const loneText = /\[\s*("[^"\n]*")\s*\]/g;

/** @returns {Record<string, string>} the files' texts by name */
export function dashboardFiles() {
  return Object.fromEntries(
    Object.entries(dashboards).map(([name, dashboard]) => [
      `${name}.json`,
      `${JSON.stringify(dashboardJson(name, dashboard), null, 2).replace(loneText, "[$1]")}\n`,
    ]),
  );
}

if (process.argv[1] === new URL(import.meta.url).pathname)
  for (const [name, text] of Object.entries(dashboardFiles())) writeFileSync(new URL(name, import.meta.url), text);

import { freemem } from "node:os";
import { layOutTable, systemClock, systemScheduler } from "@espalier/core";
import { openFileBound } from "../limits/limits-rig.ts";
import { type LimitPart, limitParts, type PartResult } from "../limits/parts.ts";
import { names, optional, quick, whole } from "../support/params.ts";
import { defineSuite } from "../support/suite.ts";

interface LimitRow extends PartResult {
  readonly part: string;
  readonly what: string;
}

/** Files of a router beside what a part counts: connections of clients and engines, and what LIMITS leaves to them. */
const otherFiles = 3_100;
/** Memory that is left to others. */
const spareMemoryMb = 3_000;
const bytesPerMb = 1e6;

/** What happens at the numbers of LIMITS, and beyond them. */
export const limitsSuite = defineSuite({
  name: "limits",
  summary: "the numbers of LIMITS that a user can reach, with real sockets: what they cost, and what one more does",
  about: `
Goes to the numbers of docs/LIMITS.md that a user can reach, one after the other, with real sockets and processes: engines
that cost next to nothing in one process, a router in another. At each number it measures the router idle and under 100
requests a second, and goes one step further. A part fails when a request at the limit fails, or the step further does
anything but what LIMITS says. A part that needs more open files or memory than there is goes as far as these allow, and says so.

${limitParts.map(({ name, size, what }) => `  ${name.padEnd(10)} ${size} ${what}\n`).join("")}`,
  params: {
    part: names(
      "these parts alone",
      limitParts.map(({ name }) => name),
      { shown: "all" },
    ),
    size: optional(
      whole({ help: "another number in place of the part's own", standard: 2, least: 2, most: 1_000_000 }),
    ),
    quick: quick("small numbers and short measurements"),
  },
  async measure({ part: wantedParts, size, quick: isQuick }, note) {
    const ports = { clock: systemClock, scheduler: systemScheduler };
    const warnings: string[] = [];
    const rows: LimitRow[] = [];
    for (const part of limitParts.filter(({ name }) => wantedParts.includes(name))) {
      const wanted = size ?? (isQuick ? part.quickSize : part.size);
      const { possible, why } = withinMachine(part, wanted);
      if (possible < wanted) {
        warnings.push(`${part.name} went to ${possible} of ${wanted}: ${why}`);
        note(warnings.at(-1)!);
      }
      const options = { size: possible, isQuick, ports, note: (line: string) => note(`${part.name}: ${line}`) };
      rows.push({ part: part.name, what: part.what, ...(await part.run(options)) });
      note(`${part.name}: ${rows.at(-1)!.beyond}`);
    }
    const metrics = rows.flatMap(({ part, reached, figures }) =>
      Object.entries({ reached, ...figures }).map(([name, value]) => [`${part}_${name}`, value] as const),
    );
    const params = { quick: isQuick, open_files: openFileBound() };
    return { params, metrics: Object.fromEntries(metrics), rows, warnings };
  },
  table: ({ rows }) => limitsTable(rows),
});

function withinMachine(
  { files, memoryMb }: LimitPart,
  wanted: number,
): { readonly possible: number; readonly why: string } {
  const bound = openFileBound();
  const byFiles = Math.floor((bound - otherFiles) / files);
  const byMemory = Math.floor((freemem() / bytesPerMb - spareMemoryMb) / memoryMb);
  const why =
    byFiles < byMemory
      ? `a process may have ${bound} files open; raise it with \`ulimit -Hn ${wanted * files + otherFiles}\``
      : `${Math.round(freemem() / bytesPerMb)} MB of memory are free`;
  return { possible: Math.max(2, Math.min(wanted, byFiles, byMemory)), why };
}

function limitsTable(rows: readonly LimitRow[]): string {
  const of = (name: string, digits = 0) => ({
    header: name.replaceAll("_", " "),
    value: ({ figures }: LimitRow) => figures[name]?.toFixed(digits),
  });
  const figures = layOutTable(rows, [
    { header: "part", value: ({ part }) => part },
    { header: "reached", value: ({ reached }) => String(reached) },
    ...[of("ready_ms"), of("idle_cpu_percent", 1), of("request_cpu_us"), of("added_p50_ms", 2), of("added_p99_ms", 1)],
    ...[of("rss_mb"), of("descriptors"), of("idle_stall_ms"), of("loaded_stall_ms")],
  ]);
  const beyond = rows
    .map(({ part, reached, what, beyond }) => `${part}, beyond ${reached} ${what}: ${beyond}\n`)
    .join("");
  return `${figures}\n${beyond}`;
}

import { layOutTable } from "@espalier/core";
import { quick, readWhole, whole } from "../support/params.ts";
import { defineSuite, shown } from "../support/suite.ts";
import { measureLinks } from "./links-run.ts";

const sizeList = {
  placeholder: "N,N",
  help: "sizes of the mesh (8,16,32,64)",
  read: (flag: string, text: string | undefined, isQuick: boolean): readonly number[] =>
    (text ?? (isQuick ? "2,4" : "8,16,32,64")).split(",").map((size) => readWhole(flag, size, { least: 2, most: 65 })),
};

/** Gauge frames between routers, by mesh size. */
export const linksSuite = defineSuite({
  name: "links",
  summary: "frames, bytes and CPU of gauges between routers, by the size of the mesh",
  about: `
The cost of load broadcasts of one router of a mesh, by the number of routers, each linked with each over
real sockets on loopback: frames and bytes a second that it sends, and the share of a core that it takes to send its own
and to take in those of the others. All routers are in one process, and their gauges change so seldom that one event loop
can follow; the figures are for one of them. "core at most" is what as many frames would take as a router sends under load.`,
  params: {
    routers: sizeList,
    frames: whole({ help: "frames that all routers together send in a second", standard: 4_000, most: 1_000_000 }),
    seconds: whole({
      help: "time for which each mesh is idle, and for which it is loaded",
      ...{ standard: 5, quick: 0.5, most: 600 },
    }),
    quick: quick("meshes of 2 and 4 routers for half a second"),
  },
  async measure({ routers: sizes, frames: framesPerS, seconds }, note) {
    const metrics: Record<string, number> = {};
    for (const routers of sizes) {
      const figures = await measureLinks({ routers, seconds, framesPerS });
      const most = (framesUnderLoad(routers) * (figures.cpu_us_per_load_frame ?? Number.NaN)) / 1e6;
      for (const [name, value] of Object.entries({ ...figures, load_cpu_share_at_most: most })) {
        metrics[`${name}_${routers}`] = value;
      }
      note(`${routers} routers measured`);
    }
    return {
      params: { routers: sizes.join(","), seconds, frames_per_s: framesPerS },
      metrics,
      warnings: [
        "all routers share one event loop, and what a frame costs is taken at a low rate, at which no two go together",
      ],
    };
  },
  table({ metrics, params }) {
    const of = (header: string, name: string) => ({
      header,
      value: (routers: string) => shown(name, metrics[`${name}_${routers}`] ?? 0),
    });
    return layOutTable(String(params.routers).split(","), [
      { header: "routers", value: (routers) => routers },
      of("idle B/s", "idle_bytes_per_s"),
      of("idle core", "idle_cpu_share"),
      of("load frames/s", "loaded_load_frames_per_s"),
      of("load B/s", "loaded_load_bytes_per_s"),
      of("us a frame", "cpu_us_per_load_frame"),
      { header: "most frames/s", value: (routers) => framesUnderLoad(Number(routers)) },
      of("core at most", "load_cpu_share_at_most"),
    ]);
  },
});

/**
 * Frames per second to all peers from a router whose gauges change constantly: one per 10 ms and peer, 1,200 at most.
 */
function framesUnderLoad(routers: number): number {
  return Math.min((routers - 1) * 100, 1_200);
}

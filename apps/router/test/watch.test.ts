import { EspalierError } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { registerStatus, watch } from "../src/commands/status.ts";
import { runCommand } from "./run-command.ts";

function start(answers: readonly (string | Error)[], isTTY = false) {
  const { scheduler, advanceAsync } = createVirtualTime();
  const ending = new AbortController();
  const written: string[] = [];
  let asked = 0;
  const look = async (): Promise<string> => {
    const answer = answers[asked++] ?? "no more";
    if (answer instanceof Error) throw answer;
    return answer;
  };
  const output = { isTTY, write: (text: string) => written.push(text) };
  const ended = watch({ periodMs: 2_000, signal: ending.signal, look, scheduler, output });
  return { written, ended, advance: advanceAsync, end: () => ending.abort() };
}

test("looks at once and then each period, until it is ended", async () => {
  const { written, ended, advance, end } = start(["one", "two", "three"]);
  await advance(0);
  expect(written).toEqual(["one\n"]);
  await advance(1_999);
  expect(written).toHaveLength(1);
  await advance(1);
  expect(written).toEqual(["one\n", "two\n"]);
  end();
  await ended;
  await advance(10_000);
  expect(written).toHaveLength(2);
});

test("on a terminal each view takes the place of the one before", async () => {
  const { written, ended, advance, end } = start(["one"], true);
  await advance(0);
  end();
  await ended;
  expect(written).toEqual(["\u001b[H\u001b[Jone\n"]);
});

test("a router that does not answer is told, and asked again", async () => {
  const { written, ended, advance, end } = start([new EspalierError("upstream_connect_failed", "No router."), "back"]);
  await advance(2_000);
  end();
  await ended;
  expect(written).toEqual(["No router.\n", "back\n"]);
});

test("a defect ends it", async () => {
  await expect(start([new Error("defect")]).ended).rejects.toThrow("defect");
});

test.each(["0", "0.05", "3601", "often"])("a period of %s seconds is refused", async (written) => {
  const { error } = await runCommand(registerStatus, "status", "--watch", written);
  expect(String(error)).toContain("expected seconds from 0.1 to 3600");
});

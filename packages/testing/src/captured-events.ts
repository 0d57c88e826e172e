import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { sharedPath } from "./test-environment.ts";

/** The engines whose wire was recorded; empty where the recordings are not at hand. */
export function captureFolders(): readonly string[] {
  const fixtures = sharedPath("fixtures");
  if (!fixtures) return [];
  return readdirSync(fixtures).filter((name) => /^(vllm|sglang)-\d/.test(name));
}

/** Payloads of all live messages of one engine, in the order of receipt. */
export function livePayloads(folder: string): readonly Uint8Array[] {
  return records<{ frames: string[] }>(folder, "events.jsonl.gz").map(({ frames }) =>
    Buffer.from(frames[2]!, "base64"),
  );
}

/** Payloads of all messages that one engine replayed; the end markers, whose payload is empty, are left out. */
export function replayedPayloads(folder: string): readonly Uint8Array[] {
  const exchanges = records<{ replies: { frames: string[] }[] }>(folder, "replay.jsonl.gz");
  return exchanges
    .flatMap(({ replies }) => replies.map(({ frames }) => Buffer.from(frames.at(-1)!, "base64")))
    .filter((payload) => payload.length > 0);
}

function records<T>(folder: string, file: string): T[] {
  const text = gunzipSync(readFileSync(join(sharedPath("fixtures")!, folder, file))).toString();
  return text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
}

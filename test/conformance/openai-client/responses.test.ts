import { NotFoundError } from "openai";
import { afterEach, expect, test } from "vitest";
import { createRig, type RunningRouter, type Sim } from "../../integration/rig.ts";
import { collect, failureOf, openAiClient } from "./client.ts";

const rig = createRig();
afterEach(() => rig.close());

async function start(count = 1) {
  const sims = await rig.sims(count);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: { policy: "round_robin" } });
  return { sims, router, client: openAiClient(router) };
}

test("a response has an id, an output text and a usage", async () => {
  const { client } = await start();
  const response = await client.responses.create({
    model: "tiny",
    input: "What is an espalier?",
    max_output_tokens: 8,
  });
  expect(response).toMatchObject({
    object: "response",
    status: "incomplete",
    incomplete_details: { reason: "max_output_tokens" },
    usage: { output_tokens: 8 },
  });
  expect(response.id).toMatch(/^resp_/);
  expect(response.output_text.trim().split(/\s+/)).toHaveLength(8);
});

test("a streamed response brings its events in order and its text in deltas", async () => {
  const { client } = await start();
  const events = await collect(
    await client.responses.create({ model: "tiny", input: "hello", max_output_tokens: 6, stream: true }),
  );
  const types = events.map(({ type }) => type);
  expect(types.slice(0, 4)).toEqual([
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
  ]);
  expect(types.at(-1)).toBe("response.completed");
  expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, at) => at));
  const deltas = events.flatMap((event) => (event.type === "response.output_text.delta" ? [event.delta] : []));
  const [done] = events.flatMap((event) => (event.type === "response.output_text.done" ? [event.text] : []));
  expect(deltas).toHaveLength(6);
  expect(deltas.join("")).toBe(done);
});

test("the stream helper of the client puts the response together, and it can be retrieved", async () => {
  const { client } = await start();
  const stream = client.responses.stream({ model: "tiny", input: "hello", max_output_tokens: 5 });
  const response = await stream.finalResponse();
  const retrieved = await client.responses.retrieve(response.id);
  expect(retrieved.output_text).toBe(response.output_text);
  expect(retrieved.usage).toEqual(response.usage);
});

test("among several engines a stored response is read, continued and deleted where it is", async () => {
  const { client } = await start(3);
  const made = await Promise.all(
    Array.from({ length: 9 }, (_, at) =>
      client.responses.create({ model: "tiny", input: `question ${at}`, max_output_tokens: 3 }),
    ),
  );
  for (const { id, output_text: text } of made) {
    expect((await client.responses.retrieve(id)).output_text).toBe(text);
    const next = await client.responses.create({
      model: "tiny",
      input: "and then?",
      previous_response_id: id,
      max_output_tokens: 3,
    });
    expect(next.previous_response_id).toBe(id);
    expect(next.usage!.input_tokens).toBeGreaterThan(made[0]!.usage!.input_tokens);
    await client.responses.delete(id);
    expect(await failureOf(client.responses.retrieve(id))).toBeInstanceOf(NotFoundError);
    expect((await client.responses.retrieve(next.id)).id).toBe(next.id);
  }
});

test("a response that another router saw made is found by asking the engines", async () => {
  const { client, sims } = await start(3);
  const { id } = await client.responses.create({ model: "tiny", input: "hello", max_output_tokens: 3 });
  const other = openAiClient(await rig.router({ engines: sims.map(({ url }) => url) }));
  expect((await other.responses.retrieve(id)).id).toBe(id);
  const next = { model: "tiny", input: "on", previous_response_id: id, max_output_tokens: 3 };
  expect((await other.responses.create(next)).previous_response_id).toBe(id);
});

test("a response that nobody holds, or whose engine is out, is not found", async () => {
  const { client, router, sims } = await start(2);
  const unknown = await failureOf(
    client.responses.create({ model: "tiny", input: "on", previous_response_id: "resp_unknown" }),
  );
  expect(unknown).toBeInstanceOf(NotFoundError);
  expect(unknown).toMatchObject({ status: 404, code: "response_not_found", param: "previous_response_id" });
  expect(await failureOf(client.responses.retrieve("resp_unknown"))).toMatchObject({ code: "response_not_found" });

  const { id } = await client.responses.create({ model: "tiny", input: "hello", max_output_tokens: 3 });
  await drain(router, await holderOf(sims, id));
  expect(await failureOf(client.responses.retrieve(id))).toMatchObject({ status: 404, code: "response_not_found" });
});

async function holderOf(sims: readonly Sim[], id: string): Promise<string> {
  for (const sim of sims) if ((await fetch(`${sim.url}/v1/responses/${id}`)).ok) return sim.id;
  throw new Error(`no engine holds ${id}`);
}

async function drain(router: RunningRouter, id: string): Promise<void> {
  const { status } = await router.admin("PATCH", `/admin/engines/${encodeURIComponent(id)}`, { draining: true });
  expect(status).toBe(200);
}

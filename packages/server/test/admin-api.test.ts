import { closed, Type } from "@espalier/core/schema";
import fastify, { type FastifyInstance } from "fastify";
import { expect, onTestFinished, test } from "vitest";
import { describeRoutes, descriptionOf } from "../src/admin/admin-api.ts";
import { described } from "../src/lifecycle/answer-schemas.ts";

function start(routes: (app: FastifyInstance) => void): FastifyInstance {
  const app = fastify();
  onTestFinished(() => app.close());
  describeRoutes(app);
  app.register(async (described) => routes(described));
  return app;
}

const small = closed({ name: Type.String() }, { title: "Small" });

test("a schema changes neither what is asked nor what is answered: no coercion, no default, no field dropped", async () => {
  const app = start((routes) => {
    const schema = {
      querystring: closed({ count: Type.Number({ default: 7 }), "x-more": Type.Optional(Type.Boolean()) }),
      body: closed({ name: Type.String(), "x-kind": Type.Optional(Type.Number()) }),
      response: { 200: described(small) },
    };
    routes.post("/echo", { schema }, async ({ query, body }) => ({ query, body }));
  });
  const body = { name: 7, unknown: [null], "x-kind": "3" };
  const answer = await app.inject({ method: "POST", url: "/echo?count=2&more=x", payload: body });
  expect([answer.statusCode, answer.json()]).toEqual([200, { query: { count: "2", more: "x" }, body }]);
  const other = await app.inject({
    method: "POST",
    url: "/echo",
    payload: "7",
    headers: { "content-type": "application/json" },
  });
  expect(other.json()).toEqual({ query: {}, body: 7 });
});

test("a schema with a title stands once in the document, and two of one title are refused", async () => {
  const routesOf = (second: typeof small) => (app: FastifyInstance) => {
    for (const [path, schema] of [
      ["/one", small],
      ["/two", second],
    ] as const) {
      app.get(path, { schema: { response: { 200: described(schema) } } }, async () => ({}));
    }
  };
  const alike = start(routesOf(small));
  await alike.ready();
  const { components, paths } = descriptionOf(alike) as { components: { schemas: object }; paths: object };
  expect(components.schemas).toMatchObject({ Small: { type: "object", required: ["name"] } });
  expect(JSON.stringify(paths).match(/"#\/components\/schemas\/Small"/g)).toHaveLength(2);
  const unlike = start(routesOf(closed({ name: Type.String({ description: "Another." }) }, { title: "Small" })));
  await unlike.ready();
  expect(() => descriptionOf(unlike)).toThrow(new TypeError("two schemas are named Small"));
});

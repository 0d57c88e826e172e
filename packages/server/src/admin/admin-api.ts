/** Blocks that an engine fetches from another one; see `PullReport`. */
const pullSchema = {
  anyOf: [
    {
      type: "object",
      description: "What the engine fetches from another one, and the milliseconds of that and of computing it.",
      properties: {
        from: { type: "string" },
        tokens: { type: "integer" },
        ms: { type: "number" },
        computeMs: { type: "number" },
      },
      required: ["from", "tokens", "ms", "computeMs"],
      additionalProperties: false,
    },
    { type: "null" },
  ],
};

/**
 * The description of the admin API (OpenAPI 3.1): `GET /admin/openapi.json`, and `docs/openapi.json`, which is made of it. Every
 * route of the admin listener has its entry, and every answer its schema; `test/integration/openapi.test.ts` compares both with
 * routers that run.
 */
export const adminApi: Readonly<Record<string, unknown>> = {
  openapi: "3.1.0",
  info: {
    title: "Espalier admin API",
    version: "0.1.0",
    license: {
      name: "Apache-2.0",
      identifier: "Apache-2.0",
    },
    description:
      "What the admin listener of a router answers. Every GET is answered to HEAD as well, without a body. Where `admin.key` is set, everything but the probes and the dashboard's files asks for it. Errors have OpenAI's shape.",
  },
  servers: [
    {
      url: "http://127.0.0.1:9090",
    },
  ],
  security: [
    {},
    {
      adminKey: [],
    },
  ],
  tags: [
    {
      name: "probes",
    },
    {
      name: "metrics",
    },
    {
      name: "router",
    },
    {
      name: "workers",
    },
    {
      name: "dashboard",
    },
  ],
  paths: {
    "/livez": {
      get: {
        operationId: "live_livez",
        summary: "Whether the process answers.",
        security: [],
        tags: ["probes"],
        responses: {
          "200": {
            description: "It does.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Alive",
                },
              },
            },
          },
        },
      },
    },
    "/healthz": {
      get: {
        operationId: "live_healthz",
        summary: "Whether the process answers.",
        security: [],
        tags: ["probes"],
        responses: {
          "200": {
            description: "It does.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Alive",
                },
              },
            },
          },
        },
      },
    },
    "/liveness": {
      get: {
        operationId: "live_liveness",
        summary: "Whether the process answers.",
        security: [],
        tags: ["probes"],
        responses: {
          "200": {
            description: "It does.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Alive",
                },
              },
            },
          },
        },
      },
    },
    "/live": {
      get: {
        operationId: "live_live",
        summary: "Whether the process answers.",
        security: [],
        tags: ["probes"],
        responses: {
          "200": {
            description: "It does.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Alive",
                },
              },
            },
          },
        },
      },
    },
    "/ping": {
      get: {
        operationId: "live_ping",
        summary: "Whether the process answers.",
        security: [],
        tags: ["probes"],
        responses: {
          "200": {
            description: "It does.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Alive",
                },
              },
            },
          },
        },
      },
    },
    "/readyz": {
      get: {
        operationId: "ready_readyz",
        summary: "Whether a request would find an engine.",
        security: [],
        tags: ["probes"],
        responses: {
          "200": {
            description: "It would.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Readiness",
                },
              },
            },
          },
          "503": {
            description: "It would not; the reasons say why.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Readiness",
                },
              },
            },
          },
        },
      },
    },
    "/health": {
      get: {
        operationId: "ready_health",
        summary: "Whether a request would find an engine.",
        security: [],
        tags: ["probes"],
        responses: {
          "200": {
            description: "It would.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Readiness",
                },
              },
            },
          },
          "503": {
            description: "It would not; the reasons say why.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Readiness",
                },
              },
            },
          },
        },
      },
    },
    "/readiness": {
      get: {
        operationId: "ready_readiness",
        summary: "Whether a request would find an engine.",
        security: [],
        tags: ["probes"],
        responses: {
          "200": {
            description: "It would.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Readiness",
                },
              },
            },
          },
          "503": {
            description: "It would not; the reasons say why.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Readiness",
                },
              },
            },
          },
        },
      },
    },
    "/ready": {
      get: {
        operationId: "ready_ready",
        summary: "Whether a request would find an engine.",
        security: [],
        tags: ["probes"],
        responses: {
          "200": {
            description: "It would.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Readiness",
                },
              },
            },
          },
          "503": {
            description: "It would not; the reasons say why.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Readiness",
                },
              },
            },
          },
        },
      },
    },
    "/metrics": {
      get: {
        operationId: "metrics",
        summary: "Metrics in Prometheus' text format (docs/METRICS.md).",
        tags: ["metrics"],
        responses: {
          "200": {
            description: "One page.",
            content: {
              "text/plain": {
                schema: {
                  type: "string",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
    },
    "/admin/status": {
      get: {
        operationId: "status",
        summary: "How the router is, and what it shares with which others.",
        tags: ["router"],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Status",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
    },
    "/admin/config": {
      get: {
        operationId: "config",
        summary: "The configuration in force, every default written out, secrets masked.",
        tags: ["router"],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  type: "object",
                  description: "As docs/configuration.schema.json describes it.",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
    },
    "/admin/openapi.json": {
      get: {
        operationId: "openapi",
        summary: "This description of the admin API.",
        tags: ["router"],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  type: "object",
                  description: "An OpenAPI 3.1 document.",
                  required: ["openapi", "info", "paths"],
                  properties: {
                    openapi: {
                      type: "string",
                    },
                    info: {
                      type: "object",
                    },
                    paths: {
                      type: "object",
                    },
                  },
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
    },
    "/admin/reload": {
      post: {
        operationId: "reload",
        summary: "Read the configuration again.",
        tags: ["router"],
        responses: {
          "200": {
            description: "What became of it.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/ReloadOutcome",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
          "422": {
            description: "It is not valid; the old one stays.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/ReloadOutcome",
                },
              },
            },
          },
        },
      },
    },
    "/admin/scale": {
      get: {
        operationId: "scale",
        summary: "How many engines the load of each model needs, over all routers.",
        tags: ["router"],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  type: "object",
                  properties: {
                    utilization: {
                      type: "number",
                    },
                    models: {
                      type: "array",
                      items: {
                        type: "object",
                        properties: {
                          model: {
                            type: "string",
                          },
                          wanted: {
                            type: "object",
                            properties: {
                              both: {
                                type: "integer",
                              },
                              prefill: {
                                type: "integer",
                              },
                              decode: {
                                type: "integer",
                              },
                            },
                            required: ["both", "prefill", "decode"],
                            additionalProperties: false,
                            description: "Engines that the load needs, by what they do.",
                          },
                          load: {
                            type: "object",
                            properties: {
                              both: {
                                type: "number",
                              },
                              prefill: {
                                type: "number",
                              },
                              decode: {
                                type: "number",
                              },
                            },
                            required: ["both", "prefill", "decode"],
                            additionalProperties: false,
                            description: "In engines at full use.",
                          },
                          engines: {
                            type: "integer",
                            description: "Engines that can take requests.",
                          },
                          requestsPerS: {
                            type: "number",
                            description: "Requests that arrive in a second.",
                          },
                          costMs: {
                            type: "number",
                            description: "Engine time of a request.",
                          },
                          waiting: {
                            type: "integer",
                            description: "Requests that wait in routers.",
                          },
                          inFlight: {
                            type: "integer",
                            description: "Requests at engines.",
                          },
                          batch: {
                            type: "number",
                            description: "Requests that an engine serves together.",
                          },
                          msPerOutputToken: {
                            type: "number",
                            description: "Time of a token of an answer, as clients see it.",
                          },
                        },
                        required: [
                          "model",
                          "wanted",
                          "load",
                          "engines",
                          "requestsPerS",
                          "costMs",
                          "waiting",
                          "inFlight",
                          "batch",
                          "msPerOutputToken",
                        ],
                        additionalProperties: false,
                      },
                    },
                  },
                  required: ["utilization", "models"],
                  additionalProperties: false,
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
    },
    "/admin/feeds": {
      get: {
        operationId: "feeds",
        summary: "The KV event feeds of engines and pools.",
        tags: ["router"],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  type: "object",
                  properties: {
                    feeds: {
                      type: "array",
                      items: {
                        $ref: "#/components/schemas/Feed",
                      },
                    },
                  },
                  required: ["feeds"],
                  additionalProperties: false,
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
    },
    "/admin/mesh": {
      get: {
        operationId: "mesh",
        summary: "This router's place among the others.",
        tags: ["router"],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  oneOf: [
                    {
                      $ref: "#/components/schemas/Mesh",
                    },
                    {
                      $ref: "#/components/schemas/MeshOff",
                    },
                  ],
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
    },
    "/admin/explain": {
      post: {
        operationId: "explain",
        summary: "Where a request would go, and why. Nothing is sent to an engine.",
        tags: ["router"],
        parameters: [
          {
            name: "endpoint",
            in: "query",
            description: "`chat`, `completions`, `messages`, `responses`, or a path; guessed of the body unless given.",
            schema: {
              type: "string",
            },
          },
        ],
        requestBody: {
          required: true,
          description: "The request's body, as a client would send it, with its headers.",
          content: {
            "application/json": {
              schema: {
                type: "object",
              },
            },
          },
        },
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Explanation",
                },
              },
            },
          },
          "400": {
            description: "As the request itself would be refused.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
          "404": {
            description: "No engine serves the model, or there is no such endpoint.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
          "413": {
            description: "The body is too long.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
    },
    "/admin/recording": {
      get: {
        operationId: "recording",
        summary: "Every request that ends from now on, without its text, as `espalier record` writes it into a trace.",
        tags: ["router"],
        parameters: [
          {
            name: "x-espalier-salt",
            in: "header",
            required: true,
            description: "32 hexadecimal digits by which blocks, sessions and tenants get numbers.",
            schema: {
              type: "string",
            },
          },
        ],
        responses: {
          "200": {
            description: "A JSON object a line: a request, or, once a second, the number of those left out so far.",
            content: {
              "application/x-ndjson": {
                schema: {
                  oneOf: [
                    {
                      $ref: "#/components/schemas/RecordedRequest",
                    },
                    {
                      type: "object",
                      properties: {
                        skipped: {
                          type: "integer",
                        },
                      },
                      required: ["skipped"],
                      additionalProperties: false,
                    },
                  ],
                },
              },
            },
          },
          "400": {
            description:
              "The salt is missing, or the name of the host is none of a loopback address where there is no key.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
          "429": {
            description: "Too many recordings.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
    },
    "/admin/requests/{id}": {
      get: {
        operationId: "pastRequest",
        summary: "What was decided about a request, at this router or another one of its mesh, and why.",
        tags: ["router"],
        parameters: [
          {
            name: "id",
            in: "path",
            required: true,
            description: "`x-request-id` of the answer.",
            schema: {
              type: "string",
            },
          },
        ],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/PastRequest",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
          "404": {
            description: "No router of the mesh has it.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
          "429": {
            description: "Too many others are looked for.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
    },
    "/admin/workers": {
      get: {
        operationId: "listWorkers",
        summary: "The engines.",
        tags: ["workers"],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  type: "object",
                  properties: {
                    workers: {
                      type: "array",
                      items: {
                        $ref: "#/components/schemas/Worker",
                      },
                    },
                  },
                  required: ["workers"],
                  additionalProperties: false,
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
      post: {
        operationId: "addWorker",
        summary: "Add an engine; with a mesh, at every router.",
        tags: ["workers"],
        requestBody: {
          required: true,
          content: {
            "application/json": {
              schema: {
                $ref: "#/components/schemas/NewWorker",
              },
            },
          },
        },
        responses: {
          "201": {
            description: "It was added.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Worker",
                },
              },
            },
          },
          "400": {
            description: "The body is no engine.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
    },
    "/admin/workers/{id}": {
      get: {
        operationId: "getWorker",
        summary: "One engine.",
        tags: ["workers"],
        parameters: [
          {
            name: "id",
            in: "path",
            required: true,
            description: "The engine's id, as the list has it, percent-encoded.",
            schema: {
              type: "string",
            },
          },
        ],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Worker",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
          "404": {
            description: "There is no such engine.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
      patch: {
        operationId: "drainWorker",
        summary: "Give an engine no new requests, or give it new ones again.",
        tags: ["workers"],
        parameters: [
          {
            name: "id",
            in: "path",
            required: true,
            description: "The engine's id, as the list has it, percent-encoded.",
            schema: {
              type: "string",
            },
          },
        ],
        requestBody: {
          required: true,
          content: {
            "application/json": {
              schema: {
                type: "object",
                properties: {
                  draining: {
                    type: "boolean",
                  },
                },
                required: ["draining"],
                additionalProperties: false,
              },
            },
          },
        },
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Worker",
                },
              },
            },
          },
          "400": {
            description: "The body is another one.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
          "404": {
            description: "There is no such engine.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
      delete: {
        operationId: "removeWorker",
        summary: "Remove an engine; with a mesh, at every router. Requests that it has are not cut.",
        tags: ["workers"],
        parameters: [
          {
            name: "id",
            in: "path",
            required: true,
            description: "The engine's id, as the list has it, percent-encoded.",
            schema: {
              type: "string",
            },
          },
        ],
        responses: {
          "204": {
            description: "It is gone.",
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
          "404": {
            description: "There is no such engine.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
    },
    "/admin/dashboard": {
      get: {
        operationId: "dashboard",
        summary: "What the dashboard's page needs to begin.",
        tags: ["dashboard"],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Dashboard",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
      options: {
        operationId: "preflightDashboard",
        summary: "A browser's question whether a page of another router may read it.",
        security: [],
        tags: ["dashboard"],
        responses: {
          "204": {
            description: "A page of another router of the mesh may read it.",
          },
          "404": {
            description: "Any other page.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
    },
    "/admin/history": {
      get: {
        operationId: "history",
        summary: "The router's last fifteen minutes, a point each second.",
        tags: ["dashboard"],
        parameters: [
          {
            name: "after",
            in: "query",
            description: "Only points after this time of the router's clock, in milliseconds since the Unix epoch.",
            schema: {
              type: "number",
            },
          },
        ],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/History",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
      options: {
        operationId: "preflightHistory",
        summary: "A browser's question whether a page of another router may read it.",
        security: [],
        tags: ["dashboard"],
        responses: {
          "204": {
            description: "A page of another router of the mesh may read it.",
          },
          "404": {
            description: "Any other page.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
    },
    "/admin/prefixes": {
      get: {
        operationId: "prefixes",
        summary: "What prompts have in common, and which engines have it.",
        tags: ["dashboard"],
        parameters: [
          {
            name: "below",
            in: "query",
            description: "Hash of a prefix: that one comes first, and the others continue it.",
            schema: {
              type: "string",
            },
          },
        ],
        responses: {
          "200": {
            description: "As described.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Prefixes",
                },
              },
            },
          },
          "400": {
            description: "`below` is no hash.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
        },
      },
      options: {
        operationId: "preflightPrefixes",
        summary: "A browser's question whether a page of another router may read it.",
        security: [],
        tags: ["dashboard"],
        responses: {
          "204": {
            description: "A page of another router of the mesh may read it.",
          },
          "404": {
            description: "Any other page.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
    },
    "/admin/decisions": {
      get: {
        operationId: "decisions",
        summary: "Decisions from now on, as server-sent events named `decisions`, whose data is a `DecisionBatch`.",
        tags: ["dashboard"],
        responses: {
          "200": {
            description: "A stream without end; a comment every two seconds.",
            content: {
              "text/event-stream": {
                schema: {
                  $ref: "#/components/schemas/DecisionBatch",
                },
              },
            },
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
          "503": {
            description: "Too many read it already.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
      options: {
        operationId: "preflightDecisions",
        summary: "A browser's question whether a page of another router may read it.",
        security: [],
        tags: ["dashboard"],
        responses: {
          "204": {
            description: "A page of another router of the mesh may read it.",
          },
          "404": {
            description: "Any other page.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
    },
    "/": {
      get: {
        operationId: "root",
        summary: "Sends browsers to the dashboard.",
        security: [],
        tags: ["dashboard"],
        responses: {
          "302": {
            description: "To `/dashboard/`.",
          },
          "404": {
            description: "It was no browser.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
    },
    "/dashboard": {
      get: {
        operationId: "dashboardRedirect",
        summary: "Sends browsers to the dashboard.",
        security: [],
        tags: ["dashboard"],
        responses: {
          "302": {
            description: "To `/dashboard/`.",
          },
        },
      },
    },
    "/dashboard/": {
      get: {
        operationId: "dashboardPage",
        summary: "The dashboard's page.",
        security: [],
        tags: ["dashboard"],
        responses: {
          "200": {
            description: "The page.",
            content: {
              "text/html": {
                schema: {
                  type: "string",
                },
              },
            },
          },
          "404": {
            description: "It was not built.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
    },
    "/dashboard/{name}": {
      get: {
        operationId: "dashboardFile",
        summary: "A file of the dashboard's page.",
        security: [],
        tags: ["dashboard"],
        parameters: [
          {
            name: "name",
            in: "path",
            required: true,
            schema: {
              type: "string",
            },
          },
        ],
        responses: {
          "200": {
            description: "The file.",
            content: {
              "*/*": {
                schema: {
                  type: "string",
                },
              },
            },
          },
          "404": {
            description: "There is no such file.",
            content: {
              "application/json": {
                schema: {
                  $ref: "#/components/schemas/Error",
                },
              },
            },
          },
        },
      },
    },
    "/yjs/{document}": {
      get: {
        operationId: "documents",
        summary:
          "Follow a shared document, read-only, by the y-websocket protocol (docs/PROTOCOL.md). Only as a websocket; the key may be given as `?key=`.",
        tags: ["dashboard"],
        parameters: [
          {
            name: "document",
            in: "path",
            required: true,
            description: "Its name; may have slashes.",
            schema: {
              type: "string",
            },
          },
          {
            name: "key",
            in: "query",
            description: "The admin key, for browsers.",
            schema: {
              type: "string",
            },
          },
        ],
        responses: {
          "101": {
            description: "The websocket is open.",
          },
          "401": {
            $ref: "#/components/responses/Unauthorized",
          },
          "404": {
            description: "There is no such document.",
          },
        },
      },
    },
  },
  components: {
    securitySchemes: {
      adminKey: {
        type: "http",
        scheme: "bearer",
      },
    },
    responses: {
      Unauthorized: {
        description: "The admin key is missing or wrong.",
        content: {
          "application/json": {
            schema: {
              $ref: "#/components/schemas/Error",
            },
          },
        },
      },
    },
    schemas: {
      Error: {
        type: "object",
        properties: {
          error: {
            type: "object",
            properties: {
              message: {
                type: "string",
              },
              type: {
                type: "string",
              },
              param: {
                type: ["string", "null"],
              },
              code: {
                type: "string",
                description: "Stable; docs/ERRORS.md says of each what to do.",
              },
            },
            required: ["message", "type", "param", "code"],
            additionalProperties: false,
          },
        },
        required: ["error"],
        additionalProperties: false,
      },
      FeedQuality: {
        type: "string",
        enum: ["complete", "partial", "void", "none"],
        description: "How far what is known of an engine's cache is believed: only `complete` and `partial` are.",
      },
      Alive: {
        type: "object",
        properties: {
          status: {
            const: "alive",
          },
        },
        required: ["status"],
        additionalProperties: false,
      },
      Readiness: {
        type: "object",
        properties: {
          status: {
            type: "string",
            enum: ["ready", "not ready"],
          },
          reasons: {
            type: "array",
            items: {
              type: "string",
            },
            description: "Why not; empty when ready.",
          },
        },
        required: ["status", "reasons"],
        additionalProperties: false,
      },
      ReloadOutcome: {
        type: "object",
        properties: {
          applied: {
            type: "array",
            items: {
              type: "string",
            },
            description: "Settings in force from now on.",
          },
          needsRestart: {
            type: "array",
            items: {
              type: "string",
            },
            description: "Settings that wait for a restart.",
          },
          trigger: {
            type: "string",
            enum: ["file", "signal", "admin"],
          },
          atMs: {
            type: "number",
            description: "Milliseconds since the Unix epoch.",
          },
          error: {
            type: "object",
            properties: {
              code: {
                type: "string",
              },
              message: {
                type: "string",
              },
            },
            required: ["code", "message"],
            additionalProperties: false,
            description: "Only when it failed; the old configuration stays.",
          },
        },
        required: ["applied", "needsRestart", "trigger", "atMs"],
        additionalProperties: false,
      },
      Status: {
        type: "object",
        properties: {
          ready: {
            type: "boolean",
          },
          reasons: {
            type: "array",
            items: {
              type: "string",
            },
          },
          settings: {
            type: "string",
            description: "Digest of the settings that all routers should have alike.",
          },
          draining: {
            type: "boolean",
          },
          inFlight: {
            type: "integer",
          },
          engines: {
            type: "integer",
          },
          usableEngines: {
            type: "integer",
          },
          models: {
            type: "array",
            items: {
              type: "string",
            },
          },
          mesh: {
            anyOf: [
              {
                $ref: "#/components/schemas/Mesh",
              },
              {
                type: "null",
              },
            ],
            description: "Null for a router that shares nothing.",
          },
          lastReload: {
            anyOf: [
              {
                $ref: "#/components/schemas/ReloadOutcome",
              },
              {
                type: "null",
              },
            ],
            description: "Null before the first.",
          },
          picker: {
            anyOf: [
              {
                type: "object",
                properties: {
                  address: {
                    type: "string",
                  },
                  healthAddress: {
                    type: "string",
                  },
                },
                required: ["address", "healthAddress"],
                additionalProperties: false,
              },
              {
                type: "null",
              },
            ],
            description: "`host:port` of the endpoint picker and of its health checks; null for a router that is none.",
          },
          url: {
            type: "string",
            description: "Where it listens for clients; empty until it does.",
          },
          version: {
            type: ["string", "null"],
            description: "The version of the program; null when the program does not tell it.",
          },
          peers: {
            type: "array",
            description: "Admin listeners of the other live routers, as far as they announce them.",
            items: {
              type: "object",
              properties: {
                router: {
                  type: "string",
                },
                adminUrl: {
                  type: "string",
                },
              },
              required: ["router", "adminUrl"],
              additionalProperties: false,
            },
          },
          overflow: {
            type: "array",
            items: {
              type: "object",
              properties: {
                name: {
                  type: "string",
                },
                api: {
                  enum: ["openai", "anthropic"],
                },
                models: {
                  type: "array",
                  items: {
                    type: "string",
                  },
                },
                inFlight: {
                  type: "integer",
                  description: "Requests of this router.",
                },
                spent: {
                  type: "object",
                  description: "By all routers, in the present hour and day of UTC.",
                  properties: {
                    hour: {
                      type: "number",
                    },
                    day: {
                      type: "number",
                    },
                  },
                  required: ["hour", "day"],
                  additionalProperties: false,
                },
                budget: {
                  type: "object",
                  properties: {
                    hour: {
                      type: ["number", "null"],
                    },
                    day: {
                      type: ["number", "null"],
                    },
                  },
                  required: ["hour", "day"],
                  additionalProperties: false,
                },
                isPaused: {
                  type: "boolean",
                  description: "It failed a moment ago, and gets no requests for a while.",
                },
              },
              required: ["name", "api", "models", "inFlight", "spent", "budget", "isPaused"],
              additionalProperties: false,
            },
          },
        },
        required: [
          "ready",
          "reasons",
          "settings",
          "draining",
          "inFlight",
          "engines",
          "usableEngines",
          "models",
          "mesh",
          "lastReload",
          "picker",
          "url",
          "version",
          "peers",
          "overflow",
        ],
        additionalProperties: false,
      },
      MeshMember: {
        type: "object",
        properties: {
          router: {
            type: "string",
          },
          epoch: {
            type: "integer",
          },
          state: {
            type: "string",
          },
          isDraining: {
            type: "boolean",
          },
          region: {
            type: ["string", "null"],
            description: "Where it says that it is.",
          },
          address: {
            type: ["string", "null"],
          },
          isLinked: {
            type: "boolean",
          },
          roundTripMs: {
            type: ["number", "null"],
          },
          lagMs: {
            type: ["number", "null"],
          },
          sentBytes: {
            type: "number",
          },
          receivedBytes: {
            type: "number",
          },
          sentBytesPerS: {
            type: "number",
          },
          receivedBytesPerS: {
            type: "number",
          },
          bufferedBytes: {
            type: "number",
          },
          version: {
            type: ["string", "null"],
            description: "Null where it has not said it.",
          },
          settings: {
            type: ["string", "null"],
            description: "Digest of the settings that all routers should have alike.",
          },
          differs: {
            type: "array",
            items: {
              type: "string",
            },
            description: "In what it differs from this router: `version`, or sections of the configuration.",
          },
        },
        required: [
          "router",
          "epoch",
          "state",
          "isDraining",
          "region",
          "address",
          "isLinked",
          "roundTripMs",
          "lagMs",
          "sentBytes",
          "receivedBytes",
          "sentBytesPerS",
          "receivedBytesPerS",
          "bufferedBytes",
          "version",
          "settings",
          "differs",
        ],
        additionalProperties: false,
      },
      Mesh: {
        type: "object",
        properties: {
          backend: {
            type: "string",
            enum: ["peers", "redis"],
          },
          cluster: {
            type: "string",
          },
          events: {
            type: "string",
            description: "Who reads the engines' KV events.",
          },
          router: {
            type: "string",
          },
          epoch: {
            type: "integer",
            description: "Of this run of the router.",
          },
          region: {
            type: ["string", "null"],
            description: "`mesh.region`.",
          },
          address: {
            type: ["string", "null"],
          },
          waitingFor: {
            type: "array",
            items: {
              type: "string",
            },
          },
          members: {
            type: "array",
            items: {
              $ref: "#/components/schemas/MeshMember",
            },
          },
          lost: {
            type: "array",
            items: {
              type: "object",
              properties: {
                router: {
                  type: "string",
                },
                address: {
                  type: ["string", "null"],
                  description: "Where it was reached last.",
                },
                sinceMs: {
                  type: "number",
                  description: "Milliseconds since the Unix epoch.",
                },
              },
              required: ["router", "address", "sinceMs"],
              additionalProperties: false,
            },
            description: "Routers that failed in the last 30 minutes, and are no members any more.",
          },
          refused: {
            type: "array",
            items: {
              type: "object",
              properties: {
                address: {
                  type: "string",
                  description: "What this router dialed, or the host that dialed it.",
                },
                by: {
                  type: "string",
                  enum: ["us", "peer"],
                },
                reason: {
                  type: "string",
                },
                detail: {
                  type: "string",
                },
                count: {
                  type: "integer",
                },
                firstMs: {
                  type: "number",
                  description: "Milliseconds since the Unix epoch.",
                },
                lastMs: {
                  type: "number",
                  description: "Milliseconds since the Unix epoch.",
                },
              },
              required: ["address", "by", "reason", "detail", "count", "firstMs", "lastMs"],
              additionalProperties: false,
            },
            description: "Routers with which no link was made in the last 30 minutes, at most 32, the latest first.",
          },
          load: {
            type: "array",
            items: {
              type: "object",
              properties: {
                router: {
                  type: "string",
                },
                epoch: {
                  type: "integer",
                },
                ageMs: {
                  type: "number",
                },
                leaseLeftMs: {
                  type: "number",
                },
                targets: {
                  type: "integer",
                },
                inFlight: {
                  type: "integer",
                },
              },
              required: ["router", "epoch", "ageMs", "leaseLeftMs", "targets", "inFlight"],
              additionalProperties: false,
            },
          },
          feeds: {
            type: "object",
            properties: {
              owned: {
                type: "integer",
              },
              backup: {
                type: "integer",
              },
              unread: {
                type: "integer",
              },
            },
            required: ["owned", "backup", "unread"],
            additionalProperties: false,
          },
          facts: {
            type: "object",
            properties: {
              targets: {
                type: "integer",
              },
              blocks: {
                type: "integer",
              },
              settled: {
                type: "integer",
              },
              digest: {
                type: "string",
              },
              waitingBytes: {
                type: "integer",
              },
            },
            required: ["targets", "blocks", "settled", "digest", "waitingBytes"],
            additionalProperties: false,
          },
          journals: {
            type: "object",
            properties: {
              count: {
                type: "integer",
              },
              bytes: {
                type: "integer",
              },
              own: {
                type: "object",
                description: "Statistics of the journals.",
              },
            },
            required: ["count", "bytes", "own"],
            additionalProperties: false,
          },
          targets: {
            type: "array",
            items: {
              type: "object",
              properties: {
                target: {
                  type: "string",
                },
                owner: {
                  type: ["string", "null"],
                },
                worth: {
                  $ref: "#/components/schemas/FeedQuality",
                },
                life: {
                  type: ["string", "null"],
                  description: "Epoch of the engine.",
                },
                sequence: {
                  type: ["integer", "null"],
                },
                isComplete: {
                  type: "boolean",
                },
                progress: {
                  type: "string",
                  enum: ["current", "waiting", "open", "loading"],
                },
                blocks: {
                  type: ["integer", "null"],
                },
                digest: {
                  type: ["string", "null"],
                },
              },
              required: ["target", "owner", "worth", "life", "sequence", "isComplete", "progress", "blocks", "digest"],
              additionalProperties: false,
            },
            description: "At most 1,024.",
          },
        },
        required: [
          "backend",
          "cluster",
          "events",
          "router",
          "epoch",
          "region",
          "address",
          "waitingFor",
          "members",
          "lost",
          "refused",
          "load",
          "feeds",
          "facts",
          "journals",
          "targets",
        ],
        additionalProperties: false,
      },
      MeshOff: {
        type: "object",
        properties: {
          backend: {
            const: "off",
          },
        },
        required: ["backend"],
        additionalProperties: false,
      },
      Target: {
        type: "object",
        properties: {
          key: {
            type: "string",
          },
          usable: {
            type: "boolean",
          },
          load: {
            type: "object",
            properties: {
              in_flight: {
                type: "integer",
              },
              pending_prefill_tokens: {
                type: "number",
              },
              decode_tokens: {
                type: "number",
              },
              outstanding_output_tokens: {
                type: "number",
              },
            },
            required: ["in_flight", "pending_prefill_tokens", "decode_tokens", "outstanding_output_tokens"],
            additionalProperties: false,
          },
          signals: {
            type: "object",
            properties: {
              dialect: {
                type: ["string", "null"],
              },
              age_ms: {
                type: ["number", "null"],
              },
              running: {
                type: ["number", "null"],
              },
              waiting: {
                type: ["number", "null"],
              },
              kv_use: {
                type: ["number", "null"],
              },
              block_size: {
                type: ["number", "null"],
              },
              block_count: {
                type: ["number", "null"],
              },
              prompt_tokens_total: {
                type: ["number", "null"],
              },
              generation_tokens_total: {
                type: ["number", "null"],
              },
              prefix_queries: {
                type: ["number", "null"],
              },
              prefix_hits: {
                type: ["number", "null"],
              },
            },
            required: [
              "dialect",
              "age_ms",
              "running",
              "waiting",
              "kv_use",
              "block_size",
              "block_count",
              "prompt_tokens_total",
              "generation_tokens_total",
              "prefix_queries",
              "prefix_hits",
            ],
            additionalProperties: false,
            description: "Null where the engine's metrics say nothing.",
          },
          adapters: {
            anyOf: [
              {
                type: "object",
                properties: {
                  slots: {
                    type: ["integer", "null"],
                  },
                  running: {
                    type: "array",
                    items: {
                      type: "string",
                    },
                  },
                  waiting: {
                    type: "array",
                    items: {
                      type: "string",
                    },
                  },
                  loaded: {
                    type: "array",
                    items: {
                      type: "string",
                    },
                  },
                },
                required: ["slots", "running", "waiting", "loaded"],
                additionalProperties: false,
              },
              {
                type: "null",
              },
            ],
            description: "LoRA adapters; null while none was seen or asked for.",
          },
        },
        required: ["key", "usable", "load", "signals", "adapters"],
        additionalProperties: false,
      },
      Worker: {
        type: "object",
        properties: {
          id: {
            type: "string",
          },
          url: {
            type: "string",
          },
          state: {
            type: "string",
          },
          reason: {
            type: "string",
          },
          since: {
            type: "string",
            format: "date-time",
          },
          draining: {
            type: "boolean",
          },
          models: {
            type: ["array", "null"],
            items: {
              type: "string",
            },
            description: "Null until known.",
          },
          role: {
            type: "string",
            enum: ["both", "prefill", "decode"],
          },
          kv_transfer: {
            type: ["string", "null"],
            description: "The protocol by which it hands over KV blocks.",
          },
          kv_pull: {
            type: ["string", "null"],
            description: "The protocol by which it fetches KV blocks of prompts from other engines.",
          },
          weight: {
            type: "number",
          },
          labels: {
            type: "object",
            additionalProperties: {
              type: "string",
            },
          },
          region: {
            type: ["string", "null"],
            description: "Where it is; null if that is not known.",
          },
          network_ms: {
            type: ["number", "null"],
            description: "Round trip between this router and it; null until it is measured.",
          },
          breaker: {
            type: "object",
            properties: {
              state: {
                type: "string",
              },
              reason: {
                type: "string",
              },
              overruled: {
                type: "boolean",
              },
            },
            required: ["state", "reason", "overruled"],
            additionalProperties: false,
          },
          health: {
            type: "object",
            properties: {
              last_outcome: {
                type: ["string", "null"],
              },
              consecutive_failures: {
                type: "integer",
              },
              consecutive_successes: {
                type: "integer",
              },
              overruled: {
                type: "boolean",
              },
            },
            required: ["last_outcome", "consecutive_failures", "consecutive_successes", "overruled"],
            additionalProperties: false,
          },
          targets: {
            type: "array",
            items: {
              $ref: "#/components/schemas/Target",
            },
          },
          duty: {
            anyOf: [
              {
                type: "string",
                enum: ["prefill", "decode"],
              },
              {
                type: "null",
              },
            ],
            description: "The role that an engine of role `both` keeps to.",
          },
        },
        required: [
          "id",
          "url",
          "state",
          "reason",
          "since",
          "draining",
          "models",
          "role",
          "kv_transfer",
          "kv_pull",
          "weight",
          "labels",
          "region",
          "network_ms",
          "breaker",
          "health",
          "targets",
          "duty",
        ],
        additionalProperties: false,
      },
      NewWorker: {
        type: "object",
        description: "An element of `engines` of the configuration, as docs/CONFIGURATION.md describes it.",
        properties: {
          url: {
            type: "string",
          },
          id: {
            type: "string",
          },
          models: {
            type: "array",
            items: {
              type: "string",
            },
          },
          role: {
            type: "string",
            enum: ["both", "prefill", "decode"],
          },
          weight: {
            type: "number",
          },
          labels: {
            type: "object",
            additionalProperties: {
              type: "string",
            },
          },
        },
        required: ["url"],
        additionalProperties: true,
      },
      Feed: {
        type: "object",
        description: "What is known of a feed; where another router reads it, only what that one tells.",
        properties: {
          target: {
            type: "string",
          },
          state: {
            type: "string",
          },
          reason: {
            type: "string",
          },
          role: {
            type: ["string", "null"],
            description: "Of this router: owner or backup.",
          },
          owner: {
            type: ["string", "null"],
            description: "The router that reads it.",
          },
          blocks: {
            type: "object",
            additionalProperties: {
              type: "integer",
            },
            description: "By tier.",
          },
          floatingBlocks: {
            type: "integer",
          },
          endpoint: {
            type: ["string", "null"],
          },
          messages: {
            type: "integer",
          },
          gaps: {
            type: "integer",
          },
          restarts: {
            type: "integer",
          },
          lastSequence: {
            type: ["integer", "null"],
          },
          lagMs: {
            type: ["number", "null"],
          },
        },
        required: ["target", "state", "reason", "role", "owner", "blocks", "floatingBlocks"],
        additionalProperties: true,
      },
      ExplainedFeed: {
        anyOf: [
          {
            type: "object",
            properties: {
              state: {
                type: "string",
              },
              reason: {
                type: "string",
              },
              readBy: {
                type: ["string", "null"],
              },
              life: {
                type: ["string", "null"],
              },
              sequence: {
                type: ["integer", "null"],
              },
              ageMs: {
                type: ["number", "null"],
              },
              lagMs: {
                type: ["number", "null"],
              },
            },
            required: ["state", "reason", "readBy", "life", "sequence", "ageMs", "lagMs"],
            additionalProperties: false,
          },
          {
            type: "null",
          },
        ],
      },
      Candidate: {
        type: "object",
        properties: {
          key: {
            type: "string",
          },
          eligible: {
            type: "boolean",
            description: "Whether it passed the filters.",
          },
          probability: {
            type: "number",
          },
          cost: {
            type: ["number", "null"],
            description: "Lower is better.",
          },
          scores: {
            type: "object",
            additionalProperties: {
              type: ["number", "null"],
            },
          },
          terms: {
            type: "object",
            additionalProperties: {
              type: ["number", "null"],
            },
          },
          signals: {
            type: "object",
            additionalProperties: {
              type: ["number", "null"],
            },
          },
          load: {
            type: "object",
            properties: {
              own: {
                type: "object",
                properties: {
                  inFlight: {
                    type: "number",
                  },
                  pendingPrefillTokens: {
                    type: "number",
                  },
                  decodeTokens: {
                    type: "number",
                  },
                },
                required: ["inFlight", "pendingPrefillTokens", "decodeTokens"],
                additionalProperties: false,
              },
              others: {
                anyOf: [
                  {
                    type: "object",
                    properties: {
                      inFlight: {
                        type: "number",
                      },
                      pendingPrefillTokens: {
                        type: "number",
                      },
                      decodeTokens: {
                        type: "number",
                      },
                      ageMs: {
                        type: "number",
                      },
                    },
                    required: ["inFlight", "pendingPrefillTokens", "decodeTokens", "ageMs"],
                    additionalProperties: false,
                  },
                  {
                    type: "null",
                  },
                ],
              },
            },
            required: ["own", "others"],
            additionalProperties: false,
          },
          facts: {
            anyOf: [
              {
                type: "object",
                properties: {
                  blocks: {
                    type: "object",
                    additionalProperties: {
                      type: "integer",
                    },
                    description: "By tier.",
                  },
                  standing: {
                    $ref: "#/components/schemas/FeedQuality",
                  },
                  feed: {
                    $ref: "#/components/schemas/ExplainedFeed",
                  },
                },
                required: ["blocks", "standing", "feed"],
                additionalProperties: false,
              },
              {
                type: "null",
              },
            ],
          },
          pools: {
            type: ["array", "null"],
            items: {
              type: "object",
              properties: {
                pool: {
                  type: "string",
                },
                blocks: {
                  type: "integer",
                },
                standing: {
                  $ref: "#/components/schemas/FeedQuality",
                },
                feed: {
                  $ref: "#/components/schemas/ExplainedFeed",
                },
              },
              required: ["pool", "blocks", "standing", "feed"],
              additionalProperties: false,
            },
          },
          placement: {
            anyOf: [
              {
                type: "object",
                properties: {
                  blocks: {
                    type: "integer",
                  },
                  confirmedBlocks: {
                    type: "integer",
                  },
                  ageMs: {
                    type: "number",
                  },
                  by: {
                    type: ["string", "null"],
                  },
                },
                required: ["blocks", "confirmedBlocks", "ageMs", "by"],
                additionalProperties: false,
              },
              {
                type: "null",
              },
            ],
          },
        },
        required: [
          "key",
          "eligible",
          "probability",
          "cost",
          "scores",
          "terms",
          "signals",
          "load",
          "facts",
          "pools",
          "placement",
        ],
        additionalProperties: false,
      },
      RecordedRequest: {
        type: "object",
        properties: {
          atMs: {
            type: "integer",
            description: "When it was accepted, in milliseconds since 1970.",
          },
          model: {
            type: "string",
          },
          inputTokens: {
            type: "integer",
          },
          outputTokens: {
            type: "integer",
          },
          blocks: {
            type: "array",
            description: "A number for each full block of 16 tokens, equal for equal beginnings.",
            items: {
              type: "integer",
            },
          },
          session: {
            type: ["integer", "null"],
          },
          tenant: {
            type: ["integer", "null"],
          },
          adapter: {
            type: ["string", "null"],
          },
        },
        required: ["atMs", "model", "inputTokens", "outputTokens", "blocks", "session", "tenant", "adapter"],
        additionalProperties: false,
      },
      PastRequest: {
        type: "object",
        properties: {
          requestId: {
            type: "string",
          },
          router: {
            type: ["string", "null"],
            description: "The router that decided.",
          },
          decisions: {
            type: "array",
            description: "One for each attempt, the earliest first; at most 8.",
            items: {
              type: "object",
              properties: {
                summary: {
                  type: "string",
                  description: "The decision in one sentence.",
                },
                atMs: {
                  type: "number",
                  description: "Milliseconds since 1970.",
                },
                endpoint: {
                  type: "string",
                },
                model: {
                  type: "string",
                },
                policy: {
                  type: "string",
                },
                reason: {
                  type: "string",
                },
                target: {
                  type: "string",
                },
                promptTokens: {
                  type: "number",
                },
                matchedTokens: {
                  type: "number",
                },
                class: {
                  type: ["string", "null"],
                },
                queuedMs: {
                  type: "number",
                },
                attempt: {
                  type: "integer",
                },
                prefillWorker: {
                  type: ["string", "null"],
                },
                pull: pullSchema,
                comparedCount: {
                  type: "integer",
                  description: "How many candidates were compared.",
                },
                candidates: {
                  type: "array",
                  description: "The chosen one, and up to 15 others with the lowest costs.",
                  items: {
                    type: "object",
                    properties: {
                      key: {
                        type: "string",
                      },
                      cost: {
                        type: ["number", "null"],
                        description: "Lower is better, in the policy's unit.",
                      },
                      matchedTokens: {
                        type: "number",
                      },
                      inFlight: {
                        type: "number",
                      },
                      pendingPrefillTokens: {
                        type: "number",
                      },
                      networkMs: {
                        type: ["number", "null"],
                        description:
                          "Milliseconds of a round trip to it; null while that is not known, absent in the answer of an earlier version.",
                      },
                    },
                    required: ["key", "cost", "matchedTokens", "inFlight", "pendingPrefillTokens"],
                    additionalProperties: false,
                  },
                },
              },
              required: [
                "summary",
                "atMs",
                "endpoint",
                "model",
                "policy",
                "reason",
                "target",
                "promptTokens",
                "matchedTokens",
                "class",
                "queuedMs",
                "attempt",
                "prefillWorker",
                "pull",
                "comparedCount",
                "candidates",
              ],
              additionalProperties: false,
            },
          },
        },
        required: ["requestId", "router", "decisions"],
        additionalProperties: false,
      },
      Explanation: {
        type: "object",
        properties: {
          router: {
            type: ["string", "null"],
          },
          endpoint: {
            type: "string",
          },
          model: {
            type: "string",
          },
          policy: {
            type: "string",
          },
          reason: {
            type: ["string", "null"],
          },
          choice: {
            anyOf: [
              {
                type: "object",
                properties: {
                  key: {
                    type: "string",
                  },
                  probability: {
                    type: "number",
                  },
                },
                required: ["key", "probability"],
                additionalProperties: false,
              },
              {
                type: "null",
              },
            ],
          },
          pull: pullSchema,
          split: {
            anyOf: [
              {
                type: "object",
                properties: {
                  reason: {
                    type: "string",
                  },
                  pair: {
                    anyOf: [
                      {
                        type: "object",
                        properties: {
                          protocol: {
                            type: "string",
                          },
                          prefill: {
                            type: "string",
                          },
                          decode: {
                            type: "string",
                          },
                        },
                        required: ["protocol", "prefill", "decode"],
                        additionalProperties: false,
                      },
                      {
                        type: "null",
                      },
                    ],
                  },
                  thresholdTokens: {
                    type: ["number", "null"],
                  },
                },
                required: ["reason", "pair", "thresholdTokens"],
                additionalProperties: false,
              },
              {
                type: "null",
              },
            ],
          },
          service: {
            anyOf: [
              {
                type: "object",
                properties: {
                  class: {
                    type: "string",
                  },
                  tenant: {
                    type: "string",
                  },
                  deadlineMs: {
                    type: ["number", "null"],
                  },
                },
                required: ["class", "tenant", "deadlineMs"],
                additionalProperties: false,
              },
              {
                type: "null",
              },
            ],
          },
          overflow: {
            anyOf: [
              {
                type: "object",
                properties: {
                  backend: {
                    type: "string",
                  },
                  reason: {
                    enum: ["no_engine", "deadline", "queue"],
                  },
                },
                required: ["backend", "reason"],
                additionalProperties: false,
              },
              {
                type: "null",
              },
            ],
            description: "The overflow backend that would get it now; null when none would.",
          },
          memory: {
            anyOf: [
              {
                type: "object",
                properties: {
                  patienceMs: {
                    type: "number",
                  },
                  isHeld: {
                    type: "boolean",
                  },
                  losses: {
                    type: "array",
                    items: {
                      type: "object",
                      properties: {
                        key: {
                          type: "string",
                        },
                        share: {
                          type: "number",
                        },
                      },
                      required: ["key", "share"],
                      additionalProperties: false,
                    },
                  },
                },
                required: ["patienceMs", "isHeld", "losses"],
                additionalProperties: false,
              },
              {
                type: "null",
              },
            ],
          },
          sessionKey: {
            type: ["string", "null"],
          },
          prompt: {
            type: "object",
            properties: {
              tokens: {
                type: "number",
              },
              blocks: {
                type: ["integer", "null"],
              },
              blockSize: {
                type: ["integer", "null"],
              },
              from: {
                type: "string",
                enum: ["tokens", "partial", "bytes", "size"],
              },
            },
            required: ["tokens", "blocks", "blockSize", "from"],
            additionalProperties: false,
          },
          expectedOutputTokens: {
            type: "number",
          },
          unseenTokens: {
            type: "number",
          },
          weights: {
            type: "object",
            additionalProperties: {
              type: "number",
            },
          },
          candidates: {
            type: "array",
            items: {
              $ref: "#/components/schemas/Candidate",
            },
          },
          leftOut: {
            type: "array",
            items: {
              type: "object",
              properties: {
                key: {
                  type: "string",
                },
                reasons: {
                  type: "array",
                  items: {
                    type: "string",
                  },
                },
              },
              required: ["key", "reasons"],
              additionalProperties: false,
            },
          },
        },
        required: [
          "router",
          "endpoint",
          "model",
          "policy",
          "reason",
          "choice",
          "pull",
          "split",
          "service",
          "overflow",
          "memory",
          "sessionKey",
          "prompt",
          "expectedOutputTokens",
          "unseenTokens",
          "weights",
          "candidates",
          "leftOut",
        ],
        additionalProperties: false,
      },
      Dashboard: {
        type: "object",
        properties: {
          router: {
            type: "string",
          },
          document: {
            type: "string",
            description: "Name of the overview's document below `/yjs/`.",
          },
          killCommand: {
            type: ["string", "null"],
            description: "For demonstrations.",
          },
        },
        required: ["router", "document", "killCommand"],
        additionalProperties: false,
      },
      History: {
        type: "object",
        description: "Columns of equal length, the oldest point first; null where nothing was measured.",
        properties: {
          nowMs: {
            type: "number",
            description: "The router's clock: milliseconds since the Unix epoch.",
          },
          atMs: {
            type: "array",
            items: {
              type: "number",
            },
            description: "At most 900.",
          },
          requestsPerS: {
            type: "array",
            items: {
              type: ["number", "null"],
            },
          },
          failedPerS: {
            type: "array",
            items: {
              type: ["number", "null"],
            },
          },
          promptTokensPerS: {
            type: "array",
            items: {
              type: ["number", "null"],
            },
          },
          cachedTokensPerS: {
            type: "array",
            items: {
              type: ["number", "null"],
            },
          },
          firstByteP50Ms: {
            type: "array",
            items: {
              type: ["number", "null"],
            },
            description: "From acceptance to the first byte of the answer.",
          },
          firstByteP99Ms: {
            type: "array",
            items: {
              type: ["number", "null"],
            },
          },
          waiting: {
            type: "array",
            items: {
              type: ["number", "null"],
            },
            description: "Requests that wait for an engine.",
          },
          eventLagMs: {
            type: "array",
            items: {
              type: ["number", "null"],
            },
            description: "The longest lag of an engine's KV event.",
          },
        },
        required: [
          "nowMs",
          "atMs",
          "requestsPerS",
          "failedPerS",
          "promptTokensPerS",
          "cachedTokensPerS",
          "firstByteP50Ms",
          "firstByteP99Ms",
          "waiting",
          "eventLagMs",
        ],
        additionalProperties: false,
      },
      Prefixes: {
        type: "object",
        properties: {
          blockSize: {
            type: "integer",
          },
          prefixes: {
            type: "array",
            items: {
              type: "object",
              properties: {
                hash: {
                  type: "string",
                },
                blocks: {
                  type: "integer",
                },
                parent: {
                  type: ["integer", "null"],
                },
                continuations: {
                  type: "integer",
                },
                holders: {
                  type: "array",
                  items: {
                    type: "object",
                    properties: {
                      target: {
                        type: "string",
                      },
                      isFact: {
                        type: "boolean",
                      },
                      isPlaced: {
                        type: "boolean",
                      },
                    },
                    required: ["target", "isFact", "isPlaced"],
                    additionalProperties: false,
                  },
                },
                holderCount: {
                  type: "integer",
                },
              },
              required: ["hash", "blocks", "parent", "continuations", "holders", "holderCount"],
              additionalProperties: false,
            },
          },
        },
        required: ["blockSize", "prefixes"],
        additionalProperties: false,
      },
      DecisionBatch: {
        type: "object",
        properties: {
          decisions: {
            type: "array",
            items: {
              type: "object",
              properties: {
                number: {
                  type: "integer",
                },
                atMs: {
                  type: "number",
                },
                endpoint: {
                  type: "string",
                },
                model: {
                  type: "string",
                },
                policy: {
                  type: "string",
                },
                reason: {
                  type: "string",
                },
                target: {
                  type: "string",
                },
                promptTokens: {
                  type: "number",
                },
                matchedTokens: {
                  type: "number",
                },
                requestId: {
                  type: "string",
                  description: "By which GET /admin/requests/{id} says more.",
                },
                session: {
                  type: ["string", "null"],
                },
                class: {
                  type: ["string", "null"],
                },
                queuedMs: {
                  type: "number",
                },
                attempt: {
                  type: "integer",
                },
                prefillWorker: {
                  type: ["string", "null"],
                },
                pull: pullSchema,
              },
              required: [
                "number",
                "atMs",
                "endpoint",
                "model",
                "policy",
                "reason",
                "target",
                "promptTokens",
                "matchedTokens",
                "requestId",
                "session",
                "class",
                "queuedMs",
                "attempt",
                "prefillWorker",
                "pull",
              ],
              additionalProperties: false,
            },
          },
          skipped: {
            type: "integer",
            description: "Decisions that were not told, because there were too many.",
          },
        },
        required: ["decisions", "skipped"],
        additionalProperties: false,
      },
    },
  },
};

import { findSession } from "@espalier/api";
import { asEspalierError, chainRoot, createBlockHasher, type Hash64, mixWord } from "@espalier/core";
import { maxHeldBytes } from "@espalier/engines";
import { expectedOutputTokens, type PromptBlocks, sessionScope } from "@espalier/routing";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { isMultipart } from "../large-bodies/read-forwarded-body.ts";
import { reservePieces, shrinkReservation } from "../request/body-budget.ts";
import type { PlannedRequest, UploadEndpoint } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";
import { resolvePool } from "../routing/resolve-pool.ts";
import { tenantOf } from "../routing/service-class.ts";
import { answer, engineHead, planForward } from "../serving/answer-request.ts";
import { readForwarded } from "./inference-routes.ts";
import { readBody } from "./read-body.ts";
import { Upload } from "./upload.ts";

const uploadPaths: Readonly<Record<UploadEndpoint, string>> = {
  transcriptions: "/v1/audio/transcriptions",
  translations: "/v1/audio/translations",
  image_edits: "/v1/images/edits",
};

/** Bytes of a file that cost an engine about as much as a token: a second of PCM16 at 16 kHz is some 60, a picture of 1 MB 2,000. */
const bytesPerToken = 512;
/** Most blocks by which a file is known. */
const maxFileBlocks = 512;

/** Registers the APIs that take files. Their bodies are sent while they arrive, where that is possible. */
export function registerUploadRoutes(app: FastifyInstance, context: RouterContext): void {
  const { limits, trustTransferFields: trustsTransferFields } = context.live.current;
  const { maxBodyBytes: maxBytes } = limits;
  app.register(async (uploads) => {
    uploads.removeAllContentTypeParsers();
    uploads.addContentTypeParser("*", (request, payload, done) => {
      const onPiece = reservePieces(context, request);
      if (!isMultipart(request.headers["content-type"])) {
        readBody(payload, { maxBytes, onPiece }, done);
        return;
      }
      const onStreaming = (): void => shrinkReservation(context, request, maxHeldBytes);
      try {
        new Upload(request.raw, { trustsTransferFields, maxBytes, onPiece, onStreaming }, done);
      } catch (thrown) {
        done(asEspalierError(thrown));
      }
    });
    for (const [endpointId, path] of Object.entries(uploadPaths) as [UploadEndpoint, string][]) {
      uploads.route({
        method: "POST",
        url: path,
        config: { family: "openai", endpointId, anyBody: true },
        handler: (request, reply) => {
          const { body } = request;
          if (body instanceof Upload) reply.raw.on("finish", () => body.discard());
          answer(context, request, reply, "openai", () => planUpload(context, request, endpointId));
        },
      });
    }
  });
}

function planUpload(
  context: RouterContext,
  request: FastifyRequest,
  endpointId: UploadEndpoint,
): PlannedRequest | Promise<PlannedRequest> {
  const { body, headers } = request;
  const header = headers["x-espalier-model"];
  const named = typeof header === "string" ? header : undefined;
  if (body instanceof Upload) return planFor(context, request, endpointId, { named: body.fields.model ?? named });
  const model = readForwarded(context, request, Buffer.isBuffer(body) ? body : undefined, named);
  const plan = (written: string | undefined) => planFor(context, request, endpointId, { named: written, written });
  return model instanceof Promise ? model.then(plan) : plan(model);
}

interface NamedModel {
  readonly named: string | undefined;
  /** The name in a body that passes as it is. */
  readonly written?: string | undefined;
}

function planFor(
  context: RouterContext,
  request: FastifyRequest,
  endpointId: UploadEndpoint,
  { named, written }: NamedModel,
): PlannedRequest {
  const passed = planForward(context, request);
  const upload = request.body instanceof Upload ? request.body : undefined;
  const session = findSession(context.live.current.sessionKey, request.headers, undefined);
  const api = { endpoint: endpointId, path: uploadPaths[endpointId], written };
  const resolved = resolvePool(context, { model: named, sessionKey: session?.key }, api);
  const { model, parent, pool, targets, serves } = resolved;
  const { fields } = upload ?? {};
  if (fields?.model !== undefined && fields.model !== model) upload?.rename(model);
  const sizeBytes = upload?.sizeBytes ?? passed.body[0]?.length ?? 0;
  const promptTokens = Math.max(1, Math.ceil(sizeBytes / bytesPerToken));
  const { fileHash } = fields ?? {};
  const adapter = parent === undefined ? undefined : model;
  const prompt =
    fileHash && pool.policy.readsPrefixes ? fileBlocks(context, fileHash, { promptTokens, adapter }) : undefined;
  return {
    ...passed,
    ...engineHead(context, request, pool),
    ...{ endpointId, pool, targets, serves, onlyEngine: undefined, upload: upload?.body, prompt },
    isStreamed: fields?.isStreamed ?? false,
    features: {
      promptTokens,
      expectedOutputTokens: expectedOutputTokens({}),
      sessionKey: session?.key,
      sessionScope: session && sessionScope(tenantOf(context, request), undefined),
      prefixKey: fileHash?.low,
      adapter,
    },
  };
}

const hasher = createBlockHasher();

/** A file as a prompt of blocks, so that policies send it where it went before as far as load allows. */
function fileBlocks(
  { live }: RouterContext,
  { low, high }: Hash64,
  { promptTokens, adapter }: { readonly promptTokens: number; readonly adapter: string | undefined },
): PromptBlocks {
  const { seed, blockSize } = live.current.prefix;
  const blockCount = Math.min(maxFileBlocks, Math.ceil(promptTokens / blockSize));
  const contents = Uint32Array.from({ length: 2 * blockCount }, (_, at) =>
    mixWord((at & 1 ? high : low) ^ mixWord(at)),
  );
  const chain = new Uint32Array(contents.length);
  const parent = chainRoot({ seed, adapter, cacheSalt: undefined, blockSize, unit: "bytes" });
  hasher.mixContents({ parent, contents, blocks: blockCount, chain });
  return {
    chain,
    contents,
    blockCount,
    blockSize,
    tokens: Math.max(promptTokens, blockCount * blockSize),
    from: "bytes",
  };
}

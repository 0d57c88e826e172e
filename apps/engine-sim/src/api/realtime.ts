import { isJsonObject, type JsonObject } from "@espalier/core";
import type { RequestReport } from "@espalier/engine-model";
import { describeExchange, type Exchange } from "../http/exchange.ts";
import { upgrade, type WebSocketEnd } from "../http/upgrades.ts";
import type { EngineContext, LiveRequest } from "../serving/engine-context.ts";
import { createGeneratedText, hashTokens } from "../text/generated-text.ts";

/** Samples of one token: 80 ms of audio at 16 kHz, as Voxtral has them. */
const samplesPerToken = 1_280;
/** Bytes of a sample of PCM16. */
const sampleBytes = 2;

/**
 * `GET /v1/realtime` as a WebSocket: vLLM 0.32.0's transcription of audio while it arrives
 * (`entrypoints/speech_to_text/realtime/connection.py`). Each token of audio becomes a word.
 */
export function realtime(context: EngineContext, exchange: Exchange): void {
  const messages: string[] = [];
  let session: RealtimeSession | undefined;
  const end = upgrade(exchange, (text) => (session ? session.receive(text) : messages.push(text)));
  session = new RealtimeSession(context, exchange, end);
  session.begin();
  for (const text of messages) session.receive(text);
}

class RealtimeSession {
  readonly #context: EngineContext;
  readonly #exchange: Exchange;
  readonly #end: WebSocketEnd;
  readonly #reports: RequestReport[] = [];
  #isValidated = false;
  /** Audio that waits to be computed, and `final` where it ends. */
  #queue: (Buffer | "final")[] = [];
  #isGenerating = false;
  #isComputing = false;
  #sequences: readonly string[] = [];
  #text = "";
  #promptTokens = 0;
  #completionTokens = 0;
  #deltas = 0;

  constructor(context: EngineContext, exchange: Exchange, end: WebSocketEnd) {
    this.#context = context;
    this.#exchange = exchange;
    this.#end = end;
  }

  begin(): void {
    const { context, exchange } = { context: this.#context, exchange: this.#exchange };
    const { socket } = this.#end;
    const live: LiveRequest = {
      rid: undefined,
      describe: () => ({ path: exchange.path, requestId: exchange.requestId, model: context.models[0], stream: true }),
      abort: () => socket.destroy(),
      kill: () => socket.resetAndDestroy(),
    };
    context.live.add(live);
    socket.on("close", () => {
      context.live.delete(live);
      this.#isGenerating = false;
      for (const id of this.#sequences) context.engine.abort(id);
      const outcome = exchange.fault ? "faulted" : this.#isComputing ? "aborted" : "finished";
      const entry = { ...describeExchange(exchange), status: 101, outcome, model: context.models[0] } as const;
      context.log.add({ ...entry, stream: true, reports: this.#reports });
    });
    const created = Math.floor(context.clock.wallMs() / 1_000);
    this.#send({ type: "session.created", id: `sess-${context.newId()}`, created });
  }

  receive(text: string): void {
    let event: unknown;
    try {
      event = JSON.parse(text);
    } catch {
      this.#fail("Invalid JSON", "invalid_json");
      return;
    }
    if (isJsonObject(event)) this.#handle(event);
    else this.#fail("Invalid JSON", "invalid_json");
  }

  #handle(event: JsonObject): void {
    switch (event.type) {
      case "session.update":
        this.#update(event.model);
        break;
      case "input_audio_buffer.append":
        this.#append(event.audio);
        break;
      case "input_audio_buffer.commit":
        this.#commit(event.final === true);
        break;
      default:
        this.#fail(`Unknown event type: ${event.type}`, "unknown_event");
    }
  }

  #update(model: unknown): void {
    if (model === undefined || model === null) this.#fail("Missing required field: model", "invalid_event");
    else if (!this.#context.models.includes(String(model))) {
      this.#fail(`The model \`${model}\` does not exist.`, "model_not_found");
    } else this.#isValidated = true;
  }

  #append(audio: unknown): void {
    const bytes = typeof audio === "string" ? Buffer.from(audio, "base64") : Buffer.alloc(0);
    if (bytes.length === 0 || bytes.length % sampleBytes !== 0) {
      this.#fail("Invalid audio data", "invalid_audio");
      return;
    }
    this.#queue.push(bytes);
    this.#compute();
  }

  #commit(isFinal: boolean): void {
    if (!this.#isValidated) {
      const how = "Make sure to validate the model by sending a session.update event.";
      this.#fail(`Model not validated. ${how}`, "model_not_validated");
      return;
    }
    if (isFinal) this.#queue.push("final");
    else this.#isGenerating = true;
    this.#compute();
  }

  /** Computes the next piece of audio, one after the other. */
  #compute(): void {
    if (!this.#isGenerating || this.#isComputing) return;
    const next = this.#queue.shift();
    if (next === "final") this.#finish();
    else if (next) this.#computeAudio(next);
  }

  #computeAudio(audio: Buffer): void {
    const { engine, text } = this.#context;
    const prompt = tokensOf(audio);
    if (this.#promptTokens === 0) this.#promptTokens = prompt.length;
    const words = createGeneratedText({ words: text.words, promptHash: hashTokens(prompt), seed: 0, choice: 0 });
    const shared = { pooling: false, cacheSalt: undefined, adapter: undefined, priority: undefined } as const;
    const sequence = { ...shared, prompt, text: words, outputTokens: prompt.length, finishReason: "stop" } as const;
    this.#isComputing = true;
    this.#sequences = engine.submit([sequence], () => ({
      token: (index) => engine.flushLater({ flush: () => this.#delta(words.word(index)) }),
      finished: (report) => {
        this.#reports.push(report);
        engine.flushLater({
          flush: () => {
            this.#isComputing = false;
            this.#compute();
          },
        });
      },
    }));
  }

  #delta(delta: string): void {
    const { fault } = this.#exchange;
    if (fault?.kind.endsWith("-mid-stream") && this.#deltas >= (fault.afterTokens ?? 1)) {
      if (fault.kind === "reset-mid-stream") this.#end.socket.resetAndDestroy();
      else if (fault.kind === "cut-mid-stream") this.#end.socket.destroySoon();
      return;
    }
    this.#deltas += 1;
    this.#completionTokens += 1;
    this.#text += delta;
    this.#send({ type: "transcription.delta", delta });
  }

  #finish(): void {
    const [prompt, completion] = [this.#promptTokens, this.#completionTokens];
    const usage = { prompt_tokens: prompt, total_tokens: prompt + completion, completion_tokens: completion };
    this.#send({ type: "transcription.done", text: this.#text, usage });
    this.#isGenerating = false;
    this.#queue = [];
    this.#text = "";
    this.#promptTokens = 0;
    this.#completionTokens = 0;
  }

  #fail(error: string, code: string): void {
    this.#send({ type: "error", error, code });
  }

  #send(event: JsonObject): void {
    if (!this.#end.socket.destroyed) this.#end.send(JSON.stringify(event));
  }
}

/** The tokens of a piece of audio: at least one, and the same ones for the same bytes. */
function tokensOf(audio: Buffer): Uint32Array {
  const pieceBytes = samplesPerToken * sampleBytes;
  return Uint32Array.from(
    { length: Math.ceil(audio.length / pieceBytes) },
    (_, at) => hashTokens(Uint32Array.from(audio.subarray(at * pieceBytes, (at + 1) * pieceBytes))) & 0x7fff,
  );
}

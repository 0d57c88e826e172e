import type { AnswerEnd } from "@espalier/api";
import { type Clock, RecencyMap } from "@espalier/core";

/** Programs that are remembered; beyond it the one that was idle longest is forgotten. */
export const maxPrograms = 4_096;
/** First requests of conversations that are remembered until a second one comes. */
export const maxFirstSteps = 4_096;
/** An idle program is forgotten after this time. */
export const forgetProgramMs = 1_800_000;

/** A program: the requests of one session, or one agent in it, to one model. */
export interface ProgramId {
  /** Opaque, the same in every router. */
  readonly name: string;
  /** Opaque too: of its session key alone, whatever the model and the tenant. */
  readonly session: string;
  /** Such a name of the session key of the agent that started it; empty for none. */
  readonly parent: string;
  readonly model: string;
  /** Where its session key comes from, as `session-key` names it. */
  readonly source: string;
  /** Empty for none. */
  readonly tenant: string;
}

/** What one router knows of a program from the requests that it served. The numbers of several routers add up. */
export interface ProgramRow extends ProgramId {
  /** Of its latest request; empty before the first was sent. */
  readonly engine: string;
  /** Requests in this router's queue. */
  readonly queued: number;
  /** Requests at engines. */
  readonly running: number;
  /** Requests with a whole answer. */
  readonly steps: number;
  /** Requests that failed, were refused or cut. */
  readonly failed: number;
  /** How its latest answer ended; undefined before one, and where its engine did not say it. */
  readonly answerEnd: AnswerEnd | undefined;
  /** Tokens of the latest prompt and its answer. */
  readonly contextTokens: number;
  /** Names its latest prompt: see `MemoryWatch.keyOf`. 0 for none. */
  readonly promptKey: number;
  /** Sums over all answers whose usage the engine reported. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly outputTokens: number;
  /** Milliseconds in the queue, over all requests, and of the one that waited longest. */
  readonly queuedMs: number;
  readonly longestQueuedMs: number;
  /** Milliseconds since its first request. */
  readonly ageMs: number;
  /** Milliseconds since its latest request began or ended. */
  readonly idleMs: number;
  /** Its client has ended it. */
  readonly isOver: boolean;
}

/** How a request of a program ended. */
interface StepEnd {
  readonly isAnswered: boolean;
  readonly answerEnd: AnswerEnd | undefined;
  readonly promptTokens: number | undefined;
  readonly cachedTokens: number | undefined;
  readonly outputTokens: number;
}

/** One request of a program. Each method is called at most once, in this order. */
export interface ProgramStep {
  /** It goes to an engine. */
  sent(engine: string): void;
  ended(end: StepEnd): void;
}

/** The programs of the requests that this router serves. */
export class ProgramTable {
  readonly #clock: Clock;
  /** By model and name. */
  readonly #programs = new RecencyMap<string, Program>();
  /** Conversations with one request so far, by its digest. */
  readonly #firsts = new RecencyMap<number, { readonly program: Program; readonly idOf: () => ProgramId }>();
  /** Called after every change, with the program's name. */
  onChange: (name: string) => void = () => {};
  /** Called when a program with an answer from this router sends its next request. */
  onPause: (source: string, end: AnswerEnd | undefined, ms: number) => void = () => {};

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param promptKey names its prompt; 0 for none */
  begin(id: ProgramId, promptKey: number): ProgramStep {
    const program = this.#use(id);
    program.promptKey = promptKey;
    const pauseMs = program.pauseMs(this.#clock.nowMs());
    if (pauseMs !== undefined) this.onPause(id.source, program.answerEnd, pauseMs);
    return program.begin(this.#clock, () => this.onChange(id.name));
  }

  /** The first request of a conversation, which is a program as soon as another one continues it. */
  beginFirst(digest: number, idOf: () => ProgramId): ProgramStep {
    const first = this.#firsts.use(digest) ?? { program: new Program(this.#clock.nowMs()), idOf };
    this.#firsts.set(digest, first);
    if (this.#firsts.size > maxFirstSteps) this.#firsts.deleteOldest();
    return first.program.begin(this.#clock, () => first.program.id && this.onChange(first.program.id.name));
  }

  /** A conversation goes on, at this router or at another one. */
  list(digest: number): void {
    const first = this.#firsts.get(digest);
    if (!first) return;
    this.#firsts.delete(digest);
    const id = first.idOf();
    first.program.id = id;
    this.#keep(keyOf(id), first.program);
    this.onChange(id.name);
  }

  /** Its client will send no further request. Other routers learn it from this router's row, which may be new. */
  end({ name, session, parent, model, source, tenant }: ProgramId): void {
    const program = this.#use({ name, session, parent, model, source, tenant });
    program.isOver = true;
    this.onChange(name);
  }

  /** In order of last use. */
  *rows(): Generator<ProgramRow, void, undefined> {
    const nowMs = this.#clock.nowMs();
    for (const program of this.#programs.values()) {
      const row = { ...program.id!, ...program.row(nowMs) };
      if (row.idleMs < forgetProgramMs || row.queued + row.running > 0) yield row;
    }
  }

  /** Forgets programs that were idle for too long. */
  forget(): void {
    const beforeMs = this.#clock.nowMs() - forgetProgramMs;
    for (let oldest = this.#programs.oldest(); oldest; oldest = this.#programs.oldest()) {
      const [, { usedMs, isBusy }] = oldest;
      if (usedMs > beforeMs || isBusy) return;
      this.#programs.deleteOldest();
    }
  }

  #use(id: ProgramId): Program {
    const nowMs = this.#clock.nowMs();
    const key = keyOf(id);
    const program = this.#programs.use(key) ?? new Program(nowMs, id);
    program.usedMs = nowMs;
    this.#keep(key, program);
    return program;
  }

  #keep(key: string, program: Program): void {
    this.#programs.set(key, program);
    if (this.#programs.size > maxPrograms) this.#programs.deleteOldest();
  }
}

export const keyOf = ({ model, name }: Pick<ProgramId, "model" | "name">): string => `${name}\n${model}`;

class Program {
  /** Undefined until it is listed. */
  id: ProgramId | undefined;
  readonly startedMs: number;
  usedMs: number;
  isOver = false;
  answerEnd: AnswerEnd | undefined;
  promptKey = 0;
  /** When its latest answer ended, until the next request begins. */
  #answeredMs: number | undefined;
  #engine = "";
  #queued = 0;
  #running = 0;
  #steps = 0;
  #failed = 0;
  #contextTokens = 0;
  #promptTokens = 0;
  #cachedTokens = 0;
  #outputTokens = 0;
  #queuedMs = 0;
  #longestQueuedMs = 0;

  constructor(nowMs: number, id?: ProgramId) {
    this.id = id;
    this.startedMs = nowMs;
    this.usedMs = nowMs;
  }

  get isBusy(): boolean {
    return this.#queued + this.#running > 0;
  }

  /** Since its latest answer; undefined while a request is under way, and when that failed. */
  pauseMs(nowMs: number): number | undefined {
    return this.#answeredMs === undefined || this.isBusy ? undefined : nowMs - this.#answeredMs;
  }

  begin(clock: Clock, changed: () => void): ProgramStep {
    const begunMs = clock.nowMs();
    this.#answeredMs = undefined;
    let isSent = false;
    this.isOver = false;
    this.#queued += 1;
    changed();
    return {
      sent: (engine) => {
        this.#engine = engine;
        if (isSent) return;
        isSent = true;
        this.#queued -= 1;
        this.#running += 1;
        this.#waited(clock.nowMs() - begunMs);
        changed();
      },
      ended: (end) => {
        if (isSent) this.#running -= 1;
        else {
          this.#queued -= 1;
          this.#waited(clock.nowMs() - begunMs);
        }
        this.usedMs = clock.nowMs();
        if (end.isAnswered) this.#answeredMs = this.usedMs;
        this.#count(end);
        changed();
      },
    };
  }

  #waited(ms: number): void {
    this.#queuedMs += ms;
    this.#longestQueuedMs = Math.max(this.#longestQueuedMs, ms);
  }

  #count({ isAnswered, answerEnd, promptTokens, cachedTokens, outputTokens }: StepEnd): void {
    if (isAnswered) {
      this.#steps += 1;
      this.answerEnd = answerEnd;
    } else this.#failed += 1;
    if (promptTokens === undefined) return;
    this.#contextTokens = promptTokens + outputTokens;
    this.#outputTokens += outputTokens;
    if (cachedTokens === undefined) return;
    this.#promptTokens += promptTokens;
    this.#cachedTokens += cachedTokens;
  }

  row(nowMs: number): Omit<ProgramRow, keyof ProgramId> {
    return {
      engine: this.#engine,
      queued: this.#queued,
      running: this.#running,
      steps: this.#steps,
      failed: this.#failed,
      answerEnd: this.answerEnd,
      contextTokens: this.#contextTokens,
      promptKey: this.promptKey,
      promptTokens: this.#promptTokens,
      cachedTokens: this.#cachedTokens,
      outputTokens: this.#outputTokens,
      queuedMs: this.#queuedMs,
      longestQueuedMs: this.#longestQueuedMs,
      ageMs: nowMs - this.startedMs,
      idleMs: nowMs - this.usedMs,
      isOver: this.isOver,
    };
  }
}

import type { Answer, LoadRequest } from "@espalier/simulator";
import { createVirtualTime } from "@espalier/testing";
import type { TwoTurnPorts } from "../src/turns/run-two-turns.ts";

/** A request as a fake router saw it. */
interface SentRequest {
  readonly url: string;
  readonly body: string;
  readonly atMs: number;
  /** How many were sent before it. */
  readonly order: number;
}

export interface FakeRoutersOptions {
  readonly routers: number;
  readonly answerAfterMs: number | ((request: SentRequest) => number);
  readonly engineOf: (request: SentRequest) => string | undefined;
  /** The request of this number, from 1, fails. */
  readonly failAt?: number;
}

/** Routers in virtual time that answer everything. */
export interface FakeRouters {
  readonly urls: readonly string[];
  readonly ports: TwoTurnPorts;
  readonly sent: readonly SentRequest[];
  /** Lets virtual time pass until the run has ended. */
  drive<Result>(run: Promise<Result>): Promise<Result>;
}

const stepMs = 250;
const mostSteps = 400;

export function createFakeRouters({ routers, answerAfterMs, engineOf, failAt }: FakeRoutersOptions): FakeRouters {
  const time = createVirtualTime();
  const sent: SentRequest[] = [];
  const send = ({ url, body }: LoadRequest): Promise<Answer> => {
    const request = { url, body, atMs: time.clock.nowMs(), order: sent.length };
    sent.push(request);
    const error = sent.length === failAt ? "it broke" : undefined;
    const afterMs = typeof answerAfterMs === "number" ? answerAfterMs : answerAfterMs(request);
    return new Promise((resolve) =>
      time.scheduler.after(afterMs, () => resolve(answerOf(request, { error, engine: engineOf(request) }))),
    );
  };
  return {
    urls: Array.from({ length: routers }, (_, at) => `http://router-${at + 1}`),
    ports: { clock: time.clock, scheduler: time.scheduler, client: { send, close() {} } },
    sent,
    async drive(run) {
      let ended = false;
      const end = (): void => {
        ended = true;
      };
      run.then(end, end);
      for (let step = 0; step < mostSteps && !ended; step++) await time.advanceAsync(stepMs);
      if (!ended) throw new Error("the run has not ended");
      return run;
    },
  };
}

function answerOf({ atMs }: SentRequest, { error, engine }: Pick<Answer, "error" | "engine">): Answer {
  return {
    startMs: atMs,
    firstTokenMs: atMs,
    endMs: atMs,
    status: error === undefined ? 200 : 0,
    promptTokens: undefined,
    completionTokens: undefined,
    cachedTokens: undefined,
    engine,
    error,
    text: "",
  };
}

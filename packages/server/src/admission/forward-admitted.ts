import type { Admission } from "@espalier/admission";
import type { ExchangeOutcome } from "@espalier/proxy";
import type { ColdPrompt } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { InferenceExchange } from "../data-plane/inference-exchange.ts";
import type { PlannedRequest } from "../data-plane/planned-request.ts";
import type { RouterContext } from "../data-plane/router-context.ts";
import { coldPromptOf } from "./memory-watch.ts";

/**
 * Sends a request to an engine, at once or when its turn comes. The exchange charges its engine before `forward`
 * returns, so that the next request's turn sees it.
 */
export function forwardAdmitted(
  context: RouterContext,
  plan: PlannedRequest,
  exchange: InferenceExchange,
): Promise<ExchangeOutcome> {
  const { proxy, admission, fleet, memory } = context;
  const queue = plan.service && admission.of(plan.pool);
  if (!queue) return proxy.forward(exchange);
  if (plan.prompt) memory?.arrived(plan.prompt);
  return enter(queue, plan, {
    exchange,
    cold: coldPromptOf(context, plan),
    forward: () => proxy.forward(exchange),
    // Engines may have come and gone since the request was planned; a pool whose last one went fails as planned.
    targets: () => {
      const now = fleet.pool(plan.pool.model);
      return now.length > 0 ? now : plan.targets;
    },
  });
}

interface Way {
  readonly exchange: InferenceExchange;
  readonly forward: () => Promise<ExchangeOutcome>;
  readonly targets: () => readonly Target[];
  /** Undefined for what need not wait for memory. */
  readonly cold: ColdPrompt<Target> | undefined;
}

function enter(
  queue: Admission<Target>,
  { service, features, body, onlyEngine, trace }: PlannedRequest,
  { exchange, forward, targets, cold }: Way,
): Promise<ExchangeOutcome> {
  let going: Promise<ExchangeOutcome> | undefined;
  let settle: (outcome: ExchangeOutcome | Promise<ExchangeOutcome>) => void = (outcome) => {
    going = Promise.resolve(outcome);
  };
  const { promptTokens, expectedOutputTokens } = features;
  const enteredMs = trace?.nowMs() ?? 0;
  let isWaiting = false;
  const leaves = (outcome: string): void => {
    if (isWaiting) trace?.step("queue", enteredMs, { "espalier.queue_outcome": outcome });
  };
  const ticket = queue.enter(
    {
      className: service?.className,
      tenant: service?.tenant ?? "",
      deadlineMs: service?.deadlineMs,
      promptTokens,
      expectedOutputTokens,
      onlyEngine,
      sizeBytes: body.reduce((sum, { length }) => sum + length, 0),
    },
    {
      targets,
      mayGo: () => cold?.mayGo(targets()) ?? true,
      admitted(open, admitted) {
        leaves("admitted");
        exchange.admitted(queue, admitted, cold?.among(open) ?? open);
        settle(forward());
      },
      refused(error) {
        leaves(error.code);
        settle({ kind: "failed", error, failures: [] });
      },
    },
  );
  if (going) return going;
  isWaiting = true;
  return new Promise((resolve) => {
    const clientGone = (): void => {
      leaves("client_closed");
      ticket?.leave();
      settle({ kind: "client_closed" });
    };
    settle = (outcome) => {
      exchange.response.off("close", clientGone);
      resolve(outcome);
    };
    exchange.response.once("close", clientGone);
    if (exchange.response.destroyed) clientGone();
  });
}

import type { Admission } from "@espalier/admission";
import type { ExchangeOutcome } from "@espalier/proxy";
import type { Target } from "@espalier/workers";
import type { InferenceExchange } from "../data-plane/inference-exchange.ts";
import type { PlannedRequest } from "../data-plane/planned-request.ts";
import type { RouterContext } from "../data-plane/router-context.ts";

/**
 * Sends a request to an engine, at once or when its turn comes. The exchange charges its engine before `forward`
 * returns, so that the next request's turn sees it.
 */
export function forwardAdmitted(
  { proxy, admission, fleet }: RouterContext,
  plan: PlannedRequest,
  exchange: InferenceExchange,
): Promise<ExchangeOutcome> {
  const queue = plan.service && admission.of(plan.pool);
  if (!queue) return proxy.forward(exchange);
  return enter(queue, plan, {
    exchange,
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
}

function enter(
  queue: Admission<Target>,
  { service, features, body, onlyEngine }: PlannedRequest,
  { exchange, forward, targets }: Way,
): Promise<ExchangeOutcome> {
  let going: Promise<ExchangeOutcome> | undefined;
  let settle: (outcome: ExchangeOutcome | Promise<ExchangeOutcome>) => void = (outcome) => {
    going = Promise.resolve(outcome);
  };
  const { promptTokens, expectedOutputTokens } = features;
  const ticket = queue.enter(
    {
      className: service?.className,
      tenant: service?.tenant ?? "",
      deadlineMs: service?.deadlineMs,
      ...{ promptTokens, expectedOutputTokens, onlyEngine },
      sizeBytes: body.reduce((sum, { length }) => sum + length, 0),
    },
    {
      targets,
      admitted(open, admitted) {
        exchange.admitted(queue, admitted, open);
        settle(forward());
      },
      refused: (error) => settle({ kind: "failed", error, failures: [] }),
    },
  );
  if (going) return going;
  return new Promise((resolve) => {
    const clientGone = (): void => {
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

import { of, plot, quantile, quantiles, rate, row, sum } from "../panels.mjs";

export const queues = {
  title: "Espalier: queues, prefill and decode",
  panels: [
    row("Queues of the router"),
    plot(
      "Waiting",
      "short",
      [[sum(of("espalier_admission_queued_requests"), "class"), "{{class}}"]],
      "Requests that wait in routers because every engine is busy.",
    ),
    plot(
      "Time in the queue (p99)",
      "s",
      [[quantile(0.99, "espalier_admission_wait_seconds", { by: "class" }), "{{class}}"]],
      "Of those that had to wait.",
    ),
    plot(
      "Waiting for a first engine",
      "short",
      [[sum(of("espalier_admission_cold_start_requests"), "class"), "{{class}}"]],
      "Of those that wait: requests that found no engine up, in pools that hold them (scale-from-zero).",
    ),
    plot(
      "Shed",
      "ops",
      [[sum(rate("espalier_admission_shed_total"), "class, reason"), "{{class}} {{reason}}"]],
      "queue_full and deadline_missed are 429 to the client, no_engine is 503.",
    ),
    plot(
      "Engines left out",
      "ops",
      [[sum(rate("espalier_excluded_targets_total"), "reason"), "{{reason}}"]],
      "Per decision, by the reason: filters, partitions and what an engine cannot take now.",
    ),
    plot(
      "Tokens by class",
      "short",
      [[sum(rate("espalier_admission_tokens_total"), "class, kind"), "{{class}} {{kind}}"]],
      "Tokens per second that engines had to compute.",
    ),
    plot(
      "Waited at all",
      "ops",
      [[sum(rate("espalier_admission_wait_seconds_count"), "class"), "{{class}}"]],
      "Requests per second that had to wait.",
    ),
    plot(
      "Held for memory",
      "short",
      [[sum(of("espalier_admission_parked_requests"), "class"), "{{class}}"]],
      "Requests that wait because engines would drop for them what others are expected to come back for.",
    ),
    plot(
      "Time held for memory (p99)",
      "s",
      [[quantile(0.99, "espalier_admission_memory_wait_seconds", { by: "class" }), "{{class}}"]],
      "Of those that were held.",
    ),
    plot(
      "Programs",
      "short",
      [[sum(of("espalier_programs"), "state"), "{{state}}"]],
      "Sessions and agents of each router's requests in the last half hour. One that uses several routers counts at each.",
    ),
    plot(
      "Pause of a program (p95)",
      "s",
      [[quantile(0.95, "espalier_program_pause_seconds", { by: "end" }), "{{end}}"]],
      "From an answer to the program's next request, by how the answer ended.",
    ),
    row("How many engines the load needs"),
    plot(
      "Desired engines",
      "short",
      [[`max by (model, role) (${of("espalier_scale_desired_engines")})`, "{{model}} {{role}}"]],
      "What routers tell an autoscaler.",
    ),
    plot(
      "Load in engines",
      "short",
      [[`max by (model, role) (${of("espalier_scale_load_engines")})`, "{{model}} {{role}}"]],
      "At full use, before it is divided by scale.utilization.",
    ),
    plot(
      "Waiting by model",
      "short",
      [[`max by (model) (${of("espalier_scale_waiting_requests")})`, "{{model}}"]],
      "Requests that wait in all routers.",
    ),
    plot(
      "Notes on load",
      "ops",
      [[sum(rate("espalier_scale_demand_received_total"), "outcome"), "{{outcome}}"]],
      "What routers tell each other of the load that they measure.",
    ),
    row("Overflow to providers"),
    plot(
      "Requests",
      "ops",
      [
        [
          sum(rate("espalier_overflow_requests_total"), "backend, reason, outcome"),
          "{{backend}} {{reason}}: {{outcome}}",
        ],
      ],
      "Requests that providers answered because the engines could not, and how they ended.",
    ),
    plot(
      "Spent in an hour",
      "short",
      [[`sum by (backend) (increase(${of("espalier_overflow_spent_total")}[1h]))`, "{{backend}}"]],
      "By the configured price, in its currency.",
    ),
    plot(
      "Tokens",
      "short",
      [[sum(rate("espalier_overflow_tokens_total"), "backend, kind"), "{{backend}} {{kind}}"]],
      "Tokens per second of providers' prompts and answers.",
    ),
    plot(
      "Kept back",
      "ops",
      [
        [sum(rate("espalier_overflow_withheld_total"), "reason"), "{{reason}}"],
        [sum(rate("espalier_overflow_spend_received_total"), "outcome"), "notes of other routers {{outcome}}"],
      ],
      "Requests that no provider took, for its budget or because it had just failed.",
    ),
    row("Prefill and decode apart"),
    plot(
      "One engine or two",
      "ops",
      [[sum(rate("espalier_disaggregation_requests_total"), "path, reason"), "{{path}}: {{reason}}"]],
      "And why.",
    ),
    plot(
      "Threshold",
      "short",
      [[`avg(${of("espalier_disaggregation_threshold_tokens")})`, "tokens"]],
      "Uncached tokens from which on the last request would have been split.",
    ),
    plot(
      "Prefill leg",
      "s",
      quantiles("espalier_disaggregation_prefill_seconds"),
      "From its dispatch to the end of its answer.",
    ),
    plot(
      "Transfer",
      "s",
      quantiles("espalier_disaggregation_transfer_seconds"),
      "From there to the first byte of the decode engine's answer.",
    ),
    plot(
      "Prefill engines",
      "short",
      [
        [`max by (model) (${of("espalier_disaggregation_advised_prefill_engines")})`, "{{model}} advised"],
        [`max by (model) (${of("espalier_disaggregation_prefill_engines")})`, "{{model}} applied"],
      ],
      "How many of a model's engines compute prompts for others.",
    ),
    plot(
      "Share advised",
      "percentunit",
      [[`max by (model) (${of("espalier_disaggregation_advised_prefill_ratio")})`, "{{model}}"]],
      "Share of a model's engines that should compute prompts.",
    ),
  ],
};

import { of, plot, quantile, quantiles, rate, row, stat, sum } from "../panels.mjs";

export const mesh = {
  title: "Espalier: routers among each other",
  panels: [
    row("At a glance"),
    stat(
      "Routers seen",
      "short",
      [[`min(${sum(of("espalier_mesh_members", 'state="alive"'), "instance")}) + 1`, "alive"]],
      "By the router that sees fewest, itself included.",
    ),
    stat("Links", "short", [[`min(${of("espalier_mesh_links")})`, "links"]], "Of the router with the fewest."),
    stat(
      "Feeds read by nobody",
      "short",
      [[`max(${of("espalier_mesh_feeds_unowned")})`, "feeds"]],
      "More than two seconds: an alarm.",
    ),
    stat(
      "Replication lag p99",
      "s",
      [[quantile(0.99, "espalier_mesh_replication_lag_seconds"), "p99"]],
      "By the wall clocks of both routers.",
    ),
    stat(
      "Load lag p99",
      "s",
      [[quantile(0.99, "espalier_load_lag_seconds"), "p99"]],
      "By the wall clocks of both routers.",
    ),
    stat(
      "By way of Redis",
      "short",
      [[`min(${of("espalier_redis_connected")})`, "connected"]],
      "1 while every router has its Redis; empty without Redis.",
    ),
    row("Members and links"),
    plot(
      "Members",
      "short",
      [[sum(of("espalier_mesh_members"), "instance, state"), "{{instance}} {{state}}"]],
      "Other routers by state, as each router sees them.",
    ),
    plot(
      "Routers that differ",
      "short",
      [[`max by (difference) (${of("espalier_mesh_mismatched_routers")})`, "{{difference}}"]],
      "Live routers with another version, or with other settings where all should have the same. `espalier status` says which.",
    ),
    plot(
      "Changes",
      "ops",
      [
        [sum(rate("espalier_mesh_member_changes_total"), "state"), "{{state}}"],
        [sum(rate("espalier_mesh_refutations_total")), "refuted"],
        [sum(rate("espalier_mesh_pauses_total")), "stood still itself"],
        [sum(rate("espalier_mesh_members_refused_total")), "refused"],
      ],
      "Members that came into a state.",
    ),
    plot(
      "Links",
      "short",
      [[of("espalier_mesh_links"), "{{instance}}"]],
      "Up to 16 routers, each has one to every other.",
    ),
    plot(
      "Waiting to be sent",
      "bytes",
      [[of("espalier_mesh_queued_bytes"), "{{instance}}"]],
      "On all links together. Beyond limits.max-mesh-buffer new requests are refused.",
    ),
    plot(
      "Ends of links",
      "ops",
      [
        [sum(rate("espalier_mesh_links_closed_total"), "reason"), "{{reason}}"],
        [sum(rate("espalier_mesh_handler_failures_total")), "own failures"],
      ],
      "Why. Own failures are this router's, on what a peer sent; the link goes on.",
    ),
    plot(
      "Not shared: notes, entries of the registry",
      "ops",
      [
        [sum(rate("espalier_shared_estimates_dropped_total"), "kind"), "{{kind}}"],
        [sum(rate("espalier_registry_dropped_total"), "kind"), "{{kind}}"],
      ],
      "A router has at most 256 notes of a kind; the registry 16,384 engines, and as many drain flags.",
    ),
    plot(
      "Dialing",
      "ops",
      [
        [sum(rate("espalier_mesh_dial_failures_total"), "kind"), "{{kind}}"],
        [sum(rate("espalier_mesh_seed_resolve_failures_total")), "name not resolved"],
        [sum(rate("espalier_mesh_rejects_total"), "reason"), "rejected: {{reason}}"],
      ],
      "A wrong secret or version shows as rejected.",
    ),
    plot(
      "Sources of routers",
      "short",
      [[`min by (source) (${of("espalier_mesh_seed_source_up")})`, "{{source}}"]],
      "1 while all routers can follow it; else its last list stays.",
    ),
    plot(
      "Failures of sources of routers",
      "ops",
      [[sum(rate("espalier_mesh_seed_source_failures_total"), "source"), "{{source}}"]],
      "Each counted once for as long as it lasts.",
    ),
    plot(
      "Indirect probes",
      "ops",
      [
        [sum(rate("espalier_mesh_indirect_probes_total")), "asked"],
        [sum(rate("espalier_mesh_indirect_answers_total")), "answered"],
      ],
      "Routers that could not be reached directly.",
    ),
    row("Replication"),
    plot(
      "Lag",
      "s",
      quantiles("espalier_mesh_replication_lag_seconds"),
      "From the commit of a change to its arrival. Clocks that differ show here.",
    ),
    plot(
      "Traffic",
      "Bps",
      [
        [sum(rate("espalier_mesh_sent_bytes_total"), "channel"), "sent {{channel}}"],
        [sum(rate("espalier_mesh_received_bytes_total"), "channel"), "received {{channel}}"],
      ],
      "By channel.",
    ),
    plot(
      "Frames",
      "ops",
      [
        [sum(rate("espalier_mesh_sent_frames_total"), "channel"), "sent {{channel}}"],
        [sum(rate("espalier_mesh_received_frames_total"), "channel"), "received {{channel}}"],
      ],
      "By channel.",
    ),
    plot(
      "Dropped",
      "ops",
      [
        [sum(rate("espalier_mesh_dropped_frames_total"), "channel"), "{{channel}}"],
        [sum(rate("espalier_mesh_exchange_dropped_frames_total"), "kind"), "exchange {{kind}}"],
        [sum(rate("espalier_mesh_invalid_frames_total"), "channel"), "invalid {{channel}}"],
        [sum(rate("espalier_mesh_refused_updates_total")), "refused updates"],
      ],
      "Frames that a slow link lost are brought again; invalid ones are a defect or an attack.",
    ),
    plot(
      "Brought again",
      "ops",
      [
        [sum(rate("espalier_mesh_resyncs_total"), "reason"), "{{reason}}"],
        [sum(rate("espalier_mesh_snapshots_total"), "outcome"), "snapshot {{outcome}}"],
      ],
      "Diffs and whole states.",
    ),
    plot(
      "Exchange",
      "Bps",
      [[sum(rate("espalier_mesh_exchange_bytes_total"), "kind"), "{{kind}}"]],
      "Bytes of documents, by kind.",
    ),
    plot(
      "Fold",
      "ops",
      [
        [sum(rate("espalier_fold_refolds_total")), "refolds"],
        [sum(rate("espalier_fold_reloads_total"), "reason"), "reload: {{reason}}"],
        [sum(rate("espalier_fold_gaps_abandoned_total")), "gaps given up"],
        [sum(rate("espalier_fold_ignored_entries_total"), "reason"), "ignored: {{reason}}"],
      ],
      "How often what is known had to be put right.",
    ),
    plot(
      "Divergence",
      "ops",
      [
        [sum(rate("espalier_fold_divergence_hints_total"), "kind"), "{{kind}}"],
        [sum(rate("espalier_mesh_digests_total"), "direction"), "statements {{direction}}"],
      ],
      "Hints that two routers know different things.",
    ),
    plot(
      "Ownership of feeds",
      "short",
      [
        [`max(${of("espalier_mesh_feeds_unowned")})`, "read by nobody"],
        [sum(rate("espalier_mesh_feed_moves_total")), "moves per second"],
        [sum(rate("espalier_feed_claims_refused_total")), "claims refused"],
      ],
      "Each feed has one reader.",
    ),
    row("Load, placements, notes"),
    plot("Load lag", "s", quantiles("espalier_load_lag_seconds"), "From the making of a load frame to its arrival."),
    plot("Age of load", "s", quantiles("espalier_load_gauge_age_seconds"), "A router's load counts for 1.5 s."),
    plot(
      "Load that is not counted",
      "short",
      [
        [sum(of("espalier_load_phantom_requests")), "of silent routers"],
        [sum(rate("espalier_load_leases_expired_total")), "leases expired per second"],
        [sum(rate("espalier_load_refused_targets_total")), "targets refused per second"],
      ],
      "Requests in flight by what silent routers last said.",
    ),
    plot(
      "Load frames",
      "ops",
      [
        [sum(rate("espalier_load_frames_sent_total"), "trigger"), "sent: {{trigger}}"],
        [sum(rate("espalier_load_frames_received_total"), "outcome"), "received: {{outcome}}"],
      ],
      "How load travels.",
    ),
    plot(
      "Bytes of load, notes, usage, placements",
      "Bps",
      [
        [sum(rate("espalier_load_sent_bytes_total")), "load"],
        [sum(rate("espalier_shared_estimate_sent_bytes_total")), "shared estimates"],
        [sum(rate("espalier_usage_sent_bytes_total")), "usage"],
        [sum(rate("espalier_placements_written_bytes_total")), "placements"],
      ],
      "Written by all routers.",
    ),
    plot(
      "Placements",
      "ops",
      [
        [sum(rate("espalier_placements_written_total")), "written"],
        [sum(rate("espalier_placements_received_total"), "outcome"), "received: {{outcome}}"],
        [sum(rate("espalier_placements_invalid_items_total")), "invalid"],
      ],
      "Where prompts were sent.",
    ),
    plot(
      "Memory of placements",
      "bytes",
      [[sum(of("espalier_placements_chain_bytes"), "instance"), "{{instance}}"]],
      "Runs that later placements refer to.",
    ),
    plot(
      "Notes",
      "short",
      [
        [sum(of("espalier_shared_estimates"), "instance"), "{{instance}} kept"],
        [sum(rate("espalier_shared_estimate_frames_received_total"), "outcome"), "received: {{outcome}}"],
      ],
      "What routers have learned and told.",
    ),
    plot(
      "Usage of tenants",
      "short",
      [
        [`max(${of("espalier_usage_known_tenants")})`, "known tenants"],
        [`max(${of("espalier_usage_unreported_tenants")})`, "not told"],
        [`max(${of("espalier_usage_age_seconds")})`, "age (s)"],
        [sum(rate("espalier_usage_frames_received_total"), "outcome"), "frames: {{outcome}}"],
      ],
      "What routers tell each other of tenants.",
    ),
    row("Redis and readers"),
    plot(
      "Redis",
      "ops",
      [[sum(rate("espalier_redis_incidents_total"), "incident"), "{{incident}}"]],
      "Only where routers share by way of Redis.",
    ),
    plot(
      "Readers of documents",
      "short",
      [[sum(of("espalier_yjs_clients"), "instance"), "{{instance}}"]],
      "Dashboards and tools that follow a router, read-only.",
    ),
    plot(
      "Readers refused",
      "ops",
      [
        [sum(rate("espalier_yjs_refused_total"), "status"), "{{status}}"],
        [sum(rate("espalier_yjs_incidents_total"), "incident"), "{{incident}}"],
      ],
      "Wrong key, or too many.",
    ),
  ],
};

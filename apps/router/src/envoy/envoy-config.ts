import { isIP } from "node:net";

/** Where something listens. `host` is an address, or a name that Envoy looks up again and again. */
export interface EnvoyAddress {
  readonly host: string;
  /** 0 for a free port, where Envoy itself listens. */
  readonly port: number;
}

/** A router that answers Envoy's external processing filter, with the port of its gRPC health service. */
export interface EnvoyPicker extends EnvoyAddress {
  readonly healthPort: number;
}

/**
 * How the pickers see request bodies. `full-duplex`: in pieces, as they arrive, and they send them back. `buffered`: whole,
 * once Envoy has all of it. `none`: not at all, so that they choose by headers alone.
 */
export const requestBodyModes = ["full-duplex", "buffered", "none"] as const;

export type RequestBodyMode = (typeof requestBodyModes)[number];

/** How Envoy and pickers recognize each other. Paths are those of Envoy's machine. */
export interface EnvoyPickerTls {
  /** PEM file with the authority of the pickers' certificates. */
  readonly caFile: string;
  /** The host name or IP address that the pickers' certificates are for. */
  readonly name: string;
  /** PEM files with Envoy's own certificate and key, for pickers that ask for one (`ca-file`). */
  readonly own?: { readonly certFile: string; readonly keyFile: string };
}

export interface EnvoyOptions {
  /** Where clients connect. */
  readonly listen: EnvoyAddress;
  /** Where Envoy tells how it is. Whoever reaches it can end Envoy, so it belongs on a loopback address. */
  readonly admin: EnvoyAddress;
  readonly pickers: readonly EnvoyPicker[];
  /** For pickers that serve TLS (`endpoint-picker.tls`); their health checks do not. */
  readonly pickerTls?: EnvoyPickerTls;
  /** What the pickers may name. */
  readonly engines: readonly EnvoyAddress[];
  readonly requestBody: RequestBodyMode;
  /** Whether answers pass through the picker too, piece by piece. It sees their headers in any case. */
  readonly answersThroughPicker: boolean;
  readonly limits: EnvoyLimits;
  /** The only engines that pickers may choose, as `ip:port`; for gateways that divide a pool. */
  readonly subset?: readonly string[];
}

export interface EnvoyLimits {
  /** Largest request body that Envoy holds, in bytes: a larger one is refused if buffered, else never sent a second time. */
  readonly maxBodyBytes: number;
  /** How long a picker may take for one message, and a client for a whole request; more than pickers' `answer-within`. */
  readonly messageSeconds: number;
  /** How long nothing may happen to a request. It also ends one whose body a picker took and never gave back. */
  readonly idleSeconds: number;
  /** Connections of clients at once. Further ones are closed. */
  readonly connections: number;
}

/** As the router's own: `limits.max-body-bytes`, twice `endpoint-picker.answer-within`, `timeouts.first-byte`. */
export const standardEnvoyLimits: EnvoyLimits = {
  maxBodyBytes: 32 * 1024 * 1024,
  messageSeconds: 60,
  idleSeconds: 600,
  connections: 50_000,
};

/** The request header, and the key of the metadata, in which a picker names engines. */
const destination = "x-gateway-destination-endpoint";
const servedBy = "x-gateway-destination-endpoint-served";
/** The metadata namespaces of the endpoint picker protocol. */
const decision = "envoy.lb";
const subsetHint = "envoy.lb.subset_hint";

/**
 * The configuration of a bare Envoy that asks endpoint pickers where each request goes, in Envoy's v3 API (1.40), by the
 * endpoint picker protocol of the Gateway API Inference Extension. It is plain JSON: Envoy reads it as it is, and so do
 * people who write YAML.
 *
 * - A request fails when no picker answers: it never goes where its client says.
 * - A picker whose health check fails gets no new requests. One that is gone before it answered is replaced by another, as
 *   nothing has reached an engine then.
 * - An engine that takes no connection is replaced by the next one that the picker named. Whatever an engine may have taken
 *   is not sent again.
 */
export function envoyConfig(options: EnvoyOptions): EnvoyConfig {
  return {
    admin: { address: socketAddress(options.admin) },
    static_resources: {
      listeners: [listener(options)],
      clusters: [pickerCluster(options), engineCluster(options.engines)],
    },
    overload_manager: {
      resource_monitors: [
        {
          name: "envoy.resource_monitors.global_downstream_max_connections",
          typed_config: {
            ...typeUrl("extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"),
            max_active_downstream_connections: options.limits.connections,
          },
        },
      ],
    },
  };
}

/** A bootstrap configuration of Envoy. */
export interface EnvoyConfig {
  readonly admin: { readonly address: JsonObject };
  readonly static_resources: {
    readonly listeners: readonly JsonObject[];
    readonly clusters: readonly JsonObject[];
  };
  readonly overload_manager: JsonObject;
}

type JsonObject = Readonly<Record<string, unknown>>;

const typeUrl = (name: string): JsonObject => ({ "@type": `type.googleapis.com/envoy.${name}` });

const socketAddress = ({ host, port }: EnvoyAddress): JsonObject => ({
  socket_address: { address: host, port_value: port },
});

function listener(options: EnvoyOptions): JsonObject {
  const { subset, limits } = options;
  return {
    name: "clients",
    address: socketAddress(options.listen),
    filter_chains: [
      {
        filters: [
          {
            name: "envoy.filters.network.http_connection_manager",
            typed_config: {
              ...typeUrl("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
              stat_prefix: "clients",
              use_remote_address: true,
              request_timeout: `${limits.messageSeconds}s`,
              // An engine may compute for minutes before its first byte.
              stream_idle_timeout: `${limits.idleSeconds}s`,
              route_config: routes(options),
              http_filters: [
                forgetDestination,
                ...(subset === undefined ? [] : [tellSubset(subset)]),
                askPicker(options),
                {
                  name: "envoy.filters.http.router",
                  typed_config: typeUrl("extensions.filters.http.router.v3.Router"),
                },
              ],
            },
          },
        ],
      },
    ],
  };
}

function routes({ limits }: EnvoyOptions): JsonObject {
  return {
    name: "engines",
    virtual_hosts: [
      {
        name: "engines",
        domains: ["*"],
        request_body_buffer_limit: limits.maxBodyBytes,
        routes: [
          {
            match: { prefix: "/" },
            route: {
              cluster: "engines",
              // An answer takes as long as it has tokens.
              timeout: "0s",
              // Only where no engine has seen the request; the next attempt goes to the next engine that the picker named.
              retry_policy: { retry_on: "connect-failure,refused-stream", num_retries: 2 },
            },
          },
        ],
      },
    ],
  };
}

/** A client must not choose its engine: any `ip:port` of the cluster would do. */
const forgetDestination: JsonObject = {
  name: "envoy.filters.http.header_mutation",
  typed_config: {
    ...typeUrl("extensions.filters.http.header_mutation.v3.HeaderMutation"),
    mutations: { request_mutations: [{ remove: destination }] },
  },
};

const tellSubset = (subset: readonly string[]): JsonObject => ({
  name: "envoy.filters.http.set_metadata",
  typed_config: {
    ...typeUrl("extensions.filters.http.set_metadata.v3.Config"),
    metadata: [{ metadata_namespace: subsetHint, value: { [`${destination}-subset`]: subset } }],
  },
});

function askPicker({ requestBody, answersThroughPicker, limits }: EnvoyOptions): JsonObject {
  return {
    name: "envoy.filters.http.ext_proc",
    typed_config: {
      ...typeUrl("extensions.filters.http.ext_proc.v3.ExternalProcessor"),
      grpc_service: {
        envoy_grpc: { cluster_name: "pickers" },
        // A picker that is gone, or refuses, before its first word has decided nothing. Envoy keeps 64 KiB of what it sent to
        // one: a longer request that meets a picker at its death fails.
        retry_policy: {
          retry_on: "connect-failure,refused-stream,reset",
          num_retries: 2,
          retry_back_off: { base_interval: "0.005s", max_interval: "0.05s" },
          retry_host_predicate: [
            {
              name: "envoy.retry_host_predicates.previous_hosts",
              typed_config: typeUrl("extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"),
            },
          ],
          host_selection_retry_max_attempts: 5,
        },
      },
      failure_mode_allow: false,
      status_on_error: { code: "ServiceUnavailable" },
      processing_mode: {
        request_header_mode: "SEND",
        ...requestBodyFields[requestBody],
        response_header_mode: "SEND",
        ...(answersThroughPicker
          ? { response_body_mode: "FULL_DUPLEX_STREAMED", response_trailer_mode: "SEND" }
          : { response_body_mode: "NONE", response_trailer_mode: "SKIP" }),
      },
      // A picker holds requests while engines are busy, and has a deadline of its own. Envoy does not apply this one to
      // bodies that it streams.
      message_timeout: `${limits.messageSeconds}s`,
      mutation_rules: { disallow_system: { value: true } },
      metadata_options: {
        forwarding_namespaces: { untyped: [subsetHint, decision] },
        receiving_namespaces: { untyped: [decision] },
      },
    },
  };
}

const requestBodyFields: Readonly<Record<RequestBodyMode, JsonObject>> = {
  "full-duplex": { request_body_mode: "FULL_DUPLEX_STREAMED", request_trailer_mode: "SEND" },
  buffered: { request_body_mode: "BUFFERED", request_trailer_mode: "SKIP" },
  none: { request_body_mode: "NONE", request_trailer_mode: "SKIP" },
};

/** Requests stay open for as long as answers take; Envoy's standard bounds of 1,024 are for short ones. */
const bounds: JsonObject = {
  thresholds: [{ max_connections: 50_000, max_pending_requests: 50_000, max_requests: 50_000, max_retries: 1_000 }],
};

const protocol = (fields: JsonObject): JsonObject => ({
  "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
    ...typeUrl("extensions.upstreams.http.v3.HttpProtocolOptions"),
    ...fields,
  },
});

function pickerCluster({ pickers, pickerTls }: EnvoyOptions): JsonObject {
  return {
    ...cluster("pickers", pickers, ({ healthPort }) => ({ health_check_config: { port_value: healthPort } })),
    lb_policy: "ROUND_ROBIN",
    ...(pickerTls === undefined ? {} : transportSockets(pickerTls)),
    typed_extension_protocol_options: protocol({
      explicit_http_config: {
        http2_protocol_options: {
          // A picker that hangs without closing its connections: its requests end here, and go to another one.
          connection_keepalive: { interval: "2s", timeout: "5s" },
        },
      },
    }),
    health_checks: [
      {
        ...{ interval: "1s", no_traffic_interval: "1s", unhealthy_edge_interval: "0.1s", timeout: "1s" },
        ...{ unhealthy_threshold: 2, healthy_threshold: 1 },
        grpc_health_check: { service_name: "envoy.service.ext_proc.v3.ExternalProcessor" },
        ...(pickerTls === undefined ? {} : { transport_socket_match_criteria: plainText }),
      },
    ],
    // A picker that dies with requests open, or takes no connection, is left out at once, until a check succeeds.
    // `update_merge_window` has every thread know it at once.
    outlier_detection: {
      split_external_local_origin_errors: true,
      consecutive_local_origin_failure: 1,
      ...{ enforcing_consecutive_5xx: 0, enforcing_consecutive_gateway_failure: 0, enforcing_success_rate: 0 },
      ...{ enforcing_local_origin_success_rate: 0, max_ejection_percent: 100 },
    },
    // Pickers that fail are left out as long as any other is left.
    common_lb_config: { healthy_panic_threshold: { value: 1 }, update_merge_window: "0s" },
  };
}

/** Marks health checks, which are not encrypted. */
const plainText: JsonObject = { plainText: true };

function transportSockets({ caFile, name, own }: EnvoyPickerTls): JsonObject {
  const files = own && { certificate_chain: { filename: own.certFile }, private_key: { filename: own.keyFile } };
  const isAddress = isIP(name) > 0;
  return {
    transport_socket_matches: [
      {
        name: "health checks",
        match: plainText,
        transport_socket: {
          name: "envoy.transport_sockets.raw_buffer",
          typed_config: typeUrl("extensions.transport_sockets.raw_buffer.v3.RawBuffer"),
        },
      },
    ],
    transport_socket: {
      name: "envoy.transport_sockets.tls",
      typed_config: {
        ...typeUrl("extensions.transport_sockets.tls.v3.UpstreamTlsContext"),
        ...(isAddress ? {} : { sni: name }),
        common_tls_context: {
          alpn_protocols: ["h2"],
          ...(files ? { tls_certificates: [files] } : {}),
          validation_context: {
            trusted_ca: { filename: caFile },
            match_typed_subject_alt_names: [{ san_type: isAddress ? "IP_ADDRESS" : "DNS", matcher: { exact: name } }],
          },
        },
      },
    },
  };
}

function engineCluster(engines: readonly EnvoyAddress[]): JsonObject {
  return {
    ...cluster("engines", engines, () => ({})),
    typed_extension_protocol_options: protocol({
      explicit_http_config: { http_protocol_options: {} },
      // Engines on uvicorn close an idle connection after 5 s; a request that meets that would be lost.
      common_http_protocol_options: { idle_timeout: "4s" },
    }),
    load_balancing_policy: {
      policies: [
        {
          typed_extension_config: {
            name: "envoy.load_balancing_policies.override_host",
            typed_config: {
              ...typeUrl("extensions.load_balancing_policies.override_host.v3.OverrideHost"),
              // A picker says it in metadata, which no client can write, and in a header. Only the metadata counts.
              override_host_sources: [{ metadata: { key: decision, path: [{ key: destination }] } }],
              selected_host_key: { key: decision, path: [{ key: servedBy }] },
              fallback_policy: {
                policies: [
                  {
                    typed_extension_config: {
                      name: "envoy.load_balancing_policies.round_robin",
                      typed_config: typeUrl("extensions.load_balancing_policies.round_robin.v3.RoundRobin"),
                    },
                  },
                ],
              },
            },
          },
        },
      ],
    },
  };
}

function cluster<Address extends EnvoyAddress>(
  name: string,
  addresses: readonly Address[],
  more: (address: Address) => JsonObject,
): JsonObject {
  return {
    name,
    type: addresses.every(({ host }) => isIP(host) > 0) ? "STATIC" : "STRICT_DNS",
    connect_timeout: "1s",
    circuit_breakers: bounds,
    load_assignment: {
      cluster_name: name,
      endpoints: [
        {
          lb_endpoints: addresses.map((address) => ({
            endpoint: { address: socketAddress(address), ...more(address) },
          })),
        },
      ],
    },
  };
}

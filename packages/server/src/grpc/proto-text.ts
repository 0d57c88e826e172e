/**
 * The part of Envoy's public API that an endpoint picker speaks: `envoy.service.ext_proc.v3` and the messages it refers to
 * (Envoy 1.40, `api/envoy/service/ext_proc/v3/external_processor.proto`), gRPC's health protocol
 * (`grpc/health/v1/health.proto`), and KEDA's external scalers (KEDA,
 * `pkg/scalers/externalscaler/externalscaler.proto`). Names and field numbers are theirs. Fields that are not listed are skipped when read.
 *
 * A text in a module, so that programs in one file have it too.
 */
export const protoText = `syntax = "proto3";

package espalier;

import "google/protobuf/struct.proto";

message HeaderValue {
  string key = 1;
  string value = 2;
  // Envoy fills this one, and reads it first.
  bytes raw_value = 3;
}

message HeaderMap {
  repeated HeaderValue headers = 1;
}

message HttpHeaders {
  HeaderMap headers = 1;
  bool end_of_stream = 3;
}

message HttpBody {
  bytes body = 1;
  bool end_of_stream = 2;
}

message HttpTrailers {
  HeaderMap trailers = 1;
}

message Metadata {
  map<string, google.protobuf.Struct> filter_metadata = 1;
}

// envoy.extensions.filters.http.ext_proc.v3.ProcessingMode.BodySendMode
enum BodySendMode {
  NONE = 0;
  STREAMED = 1;
  BUFFERED = 2;
  BUFFERED_PARTIAL = 3;
  FULL_DUPLEX_STREAMED = 4;
}

message ProtocolConfiguration {
  BodySendMode request_body_mode = 1;
  BodySendMode response_body_mode = 2;
}

message ProcessingRequest {
  HttpHeaders request_headers = 2;
  HttpHeaders response_headers = 3;
  HttpBody request_body = 4;
  HttpBody response_body = 5;
  HttpTrailers request_trailers = 6;
  HttpTrailers response_trailers = 7;
  Metadata metadata_context = 8;
  bool observability_mode = 10;
  ProtocolConfiguration protocol_config = 11;
}

message HeaderValueOption {
  enum AppendAction {
    APPEND_IF_EXISTS_OR_ADD = 0;
    ADD_IF_ABSENT = 1;
    OVERWRITE_IF_EXISTS_OR_ADD = 2;
  }
  HeaderValue header = 1;
  AppendAction append_action = 3;
}

message HeaderMutation {
  repeated HeaderValueOption set_headers = 1;
  repeated string remove_headers = 2;
}

message StreamedBodyResponse {
  bytes body = 1;
  bool end_of_stream = 2;
}

message BodyMutation {
  oneof mutation {
    bytes body = 1;
    bool clear_body = 2;
    StreamedBodyResponse streamed_response = 3;
  }
}

message CommonResponse {
  HeaderMutation header_mutation = 2;
  BodyMutation body_mutation = 3;
  bool clear_route_cache = 5;
}

message HeadersResponse {
  CommonResponse response = 1;
}

message BodyResponse {
  CommonResponse response = 1;
}

message TrailersResponse {}

message HttpStatus {
  uint32 code = 1;
}

message ImmediateResponse {
  HttpStatus status = 1;
  HeaderMutation headers = 2;
  bytes body = 3;
  string details = 5;
}

message ProcessingResponse {
  HeadersResponse request_headers = 1;
  HeadersResponse response_headers = 2;
  BodyResponse request_body = 3;
  BodyResponse response_body = 4;
  TrailersResponse request_trailers = 5;
  TrailersResponse response_trailers = 6;
  ImmediateResponse immediate_response = 7;
  google.protobuf.Struct dynamic_metadata = 8;
}

message HealthCheckRequest {
  string service = 1;
}

message HealthCheckResponse {
  enum ServingStatus {
    UNKNOWN = 0;
    SERVING = 1;
    NOT_SERVING = 2;
    SERVICE_UNKNOWN = 3;
  }
  ServingStatus status = 1;
}

message ScaledObjectRef {
  string name = 1;
  string namespace = 2;
  map<string, string> scalerMetadata = 3;
}

message IsActiveResponse {
  bool result = 1;
}

message MetricSpec {
  string metricName = 1;
  int64 targetSize = 2;
  double targetSizeFloat = 3;
}

message GetMetricSpecResponse {
  repeated MetricSpec metricSpecs = 1;
}

message GetMetricsRequest {
  ScaledObjectRef scaledObjectRef = 1;
  string metricName = 2;
}

message MetricValue {
  string metricName = 1;
  int64 metricValue = 2;
  double metricValueFloat = 3;
}

message GetMetricsResponse {
  repeated MetricValue metricValues = 1;
}
`;

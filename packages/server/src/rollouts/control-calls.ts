/** How a control call reaches engines. `one`: its body differs per engine, so that it needs the name of one. */
type Reach = "all" | "one";

/** Parts of an engine's memory, as SGLang and vLLM name them, and vLLM's scheduler. */
export const memoryParts = ["weights", "kv_cache", "cuda_graph", "scheduling"] as const;
export type MemoryPart = (typeof memoryParts)[number];

/** What a control call that succeeded means for what routers know of an engine. */
export interface ControlEffect {
  /** The engine takes no requests from the call on, or takes them again after it. */
  readonly pauses?: boolean;
  /** The engine's memory is released from the call on: the parts in `tags`, or else these. `false`: they are there again. */
  readonly releases?: readonly MemoryPart[] | false;
  /**
   * Its caches are void: other weights, or emptied. `cleared`: unless the query says `clear_cache=false`. `method`: if the body's
   * method has to do with weights.
   */
  readonly voids?: true | "cleared" | "method";
  /** What routers hold of the requests that the call names ends too. */
  readonly aborts?: true;
}

export interface ControlCall extends ControlEffect {
  readonly path: string;
  readonly methods: readonly ("GET" | "POST")[];
  readonly reach: Reach;
}

const post = (path: string, effect: ControlEffect = {}): ControlCall => {
  return { path, methods: ["POST"], reach: "all", ...effect };
};
const get = (path: string): ControlCall => ({ path, methods: ["GET"], reach: "all" });
const both = (path: string, effect: ControlEffect = {}): ControlCall => {
  return { path, methods: ["GET", "POST"], reach: "all", ...effect };
};
const one = (path: string, effect: ControlEffect = {}): ControlCall => ({ ...post(path, effect), reach: "one" });

/** What RL frameworks ask of engines (SGLang 0.5.23, vLLM 0.33.0 and the forks of slime, miles, SkyRL and prime-rl). */
export const controlCalls: readonly ControlCall[] = [
  // SGLang
  post("/abort_request", { aborts: true }),
  post("/pause_generation", { pauses: true }),
  post("/continue_generation", { pauses: false }),
  both("/flush_cache", { voids: true }),
  both("/release_memory_occupation", { releases: ["weights", "kv_cache", "cuda_graph"], voids: true }),
  both("/resume_memory_occupation", { releases: false }),
  post("/update_weights_from_disk", { voids: true }),
  post("/update_weights_from_distributed", { voids: true }),
  post("/begin_weight_update"),
  post("/end_weight_update", { voids: true }),
  post("/update_weight_version", { voids: true }),
  post("/pull_weights", { voids: true }),
  post("/post_process_weights"),
  post("/weights_checker"),
  post("/destroy_weights_update_group"),
  post("/load_lora_adapter_from_distributed"),
  post("/load_lora_adapter"),
  post("/unload_lora_adapter"),
  post("/start_profile"),
  post("/stop_profile"),
  get("/get_weight_version"),
  get("/v1/loads"),
  one("/init_weights_update_group"),
  one("/update_weights_from_tensor", { voids: true }),
  one("/load_lora_adapter_from_tensors"),
  { ...get("/get_remote_instance_transfer_engine_info"), reach: "one" },
  { ...get("/parallelism_config"), reach: "one" },
  // vLLM
  post("/pause", { pauses: true, voids: "cleared" }),
  post("/resume", { pauses: false }),
  post("/sleep", { releases: ["weights", "kv_cache"], voids: true }),
  post("/wake_up", { releases: false }),
  post("/reset_prefix_cache", { voids: true }),
  post("/start_weight_update"),
  post("/update_weights", { voids: true }),
  post("/finish_weight_update", { voids: true }),
  post("/fetch_weights", { voids: true }),
  post("/collective_rpc", { voids: "method" }),
  post("/skyrl/v1/load_lora_adapter"),
  post("/v1/load_lora_adapter"),
  post("/v1/unload_lora_adapter"),
  get("/is_paused"),
  get("/is_sleeping"),
  get("/weight_info"),
  get("/get_world_size"),
  one("/init_weight_transfer_engine"),
  one("/init_broadcaster"),
  // Both
  get("/model_info"),
  get("/get_model_info"),
  get("/server_info"),
  get("/get_server_info"),
];

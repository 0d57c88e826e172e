import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Creates a folder that vLLM loads as a model: one of our tokenizers and the description of a network of two small
 * layers with random weights.
 *
 * @param tokenizer folder with `tokenizer.json` and `tokenizer_config.json`
 */
export function layOutModel(tokenizer: string, folder: string): void {
  mkdirSync(folder, { recursive: true });
  for (const name of ["tokenizer.json", "tokenizer_config.json"])
    copyFileSync(join(tokenizer, name), join(folder, name));
  const { model, added_tokens: added } = JSON.parse(readFileSync(join(tokenizer, "tokenizer.json"), "utf8")) as {
    readonly model: { readonly vocab: Readonly<Record<string, number>> };
    readonly added_tokens: readonly { readonly id: number; readonly content: string }[];
  };
  const ids = [...Object.values(model.vocab), ...added.map(({ id }) => id)];
  const eos = added.find(({ content }) => content === "<|im_end|>")?.id ?? 0;
  const config = {
    // A type for which transformers uses the tokenizer files as they are; for others it builds its own tokenizer.
    architectures: ["LlamaForCausalLM"],
    model_type: "llama",
    hidden_size: 128,
    intermediate_size: 256,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    hidden_act: "silu",
    max_position_embeddings: 8_192,
    rms_norm_eps: 1e-5,
    rope_theta: 500_000,
    tie_word_embeddings: false,
    torch_dtype: "bfloat16",
    vocab_size: Math.max(...ids) + 1,
    bos_token_id: eos,
    eos_token_id: eos,
  };
  writeFileSync(join(folder, "config.json"), JSON.stringify(config, undefined, 1));
  writeFileSync(join(folder, "generation_config.json"), JSON.stringify({ bos_token_id: eos, eos_token_id: eos }));
}

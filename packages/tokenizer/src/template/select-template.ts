type Fields = Readonly<Record<string, unknown>>;

/**
 * The chat template of a model among those that its files have.
 *
 * @param chatTemplate `chat_template` of tokenizer_config.json: a template, or a list of named ones; the text of
 * chat_template.jinja or of chat_template.json comes in its place when there is such a file
 * @param additional templates of the folder additional_chat_templates, by name
 * @param hasTools whether the request brings tools, for which a template named `tool_use` is taken when there is one
 * @returns undefined when the files have none that fits
 */
export function selectTemplate({
  chatTemplate,
  additional = {},
  hasTools,
}: {
  readonly chatTemplate: unknown;
  readonly additional?: Readonly<Record<string, string>>;
  readonly hasTools: boolean;
}): string | undefined {
  const named = new Map(Object.entries(additional));
  if (typeof chatTemplate === "string") named.set("default", chatTemplate);
  else for (const [name, template] of namedTemplates(chatTemplate)) named.set(name, template);
  return (hasTools ? named.get("tool_use") : undefined) ?? named.get("default");
}

function namedTemplates(list: unknown): [string, string][] {
  if (!Array.isArray(list)) return [];
  return list.flatMap((entry: unknown): [string, string][] => {
    if (typeof entry !== "object" || entry === null) return [];
    const { name, template } = entry as Fields;
    return typeof name === "string" && typeof template === "string" ? [[name, template]] : [];
  });
}

const tokenNames = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/**
 * The special tokens that templates know by name, from tokenizer_config.json: strings, or objects with a `content`. A
 * token that the file sets to null is undefined in the template.
 */
export function specialTokensOf(config: Fields): Record<string, unknown> {
  const tokens: Record<string, unknown> = {};
  const extra = config.extra_special_tokens;
  const named = typeof extra === "object" && extra !== null && !Array.isArray(extra) ? (extra as Fields) : {};
  for (const name of tokenNames) {
    const token = tokenText(config[name]);
    if (token !== undefined) tokens[name] = token;
  }
  for (const [name, value] of Object.entries(named)) {
    const token = tokenText(value);
    if (token !== undefined) tokens[name] = token;
  }
  const additional = config.additional_special_tokens;
  if (Array.isArray(additional) && additional.length > 0) {
    tokens.additional_special_tokens = additional.map(tokenText).filter((token) => token !== undefined);
  }
  return tokens;
}

function tokenText(token: unknown): string | undefined {
  if (typeof token === "string") return token;
  if (typeof token !== "object" || token === null) return undefined;
  const { content } = token as Fields;
  return typeof content === "string" ? content : undefined;
}

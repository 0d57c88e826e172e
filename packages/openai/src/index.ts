/** Request views, error objects and the SSE codec of the OpenAI, Anthropic and SGLang HTTP APIs. */
export {};

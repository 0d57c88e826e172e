import type { JsonBody } from "@espalier/json-body";
import type { ChatDialect, PromptRequest } from "@espalier/tokenizer";

/** A request whose fields are parsed when somebody asks for them. */
export class BodyRequest implements PromptRequest {
  readonly endpoint: string;
  readonly body: JsonBody;
  readonly dialect: ChatDialect;

  constructor(endpoint: string, body: JsonBody, dialect: ChatDialect) {
    this.endpoint = endpoint;
    this.body = body;
    this.dialect = dialect;
  }

  get fields(): PromptRequest["fields"] {
    return this.body.fields;
  }
}

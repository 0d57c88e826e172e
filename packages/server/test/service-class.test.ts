import { loadConfig } from "@espalier/config";
import { expect, test } from "vitest";
import { readServiceClass } from "../src/admission/service-class.ts";

const tenantOf = (admission: object, apiKey: string | undefined, headers: Record<string, string>): string => {
  const text = JSON.stringify({ engines: ["http://127.0.0.1:9"], admission });
  const { admission: config } = loadConfig({ file: { path: "router.yaml", text } });
  return readServiceClass(config, headers, { bodyPriority: undefined, apiKey }).tenant;
};

// Whoever had a key could take another tenant's share, or have one for each request, by naming a tenant in a header.
test.each(["x-espalier-tenant", "x-llm-d-inference-fairness-id"])(
  "%s names a tenant where there are no keys, and where it is trusted; else the key does",
  (name) => {
    const headers = { [name]: "theirs" };
    expect(tenantOf({}, undefined, headers)).toBe("theirs");
    expect(tenantOf({}, "own", headers)).toBe("own");
    expect(tenantOf({ "trust-tenant-header": true }, "own", headers)).toBe("theirs");
    expect(tenantOf({ "trust-tenant-header": true }, "own", {})).toBe("own");
  },
);

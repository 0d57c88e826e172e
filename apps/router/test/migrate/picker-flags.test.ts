import { expect, test } from "vitest";
import { UsageError } from "../../src/cli/read-flags.ts";
import { readPickerCommand } from "../../src/migrate/llm-d/picker-flags.ts";

const key = { ESPALIER_ADMIN_KEY: "a-key" };
const none = (): string => "";
const pickerFlags = ["--endpoint-picker-host", "0.0.0.0", "--endpoint-picker-port", "9002"];
const health = ["--endpoint-picker-health-port", "9003"];
const admin = ["--admin-host", "0.0.0.0", "--admin-port", "9090"];

test("other command lines are left alone", () => {
  for (const line of [[], ["serve", "--pool-name", "a"], ["--pool-names"], ["--version"]])
    expect(readPickerCommand(line, {}, none)).toBe(undefined);
});

test("the pool, the ports and the certificate of a command line are those of serve", () => {
  const line = ["--pool-name", "chat", "--pool-namespace", "ai", "--zap-encoder", "json", "--grpc-port", "9102"];
  const more = ["--grpc-health-port=9103", "", "--metrics-port=9190", "--secure-serving=true", "--cert-path=/tls"];
  expect(readPickerCommand([...line, ...more], key, none)).toEqual({
    args: [
      ...["serve", "--discover-inference-pool", "ai/chat"],
      ...["--endpoint-picker-host", "0.0.0.0", "--endpoint-picker-port", "9102"],
      ...["--endpoint-picker-health-port", "9103", "--admin-host", "0.0.0.0", "--admin-port", "9190"],
      ...["--endpoint-picker-tls-cert-file", "/tls/tls.crt", "--endpoint-picker-tls-key-file", "/tls/tls.key"],
    ],
    notes: [],
  });
});

test("NAMESPACE names the pool's, and scores are sent when asked for", () => {
  const line = ["--pool-name=chat", "--emit-endpoint-scores", "--secure-serving=false"];
  expect(readPickerCommand(line, { ...key, NAMESPACE: "ai" }, none)?.args).toEqual([
    ...["serve", "--discover-inference-pool", "ai/chat", ...pickerFlags, ...health],
    ...["--endpoint-picker-scores", "true", ...admin],
  ]);
});

test("a configuration file of Espalier's says which pool, and which certificate", () => {
  const line = ["--pool-name", "chat", "--config-file", "/config/espalier.yaml"];
  const text = "discovery: { inference-pools: [chat] }\n";
  expect(readPickerCommand(line, key, () => text)?.args).toEqual([
    ...["serve", "--config", "/config/espalier.yaml", ...pickerFlags, ...health, ...admin],
  ]);
  const byVariable = readPickerCommand(["--pool-name", "chat"], { ...key, ESPALIER_CONFIG: "/e.yaml" }, none);
  expect(byVariable?.args).toEqual(["serve", ...pickerFlags, ...health, ...admin]);
});

test("llm-d's plugins, unknown flags and a missing key are noted; what changes nothing is not", () => {
  const plugins = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n";
  const line = ["--pool-name", "chat", "--secure-serving=false", "--v=2", "--ha-enable-leader-election"];
  const translated = expect.stringContaining("espalier migrate --from llm-d");
  const byFile = readPickerCommand([...line, "--config-file", "/config/default-plugins.yaml"], key, () => plugins);
  expect(byFile).toMatchObject({ notes: [translated] });
  expect(byFile?.args).not.toContain("--config");
  const byText = readPickerCommand([...line, "--config-text", plugins, "--enable-pprof", "--nonsense=1"], {}, none);
  expect(byText?.notes).toEqual([
    translated,
    expect.stringContaining("ESPALIER_ADMIN_KEY is not set"),
    "without effect here: --enable-pprof, --nonsense",
  ]);
  expect(byText?.args).not.toContain("--admin-host");
});

test("without a certificate it is refused, and the message says what to add", () => {
  const refused = () => readPickerCommand(["--pool-name", "chat"], key, none);
  expect(refused).toThrow(UsageError);
  expect(refused).toThrow(/--cert-path=FOLDER .* or --secure-serving=false/);
});

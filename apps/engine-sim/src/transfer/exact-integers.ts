/** Fields whose numbers have up to 19 digits, which JavaScript's numbers do not hold. */
const names = "bootstrap_room|ctx_request_id|disagg_request_id";

/**
 * Puts the long numbers of these fields between quotes, so that parsing the JSON keeps every digit. A name is followed by
 * a colon only where it is a key: inside a text its quotes would be escaped.
 */
export function quoteLongIntegers(json: string): string {
  return json.replace(new RegExp(`"(${names})"(\\s*:\\s*)(\\d{16,})(?=\\s*[,}])`, "g"), '"$1"$2"$3"');
}

/** Takes the quotes off again. */
export function unquoteLongIntegers(json: string): string {
  return json.replace(new RegExp(`"(${names})":"(\\d{16,})"`, "g"), '"$1":$2');
}

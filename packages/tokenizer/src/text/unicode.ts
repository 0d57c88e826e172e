/**
 * The reference implementation uses its own release of Unicode; the JavaScript engine's regular expressions and
 * normalization use another. These tables list the differences, found by comparing every code point.
 */

/**
 * Code points assigned in Unicode 17. The reference's patterns (Oniguruma with Unicode 16) match them as unassigned.
 */
const unicode17 =
  "\\u088F\\u0C5C\\u0CDC\\u1ACF-\\u1ADD\\u1AE0-\\u1AEB\\u20C1\\u2B96\\uA7CE\\uA7CF\\uA7D2\\uA7D4\\uA7F1\\uFBC3-\\uFBD2" +
  "\\uFD90\\uFD91\\uFDC8-\\uFDCE\\u{10940}-\\u{10959}\\u{10EC5}-\\u{10EC7}\\u{10ED0}-\\u{10ED8}\\u{10EFA}\\u{10EFB}" +
  "\\u{11B60}-\\u{11B67}\\u{11DB0}-\\u{11DDB}\\u{11DE0}-\\u{11DE9}\\u{16EA0}-\\u{16EB8}\\u{16EBB}-\\u{16ED3}" +
  "\\u{16FF2}-\\u{16FF6}\\u{187F8}-\\u{187FF}\\u{18D09}-\\u{18D1E}\\u{18D80}-\\u{18DF2}\\u{1CCFA}-\\u{1CCFC}" +
  "\\u{1CEBA}-\\u{1CED0}\\u{1CEE0}-\\u{1CEF0}\\u{1E6C0}-\\u{1E6DE}\\u{1E6E0}-\\u{1E6F5}\\u{1E6FE}\\u{1E6FF}\\u{1F6D8}" +
  "\\u{1F777}-\\u{1F77A}\\u{1F8D0}-\\u{1F8D8}\\u{1FA54}-\\u{1FA57}\\u{1FA8A}\\u{1FA8E}\\u{1FAC8}\\u{1FACD}\\u{1FAEA}" +
  "\\u{1FAEF}\\u{1FBFA}\\u{2B73A}-\\u{2B73F}\\u{2CEA2}-\\u{2CEAD}\\u{323B0}-\\u{33479}";

/** U+0295 is a lower-case letter up to Unicode 16 and another kind of letter since 17. */
const differing = new RegExp(`[\\u0295${unicode17}]`, "gu");

/**
 * The text for patterns, equal in length to `text`. Characters that the reference's patterns classify differently are
 * replaced by one of the kind they see.
 */
export function textForPatterns(text: string): string {
  return text.replace(differing, (character) => {
    if (character === "\u0295") return "\u0250";
    return character.length === 2 ? "\u{1FFFE}" : "\uFFFE";
  });
}

/**
 * Characters that the reference's normalization (Unicode 9) leaves unchanged, and the characters they are composed of:
 * none of them decomposes, composes or is reordered.
 */
const inert =
  "\\u07FD\\u0897-\\u089F\\u08CA-\\u08D3\\u09FE\\u0C3C\\u0D3B\\u0D3C\\u0EBA\\u1715\\u1ABF-\\u1ADD\\u1AE0-\\u1AEB" +
  "\\u1DF6-\\u1DFA\\u32FF\\uA7F1-\\uA7F4\\uA82C\\uAB69\\u{105C0}-\\u{105FF}\\u{10781}-\\u{10785}\\u{10787}-\\u{107B0}" +
  "\\u{107B2}-\\u{107BA}\\u{10D24}-\\u{10D27}\\u{10D69}-\\u{10D6D}\\u{10EAB}\\u{10EAC}\\u{10EFA}\\u{10EFB}" +
  "\\u{10EFD}-\\u{10EFF}\\u{10F46}-\\u{10F50}\\u{10F82}-\\u{10F85}\\u{11070}\\u{1133B}\\u{11380}-\\u{113FF}\\u{1145E}" +
  "\\u{11839}\\u{1183A}\\u{11900}-\\u{1195F}\\u{119E0}\\u{11A34}\\u{11A47}\\u{11A99}\\u{11D42}\\u{11D44}\\u{11D45}" +
  "\\u{11D97}\\u{11F41}\\u{11F42}\\u{16100}-\\u{1613F}\\u{16D40}-\\u{16D7F}\\u{16FF0}\\u{16FF1}\\u{1CCD6}-\\u{1CCF9}" +
  "\\u{1E030}-\\u{1E06D}\\u{1E08F}\\u{1E130}-\\u{1E136}\\u{1E2AE}\\u{1E2EC}-\\u{1E2EF}\\u{1E4EC}-\\u{1E4EF}" +
  "\\u{1E5EE}\\u{1E5EF}\\u{1E6E3}\\u{1E6E6}\\u{1E6EE}\\u{1E6EF}\\u{1E6F5}\\u{1F16C}\\u{1FBF0}-\\u{1FBF9}";

const activeRuns = new RegExp(`[^${inert}]+`, "gu");
const anyInert = new RegExp(`[${inert}]`, "u");

/** `String.prototype.normalize` in the reference's Unicode version. */
export function normalizeAsReference(text: string, form: "NFC" | "NFD" | "NFKC" | "NFKD"): string {
  return anyInert.test(text) ? text.replace(activeRuns, (run) => run.normalize(form)) : text.normalize(form);
}

/** Punctuation according to the reference's `Punctuation` (Unicode 8), without later additions. */
export const punctuationPattern = new RegExp(
  "(?![\\u061D\\u09FD\\u0A76\\u0C77\\u0C84\\u1B4E\\u1B4F\\u1B7D-\\u1B7F\\u2E43-\\u2E5D\\u{10D6E}\\u{10EAD}\\u{10ED0}" +
    "\\u{10F55}-\\u{10F59}\\u{10F86}-\\u{10F89}\\u{113D4}-\\u{113D8}\\u{1144B}-\\u{1145D}\\u{11660}-\\u{1166C}" +
    "\\u{116B9}\\u{1183B}\\u{11944}-\\u{11946}\\u{119E2}\\u{11A3F}-\\u{11A46}\\u{11A9A}-\\u{11AA2}\\u{11B00}-\\u{11B09}" +
    "\\u{11BE1}\\u{11C41}-\\u{11C71}\\u{11EF7}\\u{11EF8}\\u{11F43}-\\u{11F4F}\\u{11FFF}\\u{12FF1}\\u{12FF2}" +
    "\\u{16D6D}-\\u{16D6F}\\u{16E97}-\\u{16E9A}\\u{16FE2}\\u{1E5FF}\\u{1E95E}\\u{1E95F}\\u{111C9}])" +
    "[\\p{P}$+<=>^`|~\\u166D]",
  "gu",
);

/** Whether a UTF-16 code unit is Unicode White_Space, all of which is in the basic plane. */
export function isWhiteSpace(unit: number): boolean {
  if (unit <= 0x20) return unit === 0x20 || (unit >= 0x09 && unit <= 0x0d);
  if (unit < 0x85) return false;
  return (
    unit === 0x85 ||
    unit === 0xa0 ||
    unit === 0x1680 ||
    (unit >= 0x2000 && unit <= 0x200a) ||
    unit === 0x2028 ||
    unit === 0x2029 ||
    unit === 0x202f ||
    unit === 0x205f ||
    unit === 0x3000
  );
}

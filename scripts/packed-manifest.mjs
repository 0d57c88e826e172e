/**
 * The package.json of a package as others install it: its entries are what `npm run build` made of the sources that they
 * name in the repository.
 *
 * @param manifest the parsed package.json
 */
export function packedManifest(manifest) {
  const entries = Object.entries(manifest.exports ?? {}).map(([name, path]) => [name, packedEntry(path)]);
  return { ...manifest, exports: Object.fromEntries(entries) };
}

function packedEntry(path) {
  const source = /^\.\/src\/(.*)\.ts$/.exec(path);
  if (source === null) return path;
  return { types: `./dist/${source[1]}.d.ts`, default: `./dist/${source[1]}.js` };
}

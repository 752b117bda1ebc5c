// Puts a Brotli and a gzip copy beside each file of a folder, as small as they get: they are made once and sent often.
//
//   scripts/compress.mjs FOLDER
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const [folder] = process.argv.slice(2);
if (!folder) {
  console.error('usage: scripts/compress.mjs FOLDER');
  process.exit(2);
}
const { BROTLI_PARAM_QUALITY, BROTLI_PARAM_LGWIN, BROTLI_MAX_QUALITY, BROTLI_MAX_WINDOW_BITS } = constants;
const params = { [BROTLI_PARAM_QUALITY]: BROTLI_MAX_QUALITY, [BROTLI_PARAM_LGWIN]: BROTLI_MAX_WINDOW_BITS };
for (const name of readdirSync(folder)) {
  if (!/\.(wasm|js|css|svg)$/.test(name)) continue;
  const path = join(folder, name);
  const plain = readFileSync(path);
  writeFileSync(`${path}.br`, brotliCompressSync(plain, { params }));
  writeFileSync(`${path}.gz`, gzipSync(plain, { level: 9 }));
}

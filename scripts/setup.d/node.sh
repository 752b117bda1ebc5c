# Tailwind, wasm-opt (of binaryen), Playwright and axe: the versions of package-lock.json.

setup_node() {
  local stamp="$root/node_modules/.setup-stamp" wanted
  if ! have node || ! have npm; then apt_install nodejs npm || true; fi
  have node && have npm && at_least 20 "$(node -p process.versions.node)" ||
    die "Node.js 20 or newer with npm is missing (found: $(node --version 2>/dev/null || echo none)): install it from https://nodejs.org"
  wanted="$(cat "$root/package.json" "$root/package-lock.json" | cksum)"
  if [ "$(cat "$stamp" 2>/dev/null || true)" = "$wanted" ]; then
    say "node_modules: up to date"
    return
  fi
  say "npm ci"
  (cd "$root" && npm ci --prefer-offline --no-fund --no-audit --ignore-scripts --loglevel=error) || die "npm ci failed: see above"
  printf '%s' "$wanted" >"$stamp"
}

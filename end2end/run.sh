#!/usr/bin/env bash
# Browser tests against a real server with real processes and a database of its own.
#
#   end2end/run.sh [Playwright's arguments]
#
# The programs and the pages must have been built (make test does). HOLDFAST_PROFILE=release tests the release build of the
# programs; what the pages weigh is judged where they were built by `scripts/pages release`.
set -euo pipefail

. "$(dirname "$0")/../scripts/lib.sh"
load_toolchain
cd "$root"

holdfast="$(target_dir)/${HOLDFAST_PROFILE:-debug}/holdfast"
[ -x "$holdfast" ] || die "$holdfast is not built: run make test, or cargo build --workspace --bins"

work="$(mktemp -d "${TMPDIR:-/tmp}/holdfast-end2end.XXXXXX")"
server=
finish() {
  local status=$?
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  stop_left_over || status=1
  if [ "$status" -ne 0 ] && [ -f "$work/server.log" ]; then
    echo "--- the server's log (last 400 lines)" >&2
    tail -n 400 "$work/server.log" >&2
  fi
  rm -rf "$work"
  exit "$status"
}

# The processes whose command or environment names the server's folder. Its name reaches grep by a pipe, else grep finds itself.
left_over() {
  grep -lasF -f <(printf '%s\n' "$work/data") /proc/[0-9]*/environ /proc/[0-9]*/cmdline | cut -d/ -f3 | sort -u
}

# Deleting a job leaves nothing behind: what is still there some seconds later is ended, and a failure.
stop_left_over() {
  [ -d /proc/self ] || return 0 # only Linux tells
  local pid
  for _ in $(seq 50); do
    [ -n "$(left_over)" ] || return 0
    sleep 0.1
  done
  for pid in $(left_over); do
    echo "still running after its job was deleted: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline")" >&2
    kill -KILL "$pid" 2>/dev/null || true
  done
  return 1
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

export HOLDFAST_SITE="${HOLDFAST_SITE:-$root/target/site}"
# Only a release of the pages has compressed copies.
compressed=("$HOLDFAST_SITE"/pkg/*.wasm.br)
[ ! -f "${compressed[0]}" ] || export E2E_PAGES=release
# All tests share the nodes: what one blames must not keep another from starting.
export HOLDFAST_NODE_STRIKES=50
# The test of the nodes that is built in, made short.
export HOLDFAST_DIAGNOSE_COMMAND='holdfast-agent probe --processor-seconds 0.1 --memory-mib 2 --transfer-mib 4'
"$holdfast" serve --listen 127.0.0.1:0 --addr-file "$work/addr" --data "$work/data" >"$work/server.log" 2>&1 &
server=$!

for _ in $(seq 300); do # 30 s: the first start also lays out the database
  [ ! -s "$work/addr" ] || break
  kill -0 "$server" 2>/dev/null || die "the server ended before it served"
  sleep 0.1
done
[ -s "$work/addr" ] || die "the server did not serve within 30 s"

# The tests restart the server and read its files: they need to know its program, process and folder.
BASE_URL="http://$(cat "$work/addr")"
BASE_URL="$BASE_URL" E2E_HOLDFAST="$holdfast" E2E_SERVER_PID="$server" E2E_DATA="$work/data" \
  npx --no-install playwright test --config end2end/playwright.config.ts "$@"

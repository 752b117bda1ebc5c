# Shared by the scripts beside it; sourced, never run. Bash 3.2 is enough (macOS).

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# Results that cost minutes and outlive a clone: compiled tools, Python environments, CI's build folders.
cache="${HOLDFAST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast}"

say() { printf '[%s %3ds] %s\n' "${0##*/}" "$SECONDS" "$*"; }
die() { printf '[%s] error: %s\n' "${0##*/}" "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n1)" = "$1" ]; } # at_least MIN ACTUAL

# The first of the named programs that is there, as a path; fails when none is.
first_of() {
  local program
  for program in "$@"; do
    if have "$program"; then command -v "$program"; return 0; fi
  done
  return 1
}

# What scripts/setup found out. Every script that builds or tests loads it.
load_toolchain() {
  [ -f "$root/.toolchain.env" ] || die "nothing is set up yet: run scripts/setup build"
  # shellcheck source=/dev/null
  . "$root/.toolchain.env"
}

# Where cargo writes: the caller's choice, else target/ of this clone.
target_dir() { printf '%s' "${CARGO_TARGET_DIR:-$root/target}"; }

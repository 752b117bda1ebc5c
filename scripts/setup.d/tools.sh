# Tools written in Rust. Each version has its own folder in the cache, so that no program of the user is replaced.

leptos_version=0.3.11
deny_version=0.20.2
machete_version=0.9.2

# The program must be exactly the version of the crate.
bindgen_version="$(awk '$0 == "name = \"wasm-bindgen\"" { getline; gsub(/[^0-9.]/, ""); print; exit }' "$root/Cargo.lock")"

tool_dir() { printf '%s/tools/%s-%s' "$cache" "$1" "$2"; } # tool_dir CRATE VERSION

# All of them, there or not: what `setup lint` added must survive a later `setup build`.
tool_path() {
  printf '%s/bin:' "$(tool_dir wasm-bindgen-cli "$bindgen_version")" "$(tool_dir cargo-leptos "$leptos_version")" \
    "$(tool_dir cargo-deny "$deny_version")" "$(tool_dir cargo-machete "$machete_version")" "$helm_dir"
}

# tool CRATE VERSION PROGRAM [flags of cargo install]
tool() {
  local crate="$1" version="$2" program="$3"
  shift 3
  if ! "$program" --version 2>/dev/null | grep -qwF "$version"; then
    install_tool "$crate" "$version" "$@" || die "$crate $version cannot be installed: see above"
  fi
  say "$crate: $version"
}

install_tool() { # install_tool CRATE VERSION [flags]
  local crate="$1" version="$2" dir level=0
  dir="$(tool_dir "$crate" "$version")"
  shift 2
  if have cargo-binstall && cargo binstall --no-confirm --disable-telemetry --root "$dir" "$crate@$version" >/dev/null 2>&1; then
    return 0
  fi
  say "$crate: compiling $version (minutes, once)"
  [ "${SETUP_DEBUG_TOOLS:-1}" = 1 ] || level=3
  # They run for seconds and are compiled once: quick to build beats quick to run. LTO `off`, because `false` still
  # means thin-local. In / no project's .cargo/config.toml applies.
  (cd / && CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=$level CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_STRIP=none CARGO_TARGET_DIR="$scratch/tools" \
    cargo install -q --root "$dir" "$crate" --version "=$version" "$@")
}

setup_build_tools() {
  # Without --locked: the lockfile in this crate names a dependency version that was withdrawn.
  tool wasm-bindgen-cli "$bindgen_version" wasm-bindgen
  # no_downloads: a missing helper is a clear error instead of a download. One of its packages asks for a newer Rust than it needs.
  tool cargo-leptos "$leptos_version" cargo-leptos --locked --features no_downloads --ignore-rust-version
}

setup_lint_tools() {
  local part
  for part in clippy fmt; do
    cargo "$part" --version >/dev/null 2>&1 || rustup component add "${part/fmt/rustfmt}" >/dev/null 2>&1 ||
      die "cargo $part is missing: rustup component add ${part/fmt/rustfmt}"
  done
  tool cargo-deny "$deny_version" cargo-deny --locked
  tool cargo-machete "$machete_version" cargo-machete --locked
  setup_helm || say "helm: neither it nor Go is there, the chart goes unchecked"
  # Only a help for whoever changes these scripts.
  have shellcheck || apt_install shellcheck || say "shellcheck: not there, the scripts go unchecked"
}

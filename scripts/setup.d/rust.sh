# A C compiler and Rust with the wasm32 target: from rustup where it can be had, else the distribution's own.

wasm_target=wasm32-unknown-unknown
min_rust="$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")"
toolchain=  # the rustup toolchain to select; empty: whatever cargo and rustc are on PATH
rust_route=

# SQLite and ring are compiled from C.
setup_compiler() {
  have cc || apt_install gcc libc6-dev || die "a C compiler is missing: install gcc or clang"
}

rustc_version() { "$@" -vV 2>/dev/null | sed -n 's/^release: \([0-9.]*\).*/\1/p'; }

# True when "$@" (a rustc command) links an optimised wasm library, i.e. when its wasm32 standard library is there and fits.
wasm_works() {
  local dir="$scratch/wasm"
  mkdir -p "$dir"
  printf '#[no_mangle] pub extern "C" fn f(n: usize) -> usize { format!("{n}").len() }\n' >"$dir/t.rs"
  "$@" --edition 2021 --crate-type cdylib --target "$wasm_target" -Copt-level=z -Clto -Ccodegen-units=1 \
    "$dir/t.rs" -o "$dir/t.wasm" >/dev/null 2>&1
}

try_rustup() {
  have rustup || return 1
  local version plain=(env -u RUSTUP_TOOLCHAIN rustc)
  version="$(rustc_version "${plain[@]}")" || return 1
  [ -n "$version" ] && at_least "$min_rust" "$version" ||
    { say "rustup's Rust is ${version:-missing}, $min_rust is needed: rustup update stable"; return 1; }
  if ! wasm_works "${plain[@]}"; then
    say "rustup: adding the target $wasm_target"
    # Without a network rustup retries for minutes; the way by the distribution should not wait for that.
    RUSTUP_MAX_RETRIES=1 limit_seconds 90 env -u RUSTUP_TOOLCHAIN rustup target add "$wasm_target" || return 1
    wasm_works "${plain[@]}" || return 1
  fi
  rust_route=rustup
}

limit_seconds() { # limit_seconds N COMMAND...: without `timeout` (macOS) there is no limit
  local seconds="$1"
  shift
  if have timeout; then timeout "$seconds" "$@"; else "$@"; fi
}

# A distribution's own Rust that brings the target.
try_distribution() {
  ! have rustup && have rustc && have cargo || return 1
  at_least "$min_rust" "$(rustc_version rustc)" && wasm_works rustc || return 1
  rust_route=distribution
}

# Debian's rustc-web has no wasm32 standard library to install, but its source package has what is needed to build one.
try_debian() {
  local rustc=/usr/bin/rustc llvm
  apt_install rustc-web cargo-web rust-web-src rust-web-llvm rust-web-clippy rustfmt-web || return 1
  at_least "$min_rust" "$(rustc_version $rustc)" || return 1
  llvm="$($rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')"
  apt_install "lld-$llvm" || return 1
  wasm_works $rustc || build_wasm_std $rustc || return 1
  if have rustup; then # one name for the whole toolchain: cargo, rustc, clippy, rustfmt
    rustup run debian rustc -V >/dev/null 2>&1 || rustup toolchain link debian /usr || return 1
    toolchain=debian
  fi
  rust_route=debian
}

build_wasm_std() { # build_wasm_std RUSTC
  local rustc="$1" dir="$scratch/std" lib
  lib="$("$rustc" --print target-libdir --target "$wasm_target")"
  say "building the $wasm_target standard library of $("$rustc" -V) (about 2 minutes)"
  mkdir -p "$dir/src"
  : >"$dir/src/lib.rs"
  printf '[package]\nname = "stdseed"\nversion = "0.0.0"\nedition = "2021"\n[lib]\ncrate-type = ["cdylib"]\n[workspace]\n' >"$dir/Cargo.toml"
  # Bitcode must be embedded, else crates with `lto` cannot be linked against it.
  (cd "$dir" && PATH="/usr/bin:$PATH" RUSTC="$rustc" RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Cembed-bitcode=yes CARGO_TARGET_DIR="$dir/target" \
    /usr/bin/cargo build -q --release --target "$wasm_target" -Zbuild-std=std,panic_abort,panic_unwind,proc_macro,test) || return 1
  as_root rm -rf "$lib" && as_root mkdir -p "$lib" && as_root cp "$dir/target/$wasm_target/release/deps/"*.rlib "$lib/" || return 1
  wasm_works "$rustc"
}

setup_rust() {
  cd "$root" || return 1 # rustup chooses the toolchain by the folder
  case "${SETUP_RUST:-auto}" in
    rustup) try_rustup || true ;;
    debian) try_debian || true ;;
    auto)
      try_rustup || try_distribution || {
        if is_debian_like; then
          say "rustup cannot provide $wasm_target here: taking Debian's Rust"
          try_debian || true
        fi
      } ;;
    *) die "SETUP_RUST must be auto, rustup or debian" ;;
  esac
  [ -n "$rust_route" ] ||
    die "Rust $min_rust or newer with $wasm_target is missing: install rustup (https://rustup.rs), then: rustup target add $wasm_target"
  if [ -n "$toolchain" ]; then export RUSTUP_TOOLCHAIN="$toolchain"; else unset RUSTUP_TOOLCHAIN; fi
  [ "$rust_route" != debian ] || [ -n "$toolchain" ] || export PATH="/usr/bin:$PATH"
  say "rust: $(rustc -V), by $rust_route"
}

rust_environment() {
  if [ -n "$toolchain" ]; then echo "export RUSTUP_TOOLCHAIN=$toolchain"
  else
    echo "unset RUSTUP_TOOLCHAIN"
    [ "$rust_route" != debian ] || echo 'export PATH="/usr/bin:$PATH"'
  fi
}

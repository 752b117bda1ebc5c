# Debian's packages.

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif have sudo; then sudo "$@"
  else return 1; fi
}

is_debian_like() { have apt-get && have dpkg-query; }

apt_updated=
# Installs those of the named packages that are missing; fails where that is not possible or not wanted.
apt_install() {
  is_debian_like || return 1
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "${SETUP_APT:-1}" = 1 ] || return 1
  say "apt: installing ${missing[*]}"
  if [ -z "$apt_updated" ]; then
    as_root apt-get update -qq || return 1
    apt_updated=1
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$scratch/apt.log" 2>&1 ||
    { tail -n 5 "$scratch/apt.log" >&2; return 1; }
}

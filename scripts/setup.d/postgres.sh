# PostgreSQL's programs. The tests start a server of their own (scripts/with-postgres); none needs to run.

# The folder with initdb and pg_ctl; Debian keeps it off PATH.
postgres_bin() {
  local dir found=
  if have initdb && have pg_ctl; then dirname "$(command -v initdb)"; return; fi
  # Shell patterns sort 9 after 15; every version that is still packaged has two digits.
  for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin; do
    [ ! -x "$dir/initdb" ] || found="$dir"
  done
  [ -n "$found" ] && printf '%s\n' "$found"
}

setup_postgres() {
  if ! postgres_bin >/dev/null; then
    keep_debian_from_starting_postgres
    apt_install postgresql || true
  fi
  postgres_bin >/dev/null || die "PostgreSQL's programs (initdb, pg_ctl) are missing: install the PostgreSQL server package"
  say "postgresql: $("$(postgres_bin)/initdb" --version)"
}

# Debian's package creates and starts a database server when it is installed; nobody who runs tests asked for one.
keep_debian_from_starting_postgres() {
  local settings=/etc/postgresql-common/createcluster.d/holdfast.conf
  is_debian_like && [ "${SETUP_APT:-1}" = 1 ] && [ ! -e "$settings" ] || return 0
  as_root mkdir -p "${settings%/*}" && echo "create_main_cluster = false" | as_root tee "$settings" >/dev/null || true
}

# A Chromium for the browser tests: the system's, Debian's, or the one Playwright fetches.

system_browser() { first_of chromium chromium-browser google-chrome google-chrome-stable; }

setup_browser() {
  local browser
  if browser="$(system_browser)"; then
    say "browser: $browser"
  # Elsewhere the package `chromium` is a wrapper around a snap, which cannot run everywhere.
  elif grep -qs '^ID=debian' /etc/os-release && apt_install chromium; then
    say "browser: Debian's chromium"
  else
    say "browser: playwright install chromium"
    (cd "$root" && npx --no-install playwright install chromium) ||
      die "no Chromium for the browser tests: install chromium or google-chrome"
  fi
}

browser_environment() {
  local browser
  ! browser="$(system_browser)" || printf 'export CHROMIUM="%s"\n' "$browser"
}

# Helm, compiled once from the module that scripts/setup.d/helm pins. Its Kubernetes packages are of the version of the test cluster's, and
# compiled with the same flags, so Go compiles them once for both.

helm_version="$(sed -n 's/^.*helm.sh\/helm\/v[0-9]* v\([0-9.]*\).*$/\1/p' "$root/scripts/setup.d/helm/go.mod")"
helm_dir="$(tool_dir helm "$helm_version")"

# Takes a Helm that is there. Fails where there is neither that nor a Go that can compile one.
setup_helm() {
  if [ ! -x "$helm_dir/bin/helm" ]; then
    if have helm; then return 0; fi
    have go || return 1
    say "helm: compiling $helm_version (minutes, once)"
    mkdir -p "$helm_dir/bin"
    (cd "$root/scripts/setup.d/helm" && CGO_ENABLED=0 GOFLAGS="-mod=readonly -trimpath -buildvcs=false" GOTOOLCHAIN=local \
      go build -ldflags "-s -w" -o "$helm_dir/bin/helm" helm.sh/helm/v4/cmd/helm) || return 1
  fi
  say "helm: $helm_version"
}

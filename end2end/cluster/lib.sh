# Shared by the test cluster's scripts; sourced, never run.

. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

cluster="$root/end2end/cluster"
store="$cache/cluster" # built once: programs and node software
bin="$store/bin"
debian="$store/debian" # Debian's packages, unpacked, not installed

# A running cluster's state, certificates and logs. One per clone; its name is also what its cgroups are called. Short, because
# a socket's path may have 107 bytes.
run_dir="${HOLDFAST_CLUSTER_RUN:-/tmp/holdfast-cluster-$(printf '%s' "$root" | cksum | cut -d' ' -f1)}"
pki="$run_dir/pki"
logs="$run_dir/log"
id="${run_dir##*/}"
marker=holdfast-test-cluster # a file that says that the folder may be removed

nodes=2
address=10.99.0.1 # API server, DNS, operator, and whatever runs beside the cluster: the console under test
second_address=10.99.0.2 # for a second console
node_address() { printf '10.99.0.%d' $((10 + $1)); }

train_image=localhost/train:1          # the machine's user space: sh, python3, PyTorch
agent_image=localhost/holdfast-agent:1 # /holdfast-agent and nothing else
fake_ray_image=localhost/fake-ray:1    # the same with a stand-in for `ray` (parts/fake_ray)
server_image=localhost/holdfast:1      # /holdfast, and the machine's programs
pause_image=localhost/pause:1

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local limit="$1" what="$2" began="$SECONDS"
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $((SECONDS - began)) -lt "$limit" ] || die "not within $limit s: $what"
    sleep 0.3
  done
}

ctr() { "$debian/usr/bin/ctr" -a "$run_dir/node$1/containerd.sock" -n k8s.io "${@:2}"; } # ctr NODE ARGUMENTS...

# The cluster's first process, as the machine sees it; fails where none runs.
first_process() {
  local pid
  pid="$(cat "$run_dir/init.pid" 2>/dev/null)" && grep -qsF "$cluster/parts/inside.sh" "/proc/$pid/cmdline" && printf '%s' "$pid"
}

# Whether this process is one of the cluster's. Only there do the numbers in $run_dir/pids mean its components.
inside() { [ "$(readlink /proc/self/ns/pid)" = "$(cat "$run_dir/inside" 2>/dev/null)" ]; }

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2; exit 2; }

#!/usr/bin/env bash
# The first process of the cluster's namespaces: mounts, network, components in order; then it waits. Its end ends them all.
set -euo pipefail

. "$(dirname "$0")/../lib.sh"
export KUBECONFIG="$pki/admin.kubeconfig"
kubectl="$bin/kubectl"

# Node software writes to the machine's folders: into layers of the cluster's own, gone with it.
private_folders() {
  mount --make-rprivate /
  mkdir -p "$run_dir/layers"
  mount -t tmpfs -o mode=755 none "$run_dir/layers"
  local folder layer
  for folder in /run /var/lib /var/log; do
    layer="$run_dir/layers$folder"
    mkdir -p "$layer/upper" "$layer/work"
    mount -t overlay -o "lowerdir=$folder,upperdir=$layer/upper,workdir=$layer/work" none "$folder"
  done
  mkdir -p /run/netns
}

# The kubelet would change these for the whole machine; it reads what it wants and writes nothing.
private_kernel_settings() {
  local setting file
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 \
    kernel/keys/root_maxbytes=25000000; do
    file="$run_dir/layers/sys/${setting%=*}"
    mkdir -p "${file%/*}"
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${setting%=*}"
  done
}

names() {
  printf 'nameserver %s\nsearch svc.cluster.local cluster.local\n' "$address" >"$run_dir/resolv.conf"
  mount --bind "$run_dir/resolv.conf" "$(readlink -f /etc/resolv.conf)"
}

# One bridge carries the addresses of the API server and of the nodes; a veth end keeps it up.
network() {
  local n
  ip link set lo up
  ip link add nodes0 type bridge
  ip address add "$address/24" dev nodes0
  ip address add "$second_address/24" dev nodes0
  for n in $(seq "$nodes"); do ip address add "$(node_address "$n")/24" dev nodes0; done
  ip link add up0 type veth peer name up1
  ip link set up0 master nodes0
  ip link set up0 up
  ip link set up1 up
  ip link set nodes0 up
  ip route add default via "$address"
  echo 1 >/proc/sys/net/ipv4/ip_forward
}

# One cgroup per node, or the kubelets would remove each other's pods.
cgroups() {
  local n hierarchy group file
  for n in $(seq "$nodes"); do
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then # version 2
      mkdir -p "/sys/fs/cgroup/$id-n$n"
      continue
    fi
    for hierarchy in /sys/fs/cgroup/*/; do
      [ -e "$hierarchy/tasks" ] || continue
      group="$hierarchy$id-n$n"
      mkdir -p "$group"
      # Every process outside weighs 1024: without this, pods starve beside a compiler.
      [ ! -e "$group/cpu.shares" ] || echo 16384 >"$group/cpu.shares"
      for file in cpuset.cpus cpuset.mems; do [ ! -e "$group/$file" ] || cat "$hierarchy/$file" >"$group/$file"; done
    done
  done
}

components() {
  local n
  "$cluster/component" start etcd
  "$cluster/component" start kube-apiserver
  wait_for 120 "the API server is ready" "$kubectl" get --raw /readyz
  say "API server ready"
  "$cluster/component" start kube-controller-manager
  "$cluster/component" start kube-scheduler
  "$cluster/component" start coredns
  for n in $(seq "$nodes"); do "$cluster/component" boot-node "$n"; done
  "$cluster/images"
  "$cluster/parts/operator.sh"
  "$cluster/parts/kuberay.sh"
  say "operators ready"
  for n in $(seq "$nodes"); do wait_for 120 "node n$n registers" "$kubectl" get node "n$n"; done
  wait_for 120 "the nodes are ready" "$kubectl" wait --for=condition=Ready node --all --timeout=1s
  wait_for 60 "the default service account" "$kubectl" -n default get serviceaccount default
  say "nodes ready"
}

readlink /proc/self/ns/pid >"$run_dir/inside"
private_folders
private_kernel_settings
names
network
cgroups
components
touch "$run_dir/ready"
while :; do # it must stay, to reap what is left to it
  sleep 3600 &
  wait $! || true
done

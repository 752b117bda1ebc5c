#!/usr/bin/env bash
# launch.sh COMPONENT: becomes one component of the cluster, within its namespaces (see component).
set -euo pipefail

. "$(dirname "$0")/../lib.sh"
export PATH="$bin:$debian/usr/bin:$debian/usr/sbin:$PATH"
unset TMPDIR # whoever starts it may have one that goes before the cluster does
name="$1"
n="${name##*-}" # of containerd-N, kubelet-N
node="$run_dir/node$n"

etcd() {
  exec etcd --data-dir "$run_dir/etcd" --unsafe-no-fsync --log-level warn --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
}

# A lost node's pods are given up after 3 s (usually 300), so that tests need not wait. What service accounts ask for is written down, but
# for the cluster's own: so what a server under test costs is counted by whom it costs.
kube_apiserver() {
  cat >"$run_dir/audit.yaml" <<'CONFIG'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: None, userGroups: ["system:serviceaccounts:kube-system"]}
  - {level: Metadata, userGroups: ["system:serviceaccounts"]}
  - {level: None}
CONFIG
  exec kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --secure-port=6443 --advertise-address="$address" \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
    --service-account-key-file="$pki/accounts.pub" --service-account-signing-key-file="$pki/accounts.key" \
    --service-account-issuer=https://kubernetes.default.svc --service-cluster-ip-range=10.96.0.0/16 \
    --authorization-mode=Node,RBAC --allow-privileged=true --enable-aggregator-routing=true \
    --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
    --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
    --default-not-ready-toleration-seconds=3 --default-unreachable-toleration-seconds=3 --profiling=false \
    --audit-policy-file="$run_dir/audit.yaml" --audit-log-path="$logs/audit.log"
}

# Clients that limit themselves would make thousands of pods a matter of minutes, of which nothing is learnt about anybody else.
unlimited=(--kube-api-qps=1000 --kube-api-burst=2000)

# A node that is silent for 8 s is lost (usually 50).
kube_controller_manager() {
  exec kube-controller-manager --kubeconfig="$pki/controller-manager.kubeconfig" --leader-elect=false \
    --use-service-account-credentials=true --service-account-private-key-file="$pki/accounts.key" --root-ca-file="$pki/ca.crt" \
    --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
    --node-monitor-period=1s --node-monitor-grace-period=8s --profiling=false "${unlimited[@]}"
}

kube_scheduler() {
  exec kube-scheduler --kubeconfig="$pki/scheduler.kubeconfig" --leader-elect=false --profiling=false "${unlimited[@]}"
}

coredns() {
  cat >"$run_dir/Corefile" <<CONFIG
.:53 {
  bind $address
  errors
  ready $address:8181
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $pki/admin.kubeconfig
    ttl 1
  }
}
CONFIG
  exec coredns -conf "$run_dir/Corefile"
}

# Every container gets the folders of $run_dir/visible, read-only, from the runtime: nothing of them is in the images.
# restrict_oom_score_adj: without it no pod starts where the machine is a container that lacks CAP_SYS_RESOURCE.
containerd() {
  local snapshotter=overlayfs
  [ "$(stat -f -c %T "$run_dir")" != overlayfs ] || snapshotter=native # overlayfs does not go on itself
  mkdir -p "$node"/{containerd,state,cni,addresses,opt}
  command ctr oci spec | python3 "$cluster/parts/base_spec.py" "$run_dir/visible" >"$node/base-spec.json"
  cat >"$node/containerd.toml" <<CONFIG
version = 2
root = "$node/containerd"
state = "$node/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "$node/containerd.sock"
[ttrpc]
  address = "$node/containerd.sock.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "$node/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "$node/base-spec.json"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "$debian/usr/sbin/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$debian/usr/lib/cni"
    conf_dir = "$node/cni"
CONFIG
  cat >"$node/cni/10-pods.conflist" <<CONFIG
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
 "ipam": {"type": "host-local", "dataDir": "$node/addresses", "routes": [{"dst": "0.0.0.0/0"}],
  "ranges": [[{"subnet": "10.88.0.0/16", "rangeStart": "10.88.$n.2", "rangeEnd": "10.88.$n.250", "gateway": "10.88.0.1"}]]}}]}
CONFIG
  exec containerd -c "$node/containerd.toml"
}

# A node offers two processors whatever the machine has, so that tests can fill it.
kubelet() {
  local spare=$(($(nproc) - 2))
  mkdir -p "$node"/{kubelet,pods,plugins}
  cat >"$node/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $pki/node$n.crt
tlsPrivateKeyFile: $pki/node$n.key
address: $(node_address "$n")
healthzBindAddress: $(node_address "$n")
containerRuntimeEndpoint: unix://$node/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$id-n$n
failCgroupV1: false
failSwapOn: false
podLogsDir: $node/pods
volumePluginDir: $node/plugins
clusterDNS: [$address]
clusterDomain: cluster.local
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageMinimumGCAge: 24h
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 10
systemReserved: {cpu: "$((spare > 0 ? spare : 0))"}
CONFIG
  exec kubelet --config="$node/kubelet.yaml" --kubeconfig="$pki/node$n.kubeconfig" --hostname-override="n$n" \
    --node-ip="$(node_address "$n")" --root-dir="$node/kubelet" --cert-dir="$node/kubelet/pki"
}

# The operator reads its certificate below /tmp: it gets a /tmp of its own, with the folder it is started in at that place.
training_operator() {
  mkdir -p "$run_dir/training-operator"
  cd "$run_dir/training-operator"
  # As the operator's own, which wants an image with BusyBox.
  cat >wait.yaml <<'CONFIG'
- name: init-pytorch
  image: {{.InitContainerImage}}
  imagePullPolicy: IfNotPresent
  resources:
    limits: {cpu: 100m, memory: 20Mi}
    requests: {cpu: 50m, memory: 10Mi}
  command: [sh, -c, "for i in $(seq {{.MaxTries}}); do getent hosts {{.MasterAddr}} && exit 0; echo waiting for master; sleep 2; done; exit 1"]
CONFIG
  cp "$pki/training-operator.kubeconfig" kubeconfig
  exec 9<"$bin/training-operator"
  export KUBECONFIG=kubeconfig MY_POD_NAMESPACE=kubeflow
  exec unshare --mount bash -c 'mount -t tmpfs none /tmp && mkdir /tmp/k8s-webhook-server && mount --no-canonicalize --bind . /tmp/k8s-webhook-server && exec "$@"' \
    training-operator /proc/self/fd/9 --enable-scheme=pytorchjob --pytorch-init-container-image="$train_image" \
    --pytorch-init-container-template-file=wait.yaml \
    --metrics-bind-address=127.0.0.1:8080 --health-probe-bind-address=127.0.0.1:8081 --webhook-server-port=9443 \
    --controller-threads=8 "${unlimited[@]}"
}

# Its probes ask Ray's own health pages with wget, which the stand-in for Ray does not have.
kuberay() {
  export KUBECONFIG="$pki/kuberay.kubeconfig" ENABLE_PROBES_INJECTION=false
  exec kuberay --enable-leader-election=false --metrics-addr=127.0.0.1:8090 --health-probe-bind-address=127.0.0.1:8091
}

# The kubelets of simulated nodes: their leases, what becomes of their pods, and the output of those, which is the same file for all.
kwok() {
  touch "$run_dir/simulated.log"
  cat >"$run_dir/kwok.yaml" <<CONFIG
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec: {logs: [{logsFile: "$run_dir/simulated.log"}]}
CONFIG
  local stage configs=("--config=$run_dir/kwok.yaml")
  for stage in "$store"/kwok/*.yaml; do configs+=("--config=$stage"); done
  exec kwok --kubeconfig="$pki/admin.kubeconfig" "${configs[@]}" --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake \
    --node-ip="$address" --node-port=10247 --server-address="$address:10247" --node-lease-duration-seconds=16 \
    --tls-cert-file="$pki/simulated-nodes.crt" --tls-private-key-file="$pki/simulated-nodes.key" --v=WARN
}

case "$name" in
  etcd | coredns | kuberay | kwok) "$name" ;;
  kube-apiserver | kube-controller-manager | kube-scheduler | training-operator) "${name//-/_}" ;;
  containerd-[12] | kubelet-[12]) "${name%-*}" ;;
  *) die "no such component: $name" ;;
esac

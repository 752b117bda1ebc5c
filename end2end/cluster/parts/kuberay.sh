#!/usr/bin/env bash
# Installs KubeRay's operator and starts it: a process beside the API server, with the rights that its own manifests define.
set -euo pipefail

. "$(dirname "$0")/../lib.sh"
manifests="$store/kuberay"
kubectl="$bin/kubectl"
apply() { "$kubectl" apply --server-side -f - >/dev/null; }

for kind in rayclusters rayjobs rayservices; do apply <"$manifests/$kind.yaml"; done
apply <"$manifests/role.yaml"
apply <<YAML
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kuberay}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kuberay-operator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: kuberay}]
YAML
"$cluster/component" start kuberay
wait_for 60 "KubeRay is ready" curl -sf http://127.0.0.1:8091/readyz

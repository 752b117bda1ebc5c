#!/usr/bin/env bash
# Installs the Kubeflow training operator and starts it: a process beside the API server, with the rights and the webhook that
# its own manifests define.
set -euo pipefail

. "$(dirname "$0")/../lib.sh"
manifests="$store/training-operator"
kubectl="$bin/kubectl"
apply() { "$kubectl" apply --server-side -f - >/dev/null; }

apply <"$manifests/crd.yaml"
apply <"$manifests/role.yaml"
# The webhook is reached through a Service whose only endpoint is the process.
apply <<YAML
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: training-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: training-operator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: training-operator}]
---
apiVersion: v1
kind: Namespace
metadata: {name: kubeflow}
---
apiVersion: v1
kind: Secret
metadata: {name: training-operator-webhook-cert, namespace: kubeflow}
---
apiVersion: v1
kind: Service
metadata: {name: training-operator, namespace: kubeflow}
spec: {ports: [{name: webhook-server, port: 443, targetPort: 9443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: training-operator-process, namespace: kubeflow, labels: {kubernetes.io/service-name: training-operator}}
addressType: IPv4
ports: [{name: webhook-server, port: 9443, protocol: TCP}]
endpoints: [{addresses: ["$address"], conditions: {ready: true}}]
YAML

# Only the PyTorchJobs' webhook: the operator serves no other kind here.
"$kubectl" create --dry-run=client -o json -f "$manifests/webhook.yaml" | python3 -c '
import json, sys
config = json.load(sys.stdin)
config["metadata"] = {"name": "validator.training-operator.kubeflow.org"}
config["webhooks"] = [w for w in config["webhooks"] if w["name"].startswith("validator.pytorchjob.")]
for webhook in config["webhooks"]:
    webhook["clientConfig"]["service"].update(name="training-operator", namespace="kubeflow")
json.dump(config, sys.stdout)' | apply
"$cluster/component" start training-operator

# It makes its certificate, keeps it in the Secret and waits until it appears as files, as a Secret's volume has them: all at
# once, for it exits when it finds the certificate without its key.
secret() { "$kubectl" -n kubeflow get secret training-operator-webhook-cert -o "jsonpath={.data.${1/./\\.}}"; }
secret_filled() { [ -n "$(secret tls.crt)" ]; }
webhook_ready() {
  [ -n "$("$kubectl" get validatingwebhookconfiguration validator.training-operator.kubeflow.org -o 'jsonpath={.webhooks[0].clientConfig.caBundle}')" ]
}
wait_for 60 "the webhook's certificate" secret_filled
certificates="$run_dir/training-operator/serving-certs"
mkdir -p "$certificates.new"
for file in ca.crt tls.crt tls.key; do secret "$file" | base64 -d >"$certificates.new/$file"; done
mv "$certificates.new" "$certificates"
wait_for 60 "the webhook's authority in its configuration" webhook_ready
wait_for 60 "the training operator is ready" curl -sf http://127.0.0.1:8081/readyz

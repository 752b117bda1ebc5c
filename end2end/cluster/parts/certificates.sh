#!/usr/bin/env bash
# Certificates and kubeconfigs of one cluster: one authority for everything, valid for 30 days.
set -euo pipefail

. "$(dirname "$0")/../lib.sh"
mkdir -p "$pki"
cd "$pki"
elliptic=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)

# issue NAME SUBJECT [ALTERNATIVE NAMES]
issue() {
  openssl req "${elliptic[@]}" -keyout "$1.key" -out request -subj "$2" 2>/dev/null
  { echo extendedKeyUsage=serverAuth,clientAuth; [ -z "${3:-}" ] || echo "subjectAltName=$3"; } >extensions
  openssl x509 -req -in request -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile extensions -out "$1.crt" 2>/dev/null
  rm request extensions
}

kubeconfig() {
  cat >"$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://$address:6443", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: "$1", user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
contexts: [{name: test, context: {cluster: test, user: "$1"}}]
current-context: test
YAML
}

user() { issue "$1" "$2" "${3:-}"; kubeconfig "$1"; }

openssl req -x509 "${elliptic[@]}" -keyout ca.key -out ca.crt -days 30 -subj /CN=holdfast-test-cluster 2>/dev/null
issue apiserver /CN=kube-apiserver "IP:127.0.0.1,IP:10.96.0.1,IP:$address,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
issue kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
issue simulated-nodes /CN=simulated-nodes "IP:$address"
user admin /O=system:masters/CN=admin
user controller-manager /CN=system:kube-controller-manager
user scheduler /CN=system:kube-scheduler
user training-operator /CN=training-operator
user kuberay /CN=kuberay
user holdfast /CN=holdfast # may do nothing until a test binds a role to it
for n in $(seq "$nodes"); do user "node$n" "/O=system:nodes/CN=system:node:n$n" "IP:$(node_address "$n"),DNS:n$n"; done

openssl genrsa -out accounts.key 2048 2>/dev/null
openssl rsa -in accounts.key -pubout -out accounts.pub 2>/dev/null

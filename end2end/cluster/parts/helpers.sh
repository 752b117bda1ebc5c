# What checks and record share; sourced within `in`. The caller sets namespace.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
[ -n "${HOLDFAST_TEST_CLUSTER:-}" ] || die "run it within the cluster: end2end/cluster/in $0"

k() { kubectl -n "$namespace" "$@"; }
field() { k get "$1" -o "jsonpath=$2" 2>/dev/null || true; }

# until_field SECONDS OBJECT JSONPATH PATTERN: waits until the field matches the bash pattern.
until_field() {
  local began="$SECONDS" value
  # shellcheck disable=SC2053
  until value="$(field "$2" "$3")"; [[ "$value" == $4 ]]; do
    [ $((SECONDS - began)) -lt "$1" ] || die "$2 $3 is '$value', not '$4', after $1 s"
    sleep 0.3
  done
}

condition() { printf '{.status.conditions[?(@.type=="%s")].status}' "$1"; }
json() { python3 -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$1"; }

fresh_namespace() {
  kubectl delete namespace "$namespace" --ignore-not-found >/dev/null 2>&1
  kubectl create namespace "$namespace" >/dev/null
  wait_for 60 "the service account of $namespace" k get serviceaccount default
}

# pod NAME COMMAND [LINE OF THE SPEC] [LINE OF THE CONTAINER]
pod() {
  k create -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: "$1"}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  ${3:-}
  containers:
    - name: main
      image: $train_image
      imagePullPolicy: Never
      command: [sh, -c, $(json "$2")]
      ${4:-}
YAML
}

# ray NAME ENTRYPOINT [LINE OF THE SPEC] : a RayJob of a head and a worker.
ray() {
  local container="{name: ray, image: $fake_ray_image, imagePullPolicy: Never, resources: {requests: {cpu: 50m}}}"
  local template="{spec: {restartPolicy: Never, terminationGracePeriodSeconds: 5, containers: [$container]}}"
  k create -f - >/dev/null <<YAML
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: "$1"}
spec:
  entrypoint: $(json "$2")
  jobId: "$1"
  submissionMode: HTTPMode
  backoffLimit: 0
  shutdownAfterJobFinishes: true
  ttlSecondsAfterFinished: 600
  ${3:-}
  rayClusterSpec:
    headGroupSpec: {rayStartParams: {dashboard-host: 0.0.0.0}, template: $template}
    workerGroupSpecs: [{groupName: workers, replicas: 1, minReplicas: 1, maxReplicas: 1, rayStartParams: {}, template: $template}]
YAML
}

# job NAME MASTER'S-COMMAND WORKERS'-COMMAND [WORKERS] [LINE OF THE PODS' SPEC] [LINE OF THE CONTAINER] [RUN POLICY]
# No two pods of a job are on one node where that can be.
job() {
  replicas() {
    cat <<YAML
      replicas: $2
      restartPolicy: ${restart_policy:-Never}
      template:
        metadata: {labels: {job: "$1"}}
        spec:
          terminationGracePeriodSeconds: 5
          topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {job: "$1"}}}]
          $4
          containers:
            - name: pytorch
              image: $train_image
              imagePullPolicy: Never
              command: [sh, -c, $(json "$3")]
              $5
YAML
  }
  k apply --server-side -f - >/dev/null <<YAML
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: "$1"}
spec:
  runPolicy: {cleanPodPolicy: None${7:+, $7}}
  pytorchReplicaSpecs:
    Master:
$(replicas "$1" 1 "$2" "${5:-}" "${6:-}")
    Worker:
$(replicas "$1" "${4:-1}" "$3" "${5:-}" "${6:-}")
YAML
}

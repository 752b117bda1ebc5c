#!/usr/bin/env python3
"""Reads an object or a list of the API server from standard input, writes it without what no program of ours looks at.

With --states: reads the objects of a watch, one after the other, and writes a list of those that differ from the one before by
more than their version; only the first has its spec."""

import json
import re
import sys

# Of every object; of a pod's spec; of its containers.
METADATA = ("managedFields", "annotations", "generation", "generateName")
SPEC = (
    "dnsPolicy enableServiceLinks preemptionPolicy schedulerName securityContext serviceAccount serviceAccountName "
    "tolerations topologySpreadConstraints volumes podCIDR podCIDRs sessionAffinity internalTrafficPolicy ipFamilies "
    "ipFamilyPolicy"
).split()
CONTAINER = ("terminationMessagePath", "terminationMessagePolicy", "volumeMounts")
STATUS = ("images", "nodeInfo", "daemonEndpoints", "runtimeHandlers", "features", "hostIPs", "podIPs", "qosClass")
EVENT = ("metadata", "reportingInstance", "action", "eventTime", "series")


def drop(value, names):
    for name in names:
        value.pop(name, None)


def trim(value):
    if value.get("kind") == "List":
        value["metadata"] = {}
        value["items"] = sorted(
            (trim(item) for item in value["items"]), key=lambda item: item.get("firstTimestamp") or item.get("eventTime") or ""
        )
        return value
    drop(value.get("metadata", {}), METADATA)
    if value.get("kind") == "Event":
        keep = {name: value["metadata"][name] for name in ("name", "namespace", "uid")}
        drop(value, [name for name in EVENT if value.get(name) in (None, "")])
        value["metadata"] = keep
        return value
    spec = value.get("spec") or {}
    replicas = list(spec.get("pytorchReplicaSpecs", {}).values())
    cluster = spec.get("rayClusterSpec")
    if cluster:
        replicas += [cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])]
        # It repeats what the cluster itself says.
        value.get("status", {}).pop("rayClusterStatus", None)
    for spec in [spec] + [replica["template"]["spec"] for replica in replicas]:
        drop(spec, SPEC)
        for container in spec.get("containers", []) + spec.get("initContainers", []):
            drop(container, CONTAINER)
    status = value.get("status")
    if isinstance(status, dict):
        drop(status, STATUS)
        for container in status.get("containerStatuses", []) + status.get("initContainerStatuses", []):
            drop(container, ("user", "volumeMounts", "allocatedResources", "resources"))
    return value


def states(text):
    decoder, position, found = json.JSONDecoder(), 0, []
    while text[position:].strip():
        position += len(text[position:]) - len(text[position:].lstrip())
        value, position = decoder.raw_decode(text, position)
        value = trim(value)
        without_version = json.loads(json.dumps(value))
        without_version["metadata"].pop("resourceVersion")
        if not found or found[-1][0] != without_version:
            found.append((without_version, value))
    for _, value in found[1:]:
        value["spec"] = {name: what for name, what in value["spec"].items() if name == "nodeName"}
    return [value for _, value in found]


text = sys.stdin.read()
result = states(text) if sys.argv[1:] == ["--states"] else trim(json.loads(text))
# The folder of the cluster is another on every machine.
print(re.sub(r"/tmp/holdfast-cluster-\d+", "/run/cluster", json.dumps(result, indent=1, sort_keys=True)))

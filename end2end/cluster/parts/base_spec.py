#!/usr/bin/env python3
"""The runtime's default for containers (standard input: `ctr oci spec`), with the machine's folders that the file named as
argument lists, mounted read-only at their own places, and with as many open files as the machine allows."""

import json
import os
import sys

spec = json.load(sys.stdin)
spec["process"].pop("rlimits", None)
with open(sys.argv[1], encoding="utf-8") as file:
    for path in file.read().split("\n"):
        if path and os.path.exists(path):
            spec["mounts"].append({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]})
json.dump(spec, sys.stdout)

#!/usr/bin/env python3
"""Writes an image of one layer as an archive that `ctr images import` reads."""

import argparse
import hashlib
import io
import json
import os
import platform
import tarfile

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out")
parser.add_argument("name")
parser.add_argument("--dir", action="append", default=[], metavar="PATH[:MODE]")
parser.add_argument("--link", action="append", default=[], metavar="TARGET=PATH")
parser.add_argument("--add", action="append", default=[], metavar="FILE=PATH")
parser.add_argument("--text", action="append", default=[], metavar="PATH=CONTENT")
parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
parser.add_argument("--entrypoint", action="append", metavar="WORD")
parser.add_argument("--cmd", action="append", metavar="WORD")
options = parser.parse_args()


def entry(path, **attributes):
    info = tarfile.TarInfo(path.strip("/"))
    info.mode = 0o755
    for name, value in attributes.items():
        setattr(info, name, value)
    return info


def write_layer(tar):
    for item in options.dir:
        path, _, mode = item.partition(":")
        tar.addfile(entry(path, type=tarfile.DIRTYPE, mode=int(mode or "755", 8)))
    for item in options.link:
        target, _, path = item.partition("=")
        tar.addfile(entry(path, type=tarfile.SYMTYPE, linkname=target))
    for item in options.add:
        source, _, path = item.partition("=")
        with open(source, "rb") as file:
            tar.addfile(entry(path, size=os.path.getsize(source)), file)
    for item in options.text:
        path, _, text = item.partition("=")
        data = text.replace("\\n", "\n").encode()
        tar.addfile(entry(path, size=len(data), mode=0o644), io.BytesIO(data))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


buffer = io.BytesIO()
with tarfile.open(fileobj=buffer, mode="w") as layer_tar:
    write_layer(layer_tar)
layer = buffer.getvalue()
config = json.dumps(
    {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": options.env, "Entrypoint": options.entrypoint, "Cmd": options.cmd, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha256(layer)]},
    }
).encode()
config_name = sha256(config) + ".json"
manifest = json.dumps([{"Config": config_name, "RepoTags": [options.name], "Layers": ["layer.tar"]}]).encode()
with tarfile.open(options.out + ".new", "w") as tar:
    for member, content in ((config_name, config), ("layer.tar", layer), ("manifest.json", manifest)):
        tar.addfile(entry(member, size=len(content), mode=0o644), io.BytesIO(content))
os.rename(options.out + ".new", options.out)

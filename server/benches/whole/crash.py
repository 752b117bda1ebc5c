"""One rank that does nothing until it is told to crash.

    crash.py DIRECTORY        as a rank of Holdfast or torchrun
    crash.py DIRECTORY NAME   writes the moment of its first line to NAME and ends

In the directory, each moment in microseconds since 1970:
    began-<launch>-<rank>   when the first line ran
    crash-<launch>          made by who wants rank 1 to crash
    died-<launch>           when it did
"""
import time

began = time.time_ns()  # before anything that takes time

import os
import signal
import sys

CRASHING_RANK = "1"


def write(path, moment):
    """Whole or not at all: it is read as soon as it is there."""
    with open(path + ".part", "w") as file:
        file.write(str(moment // 1000))
    os.rename(path + ".part", path)


directory = sys.argv[1]
if len(sys.argv) > 2:
    write(os.path.join(directory, sys.argv[2]), began)
    sys.exit()

rank = os.environ["RANK"]
launch = int(os.environ.get("HOLDFAST_LAUNCH") or os.environ["TORCHELASTIC_RESTART_COUNT"])
write(os.path.join(directory, f"began-{launch}-{rank}"), began)
# A new step each time: the same error without progress would not be restarted.
print(f"holdfast step={launch + 1}", flush=True)
while rank != CRASHING_RANK:
    signal.pause()
while not os.path.exists(os.path.join(directory, f"crash-{launch}")):
    time.sleep(0.005)
write(os.path.join(directory, f"died-{launch}"), time.time_ns())
os._exit(1)

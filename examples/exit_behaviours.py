#!/usr/bin/env python3
"""Makes steps for ever and answers Exit ckpt Notification in the way that EXIT_BEHAVIOUR names, well or badly. For tests.

    HOLDFAST_EXIT_PORT=9000 EXIT_BEHAVIOUR=slow python3 examples/exit_behaviours.py

EXIT_RANK limits it to one rank; the others save. Of the processes of a replica only the first is asked. With EXIT_IGNORES_TERM it has
to be killed.
"""

import json
import os
import signal
import socket
import sys
import threading
import time

SLOW_SECONDS = 0.7
MESSAGE = "no space left on device"
JSON = "application/json"


def answer(code="200 OK", kind=JSON, body=b"{}", more=""):
    kind = f"Content-Type: {kind}\r\n" if kind else ""
    return f"HTTP/1.1 {code}\r\n{kind}{more}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def status(**fields):
    return answer(body=json.dumps(fields).encode())


def endless(connection):
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nConnection: close\r\n\r\n".encode())
    while True:
        connection.sendall(b" " * 1024)


def hang(connection):
    time.sleep(3600)


class Program:
    """What it has reached and what it was told."""

    def __init__(self):
        self.step = 0
        self.told_at = None

    def saved(self):
        return status(status="saved", step=self.step, path=f"/checkpoints/{self.step}")

    def slow(self):
        done = time.monotonic() >= self.told_at + SLOW_SECONDS
        return self.saved() if done else status(status="saving")


def die(_):
    os._exit(9)


def leave(program):
    """Says that it has saved, and ends with that."""

    def say_and_end(connection):
        connection.sendall(program.saved())
        os._exit(0)

    return say_and_end


# What a behaviour does with a notification (None: takes note of it), and with a question. Bytes are sent, a function is given the
# connection.
BEHAVIOURS = {
    "saves": (None, Program.saved),
    "saves_without_step": (None, lambda p: status(status="saved")),
    "slow": (None, Program.slow),
    "fails": (None, lambda p: status(status="failed", message=MESSAGE)),
    "never_saves": (None, lambda p: status(status="saving", message="1 of 2 files")),
    "never_begins": (None, lambda p: status(status="idle")),
    "closed_port": (None, None),
    "hangs": (lambda p: hang, None),
    "hangs_later": (None, lambda p: hang),
    "endless_status": (None, lambda p: endless),
    "big_body": (None, lambda p: answer(body=b" " * (10 << 20))),
    "redirect": (lambda p: answer("302 Found", more="Location: http://127.0.0.1:1/\r\n"), None),
    "redirect_later": (None, lambda p: answer("307 Temporary Redirect", more="Location: /elsewhere\r\n")),
    "500": (lambda p: answer("500 Internal Server Error"), None),
    "500_later": (None, lambda p: answer("500 Internal Server Error")),
    "not_found": (lambda p: answer("404 Not Found"), None),
    "wrong_type": (None, lambda p: answer(kind="text/html", body=b'{"status":"saved"}')),
    "wrong_json": (None, lambda p: answer(body=b'{"status":"sav')),
    "wrong_word": (None, lambda p: status(status="done")),
    "dies_when_told": (die, None),
    "dies_while_saving": (None, die),
    "saves_and_exits": (None, leave),
}


def serve(program, behaviour, port):
    on_notice, on_question = BEHAVIOURS[behaviour]
    listener = socket.create_server(("127.0.0.1", port))

    def handle(connection):
        with connection:
            request = connection.makefile("rb")
            line = request.readline().decode("latin-1")
            length = 0
            while (header := request.readline().strip().lower()) not in (b"", b"\r\n"):
                if header.startswith(b"content-length:"):
                    length = min(int(header.split(b":")[1]), 1 << 16)
            request.read(length)
            if line.startswith("POST"):
                program.told_at = time.monotonic()
                print("told to save", flush=True)
                does = on_notice(program) if on_notice else answer()
            else:
                does = on_question(program) if on_question else answer("404 Not Found")
            try:
                does(connection) if callable(does) else connection.sendall(does)
            except OSError:
                pass  # whoever asked has gone

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=handle, args=(connection,), daemon=True).start()


def main():
    behaviour = os.environ.get("EXIT_BEHAVIOUR", "saves")
    if behaviour not in BEHAVIOURS:
        sys.exit(f"exit_behaviours.py: EXIT_BEHAVIOUR: {behaviour!r} is none of {', '.join(BEHAVIOURS)}")
    rank = os.environ.get("RANK", "0")
    if os.environ.get("EXIT_RANK", rank) != rank:
        behaviour = "saves"
    if os.environ.get("EXIT_IGNORES_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    program = Program()
    port = os.environ.get("HOLDFAST_EXIT_PORT")
    if port and behaviour != "closed_port":
        threading.Thread(target=serve, args=(program, behaviour, int(port)), daemon=True).start()
    while True:
        program.step += 1
        print(f"holdfast step={program.step} loss=1.0", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main()

"""Answers Exit ckpt Notification, so that a program saves before it is stopped, deleted or preempted. Copy it beside a program of
yours; it needs only Python 3.8 or newer.

    notice = holdfast_exit.listen()          # answers from a thread; a no-operation where nobody will ask
    for step in ...:
        ...
        if notice.asked():                   # at a moment at which the state is whole
            notice.saved(step, save(...))    # or notice.failed("why")

Only the first process of a replica is asked, so ranks have to agree on the step at which they save: see train.py and ddp.py, where
each step's collective carries the question along. Nothing ends by itself after a save: the program goes on until it is
ended, and may be asked again, by a test for instance.
"""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LONGEST_BODY = 64 << 10  # bytes; a notification has a few hundred


class Notice:
    """What was asked, and what is answered. Safe to use from any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.status = {"status": "idle"}
        self.reason = None  # preempted, stopped or deleted
        self.port = None  # where it is answered; None where nobody will ask

    def asked(self):
        """Whether the program is to save now; true until it says how that went."""
        with self.lock:
            return self.status["status"] == "saving"

    def saved(self, step, path=None):
        """The state of `step` is on disk, whole."""
        self.answer({"status": "saved", "step": step, "path": None if path is None else str(path)})

    def failed(self, message):
        """It could not be saved; `message` says why."""
        self.answer({"status": "failed", "message": str(message)})

    def answer(self, status):
        with self.lock:
            self.status = status

    def take(self, notification):
        with self.lock:
            self.reason = notification.get("reason")
            self.status = {"status": "saving"}


def listen(port=None):
    """Answers on 127.0.0.1 at `port`, or at $HOLDFAST_EXIT_PORT, which Holdfast sets for the first process of a replica."""
    notice = Notice()
    port = port if port is not None else os.environ.get("HOLDFAST_EXIT_PORT")
    if port in (None, ""):
        return notice

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds; who asks is on this machine

        def do_POST(self):
            if self.path != "/v1/preempt/notify":
                return self.send(404, {"message": "no such path"})
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > LONGEST_BODY:
                return self.send(413, {"message": f"a body of at most {LONGEST_BODY} bytes is expected"})
            try:
                notification = json.loads(self.rfile.read(int(length)))
            except ValueError:
                notification = None
            if not isinstance(notification, dict):
                return self.send(400, {"message": "a JSON object is expected"})
            notice.take(notification)
            self.send(200, {})

        def do_GET(self):
            if self.path != "/v1/preempt/status":
                return self.send(404, {"message": "no such path"})
            with notice.lock:
                status = dict(notice.status)
            self.send(200, status)

        def send(self, code, content):
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass  # the program's output is its own

    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    server.daemon_threads = True
    notice.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, name="holdfast-exit", daemon=True).start()
    return notice

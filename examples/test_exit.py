"""Tests of the module that answers Exit ckpt Notification, and of the programs that use it."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

import exit_behaviours
import holdfast_exit
from test_train import HERE, LIMIT, TrainTest, environment, free_port


def call(port, path, body=None):
    """Status code and JSON of a call."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data=data, timeout=LIMIT) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def notify(port):
    return call(port, "/v1/preempt/notify", {"reason": "stopped", "deadline_seconds": 60, "job_id": "j", "task_id": "t"})


def ask(port):
    return call(port, "/v1/preempt/status")[1]


def until(question, what):
    end = time.monotonic() + LIMIT
    while not (found := question()):
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {LIMIT} s")
        time.sleep(0.01)
    return found


def try_to(ask, *arguments):
    try:
        return ask(*arguments)
    except OSError:
        return None


class TheModule(unittest.TestCase):
    def test_it_answers_what_the_program_says(self):
        notice = holdfast_exit.listen(0)
        self.assertEqual((notice.asked(), ask(notice.port)), (False, {"status": "idle"}))
        self.assertEqual(notify(notice.port), (200, {}))
        self.assertEqual((notice.asked(), notice.reason, ask(notice.port)), (True, "stopped", {"status": "saving"}))
        notice.saved(12, HERE)
        self.assertEqual((notice.asked(), ask(notice.port)), (False, {"status": "saved", "step": 12, "path": str(HERE)}))
        notify(notice.port)
        self.assertTrue(notice.asked(), "it can be asked again")
        notice.failed(OSError("disk full"))
        self.assertEqual(ask(notice.port), {"status": "failed", "message": "disk full"})

    def test_what_is_no_notification_is_refused_and_changes_nothing(self):
        notice = holdfast_exit.listen(0)
        for path, body, code in [
            ("/v1/preempt/notify", b"not JSON", 400),
            ("/v1/preempt/notify", b"[1]", 400),
            ("/v1/preempt/notify", b" " * (65 << 10), 413),
            ("/v1/preempt/other", b"{}", 404),
            ("/other", None, 404),
        ]:
            try:
                self.assertEqual(call(notice.port, path, body)[0], code, path)
            except (ConnectionError, urllib.error.URLError):
                self.assertEqual(code, 413)  # answered before all of the body was sent
        self.assertFalse(notice.asked())

    def test_where_nobody_will_ask_it_does_nothing(self):
        os.environ.pop("HOLDFAST_EXIT_PORT", None)
        notice = holdfast_exit.listen()
        self.assertEqual((notice.port, notice.asked()), (None, False))


class Training(TrainTest):
    def test_all_ranks_save_at_the_same_step_whichever_is_asked(self):
        port, exits = free_port(), [free_port(), free_port()]
        group = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE=2, HOLDFAST_CHECKPOINT_DIR=self.dir)
        ranks = [
            self.start("--step-seconds=0.01", "--save-every=100000", steps=100000, RANK=rank, HOLDFAST_EXIT_PORT=exits[rank], **group)
            for rank in (0, 1)
        ]
        until(lambda: try_to(ask, exits[1]), "rank 1 listens")
        notify(exits[1])
        said = until(lambda: (s := ask(exits[1]))["status"] == "saved" and s, "rank 1 says that it is saved")
        step = said["step"]
        self.assertEqual(ask(exits[0]), {"status": "saved", "step": step, "path": str(self.dir / f"step-{step:08d}.json")})
        self.assertTrue((self.dir / f"step-{step:08d}.json").exists())
        self.assertEqual([rank.poll() for rank in ranks], [None, None], "it goes on until it is ended")

    def test_without_a_directory_it_says_so(self):
        port = free_port()
        self.start("--step-seconds=0.01", steps=100000, HOLDFAST_EXIT_PORT=port)
        until(lambda: try_to(notify, port), "it listens")
        said = until(lambda: (s := ask(port))["status"] != "saving" and s, "an end")
        self.assertEqual(said, {"status": "failed", "message": "there is no checkpoint directory"})


class Behaviours(unittest.TestCase):
    def test_each_behaviour_starts_and_an_unknown_one_is_refused(self):
        program = [sys.executable, str(HERE / "exit_behaviours.py")]
        refused = subprocess.run(
            program, env=environment(EXIT_BEHAVIOUR="x"), stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False
        )
        self.assertEqual(refused.returncode, 1)
        self.assertIn("EXIT_BEHAVIOUR: 'x' is none of saves", refused.stderr)
        self.assertGreaterEqual(len(exit_behaviours.BEHAVIOURS), 12)

    def test_one_that_saves_answers_like_the_contract(self):
        port = free_port()
        env = environment(EXIT_BEHAVIOUR="slow", HOLDFAST_EXIT_PORT=port)
        process = subprocess.Popen([sys.executable, str(HERE / "exit_behaviours.py")], env=env, stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until(lambda: try_to(notify, port), "it listens")
        self.assertEqual(ask(port), {"status": "saving"})
        said = until(lambda: (s := ask(port))["status"] == "saved" and s, "saved")
        self.assertEqual(said["path"], f"/checkpoints/{said['step']}")
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=LIMIT)


if __name__ == "__main__":
    unittest.main()

"""The smallest thing that behaves like a process group: all ranks meet at rank 0 and average numbers over TCP.

It exists so that the standard-library example has real rendezvous, real waiting for the slowest rank, and real trouble when
a rank dies: the others fail with a broken connection, as they do with NCCL or gloo.
"""

import json
import socket
import time

LOOPBACK = ("127.0.0.1", "localhost", "::1")
LONGEST_LINE = 1 << 20  # bytes; a message holds a few numbers


class Peers:
    """All ranks of one launch. With one rank it is a no-operation."""

    def __init__(self, rank, world_size, address, port, meet_seconds=60.0, wait_seconds=1800.0):
        """Returns when all ranks have met. `meet_seconds` limits that, `wait_seconds` each later exchange.

        Raises TimeoutError when they do not meet, OSError when rank 0 cannot listen.
        """
        self.rank = rank
        self.others = []
        if world_size == 1:
            return
        deadline = time.monotonic() + meet_seconds
        self.others = self.listen(world_size, address, port, deadline) if rank == 0 else [self.connect(address, port, deadline)]
        for connection, _ in self.others:
            connection.settimeout(wait_seconds)

    def listen(self, world_size, address, port, deadline):
        # Off the machine only where the ranks are elsewhere.
        host = address if address in LOOPBACK else ""
        arrived = {}
        with socket.create_server((host, port), backlog=world_size) as server:
            while len(arrived) < world_size - 1:
                missing = sorted(set(range(1, world_size)) - set(arrived))
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"rank 0 waited on port {port}: no word from ranks {missing}")
                server.settimeout(left)
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue  # says which ranks are missing
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(5)
                peer = (connection, connection.makefile("rb"))
                try:
                    arrived[int(self.receive(peer)["rank"])] = peer
                except (RuntimeError, ValueError, KeyError, TypeError, OSError):
                    connection.close()  # somebody else found the port
        return [arrived[rank] for rank in sorted(arrived)]

    def connect(self, address, port, deadline):
        while True:
            try:
                connection = socket.create_connection((address, port), timeout=5)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"rank {self.rank} cannot reach rank 0 at {address}:{port}: {error}") from error
                time.sleep(0.02)  # rank 0 is still starting
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = (connection, connection.makefile("rb"))
        self.send(peer, {"rank": self.rank})
        return peer

    def mean(self, numbers):
        """The element-wise mean of every rank's `numbers`, the same bits on every rank.

        Returns when all ranks have called it. Raises RuntimeError when one is gone.
        """
        if not self.others:
            return numbers
        if self.rank != 0:
            self.send(self.others[0], numbers)
            return self.receive(self.others[0])
        contributions = [numbers] + [self.receive(peer) for peer in self.others]
        mean = [sum(column) / len(contributions) for column in zip(*contributions)]
        for peer in self.others:
            self.send(peer, mean)
        return mean

    def send(self, peer, message):
        try:
            peer[0].sendall(json.dumps(message).encode() + b"\n")
        except TimeoutError:
            raise RuntimeError(self.trouble(peer, "Timed out waiting to send")) from None
        except OSError as error:
            raise RuntimeError(self.trouble(peer, f"{error.strerror} by peer")) from None

    def receive(self, peer):
        try:
            line = peer[1].readline(LONGEST_LINE)
        except TimeoutError:
            raise RuntimeError(self.trouble(peer, "Timed out waiting for a message")) from None
        except OSError:
            raise RuntimeError(self.trouble(peer, "Connection reset by peer")) from None
        if not line.endswith(b"\n"):
            raise RuntimeError(self.trouble(peer, "Connection closed by peer"))
        return json.loads(line)

    @staticmethod
    def trouble(peer, what):
        """The message of gloo, which the other ranks of a real program print when one has died."""
        try:
            host, port = peer[0].getpeername()[:2]
        except OSError:
            host, port = "unknown", 0
        return f"[../third_party/gloo/gloo/transport/tcp/pair.cc:534] {what} [{host}]:{port}"

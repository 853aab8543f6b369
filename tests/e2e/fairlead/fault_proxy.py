"""A TCP proxy between a frontend and an engine that misbehaves when it is told to.

Faults are values: what a proxy does is a list of them, given to the connections to come (`plan`, `once`) or to
those that are open (`strike`), at any time. Directions are seen from the frontend: UP goes to the engine, DOWN comes
from it. Offsets count the bytes of one direction of one connection, from the moment the fault is given.

    proxy = fault_proxy(engine)
    server = serve([proxy.url])
    proxy.strike(reset(after=100))        # each open connection, 100 bytes of answers later
    proxy.wait_for("reset")
    proxy.refuse(); ...; proxy.recover()  # the same port

Every decision of `chaos` follows from its seed.
"""

import asyncio
import contextlib
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from fairlead.waiting import scaled

T = TypeVar("T")

UP, DOWN, BOTH = "up", "down", "both"
PIECE = 65536
RECENT_EVENTS = 2000


class Fault(NamedTuple):
    """What goes wrong; made by the functions below."""

    kind: str
    direction: str = BOTH
    after: int | None = None  # bytes of the direction; None is at once
    value: float = 0


def delay(seconds: float, direction: str = BOTH) -> Fault:
    """Bytes arrive that much later, at most twice that when more keep coming."""
    return Fault("delay", direction, None, seconds)


def slow(bytes_per_second: float, direction: str = DOWN) -> Fault:
    """Bytes pass at this rate."""
    return Fault("slow", direction, None, bytes_per_second)


def cut(after: int | None = None, direction: str = DOWN) -> Fault:
    """Both ends get a FIN: at once, or when so many bytes have passed (0: instead of the first one)."""
    return Fault("cut", direction, after)


def reset(after: int | None = None, direction: str = DOWN) -> Fault:
    """Both ends get a RST: at once, or when so many bytes have passed (0: instead of the first one)."""
    return Fault("reset", direction, after)


def corrupt(at: int = 0, mask: int = 0xFF, direction: str = DOWN) -> Fault:
    """Inverts the bits `mask` of one byte."""
    return Fault("corrupt", direction, at, mask)


def half_open(after: int | None = None, direction: str = DOWN) -> Fault:
    """From then on nothing passes either way, nor does the end of a connection; what is sent seems to arrive."""
    return Fault("half-open", direction, after)


def swallow(after: int | None = None, direction: str = DOWN) -> Fault:
    """From then on nothing of that direction passes; the other one goes on."""
    return Fault("swallow", direction, after)


def black_hole() -> Fault:
    """For connections to come: accepted, never read, the engine not dialed."""
    return Fault("black-hole")


def fault_seed() -> int:
    """FAIRLEAD_SEED, or a new one; says which on stdout, which pytest shows of failed tests."""
    seed = int(os.environ.get("FAIRLEAD_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"FAIRLEAD_SEED={seed}")
    return seed


class ProxyEvent(NamedTuple):
    """Something that happened: `accept`, `close`, `no-upstream`, or the kind of a fault that struck."""

    kind: str
    connection: int


class Connection:
    """One accepted connection and the one to the engine that belongs to it. Changed by the proxy's thread only."""

    def __init__(self, number: int, client: socket.socket):
        self.number = number
        self.client = client
        self.engine: socket.socket | None = None
        self.open = True
        self.passed = {UP: 0, DOWN: 0}  # bytes handed on
        self.taken = {UP: 0, DOWN: 0}  # bytes received, swallowed ones included
        self.faults: dict[str, list[Fault]] = {UP: [], DOWN: []}  # `after` counts from 0 here
        self.tasks: list[asyncio.Task] = []

    def give(self, fault: Fault) -> None:
        if fault.kind == "half-open" and fault.after is None:
            fault = swallow(direction=BOTH)
        for direction in (UP, DOWN) if fault.direction == BOTH else (fault.direction,):
            begin = None if fault.after is None else fault.after + self.taken[direction]
            self.faults[direction].append(fault._replace(direction=direction, after=begin))

    def swallows(self, direction: str) -> bool:
        taken = self.taken[direction]
        return any(f.kind == "swallow" and (f.after is None or f.after <= taken) for f in self.faults[direction])

    def setting(self, kind: str, direction: str) -> float:
        """Value of the latest fault of that kind, 0 for none."""
        return next((f.value for f in reversed(self.faults[direction]) if f.kind == kind), 0)

    def close(self, how: str) -> None:
        """Ends both sockets: `cut` with FIN, `reset` with RST. What was not sent yet is lost either way."""
        self.open = False
        for end in (self.client, self.engine):
            if end is None:
                continue
            with contextlib.suppress(OSError):
                if how == "reset":
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:  # a close with unread bytes would be a RST
                    end.shutdown(socket.SHUT_WR)
                    with contextlib.suppress(BlockingIOError):
                        while end.recv(PIECE):
                            pass
            end.close()


class FaultProxy:
    """Proxy of one engine at a port of its own, with a thread of its own. Methods are for one other thread."""

    def __init__(self, upstream: str, seed: int = 0):
        """`upstream` is HOST:PORT or a URL of that; `seed` is that of `chaos`."""
        host, _, port = upstream.removeprefix("http://").rpartition(":")
        self.upstream = (host, int(port))
        self.seed = seed
        self.failure: BaseException | None = None
        self.events: list[ProxyEvent] = []  # the latest ones
        self.counts: dict[str, int] = {}  # of all events by kind
        self._changed = threading.Condition()
        self._connections: dict[int, Connection] = {}
        self._accepted = 0
        self._plan: list[Fault] = []
        self._once: list[Sequence[Fault]] = []
        self._listener: socket.socket | None = None
        self._listening: asyncio.Task | None = None
        self._chaos: asyncio.Task | None = None
        # Bound for as long as the proxy lives and never listening: nobody else gets the port while it refuses.
        self._reserved = self._bind(0)
        self.port: int = self._reserved.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"fault proxy {self.port}", daemon=True)
        self._thread.start()
        self.recover()

    @property
    def address(self) -> str:
        """HOST:PORT to dial instead of the engine's."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """As `--engine-url` takes it."""
        return f"http://{self.address}"

    # What tests say.

    def plan(self, *faults: Fault) -> None:
        """Faults of every connection to come, instead of the former ones."""
        self._do(lambda: self._set_plan(faults))

    def once(self, *faults: Fault) -> None:
        """Faults of the next connection only; said twice, of the next two."""
        self._do(lambda: self._once.append(faults))

    def strike(self, *faults: Fault, only: Callable[[Connection], bool] | None = None) -> int:
        """Gives faults to the open connections (those that `only` picks); how many these are."""
        def give() -> int:
            struck = [c for c in self._connections.values() if only is None or only(c)]
            for connection in struck:
                self._give(connection, faults)
            return len(struck)
        return self._do(give)

    def clear(self) -> None:
        """No faults any more, open connections included; those that swallowed bytes are reset, as no protocol goes
        on behind a gap."""
        def clear() -> None:
            self._set_plan(())
            self._once.clear()
            for connection in list(self._connections.values()):
                lossy = connection.engine is None or any(
                    connection.taken[d] != connection.passed[d] and connection.swallows(d) for d in (UP, DOWN))
                connection.faults = {UP: [], DOWN: []}
                if lossy:
                    self._end(connection, "reset")
        self._do(clear)

    def refuse(self) -> None:
        """Refuses connections; open ones go on."""
        def refuse() -> None:
            if self._listening is not None:
                self._listening.cancel()
                self._listener.close()
                self._listening = None
                self._happened("refuse", 0)
        self._do(refuse)

    def recover(self) -> None:
        """Accepts connections again."""
        def listen() -> None:
            if self._listening is None:
                self._listener = self._bind(self.port)
                self._listener.listen(512)
                self._listening = self._loop.create_task(self._accept(self._listener))
        self._do(listen)

    def chaos(self, *choices: Callable[[random.Random], Fault], pause: tuple[float, float]) -> None:
        """Until `calm`: after a random time of the range in seconds one of the choices is made for one open
        connection, or by `refuse` for none. All of that follows from the seed; which bytes are on their way does not."""
        async def strike() -> None:
            rng = random.Random(self.seed)
            while True:
                await asyncio.sleep(rng.uniform(*pause))
                fault, index = rng.choice(choices)(rng), rng.randrange(1 << 16)
                live = list(self._connections.values())
                if live:
                    self._give(live[index % len(live)], [fault])

        def start() -> None:
            self._chaos = self._loop.create_task(strike())
            self._chaos.add_done_callback(self._task_done)
        self._do(start)

    def calm(self) -> None:
        """Ends `chaos` and all faults."""
        def stop() -> None:
            if self._chaos is not None:
                self._chaos.cancel()
                self._chaos = None
        self._do(stop)
        self.clear()

    # What tests see.

    def connections(self) -> list[Connection]:
        """The open ones, oldest first."""
        return self._do(lambda: list(self._connections.values()))

    def wait(self, probe: Callable[[], T], timeout: float = 10.0, what: str = "") -> T:
        """Waits until `probe` is true; it is called whenever bytes have passed or something happened."""
        deadline = time.monotonic() + scaled(timeout)
        with self._changed:
            while not (found := probe()):
                left = deadline - time.monotonic()
                if left <= 0 or self.failure is not None:
                    raise AssertionError(f"waited {scaled(timeout):g} s for {what or 'a condition'} at {self}; "
                                         f"events {self.counts}, failure {self.failure!r}")
                self._changed.wait(left)
            return found

    def wait_for(self, kind: str, count: int = 1, timeout: float = 10.0) -> None:
        """Waits until so many events of that kind have happened since the start."""
        self.wait(lambda: self.counts.get(kind, 0) >= count, timeout, f"{count} x {kind}")

    def wait_closed(self, timeout: float = 10.0) -> None:
        """Waits until no connection is open."""
        self.wait(lambda: not self._connections, timeout, "no open connection")

    def close(self) -> None:
        """Ends everything; fails when the proxy itself has."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(scaled(10))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(scaled(10))
            self._loop.close()
            self._reserved.close()
        if self.failure is not None:
            raise AssertionError(f"{self} failed") from self.failure

    def __enter__(self) -> "FaultProxy":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<fault proxy {self.address} of {self.upstream[0]}:{self.upstream[1]}, seed {self.seed}>"

    # The proxy's thread.

    def _do(self, action: Callable[[], T]) -> T:
        async def run() -> T:
            return action()
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(scaled(10))

    def _task_done(self, task: asyncio.Task) -> None:
        if not task.cancelled() and task.exception() is not None:
            with self._changed:
                self.failure = self.failure or task.exception()
                self._changed.notify_all()

    def _happened(self, kind: str, number: int) -> None:
        with self._changed:
            self.events.append(ProxyEvent(kind, number))
            del self.events[:-RECENT_EVENTS]
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self._changed.notify_all()

    def _set_plan(self, faults: Sequence[Fault]) -> None:
        self._plan = list(faults)

    @staticmethod
    def _bind(port: int) -> socket.socket:
        bound = socket.socket()
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("127.0.0.1", port))
        return bound

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            client, _ = await self._loop.sock_accept(listener)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accepted += 1
            connection = Connection(self._accepted, client)
            self._connections[connection.number] = connection
            self._happened("accept", connection.number)
            faults = [*self._plan, *(self._once.pop(0) if self._once else ())]
            if any(fault.kind == "black-hole" for fault in faults):
                self._happened("black-hole", connection.number)
                continue
            self._start(connection, self._dial(connection, faults))

    def _start(self, connection: Connection, work: Any) -> None:
        task = self._loop.create_task(work)
        connection.tasks.append(task)
        task.add_done_callback(self._task_done)

    async def _dial(self, connection: Connection, faults: Sequence[Fault]) -> None:
        self._give(connection, [f for f in faults if f.after is None])
        if not connection.open:
            return
        engine = socket.socket()
        engine.setblocking(False)
        engine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.engine = engine
        try:
            await self._loop.sock_connect(engine, self.upstream)
        except OSError:
            self._happened("no-upstream", connection.number)
            self._end(connection, "reset")
            return
        self._give(connection, [f for f in faults if f.after is not None])
        self._start(connection, self._pump(connection, UP, connection.client, engine))
        self._start(connection, self._pump(connection, DOWN, engine, connection.client))

    def _give(self, connection: Connection, faults: Sequence[Fault]) -> None:
        for fault in faults:
            if not connection.open:
                return
            if fault.kind in ("cut", "reset") and fault.after is None:
                self._happened(fault.kind, connection.number)
                self._end(connection, fault.kind)
                return
            connection.give(fault)
            if fault.after is None:
                self._happened(fault.kind, connection.number)

    def _end(self, connection: Connection, how: str) -> None:
        """Closes both sockets, the pumps' reads first: a selector must not watch a closed descriptor."""
        if not connection.open:
            return
        for task in connection.tasks:
            if task is not asyncio.current_task():
                task.cancel()
        for end in (connection.client, connection.engine):
            if end is not None:
                self._loop.remove_reader(end)
                self._loop.remove_writer(end)
        connection.close(how)
        del self._connections[connection.number]
        self._happened("close", connection.number)

    async def _pump(self, connection: Connection, direction: str, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := await self._loop.sock_recv(source, PIECE):
                if pause := connection.setting("delay", direction):
                    await asyncio.sleep(pause)
                if not await self._pass(connection, direction, sink, data):
                    return
        except OSError:
            # Whoever is silent about what it swallows does not tell of a lost engine either.
            if direction == UP or not connection.swallows(DOWN):
                self._end(connection, "reset")
            return
        if direction == UP and connection.swallows(UP):
            self._end(connection, "cut")  # the frontend gave up: the engine shall know, or its test would wait for it
        elif not connection.swallows(direction):
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
            others = [t for t in connection.tasks if t is not asyncio.current_task() and not t.done()]
            if not others:
                self._end(connection, "cut")

    async def _pass(self, connection: Connection, direction: str, sink: socket.socket, data: bytes) -> bool:
        """Hands bytes on as the faults of the moment have it; false when the connection has ended."""
        while data:
            begin = connection.taken[direction]
            # The next place where something changes, within the data; at its end faults strike at once.
            due = [f for f in connection.faults[direction] if f.after is not None and begin <= f.after <= begin + len(data)]
            fault = min(due, key=lambda f: f.after, default=None)
            size = len(data) if fault is None else fault.after - begin
            if size and (rate := connection.setting("slow", direction)):
                size, fault = min(size, max(1, int(rate / 20))), None
                await asyncio.sleep(size / rate)
            part, data = data[:size], data[size:]
            if fault is not None and fault.kind == "corrupt" and data:
                part, data = part + bytes([data[0] ^ int(fault.value)]), data[1:]
            elif fault is not None and fault.kind == "corrupt":
                fault = None  # its byte is the first of what comes next
            if not connection.swallows(direction):
                if part:
                    await self._loop.sock_sendall(sink, part)
                connection.passed[direction] += len(part)
            connection.taken[direction] += len(part)
            with self._changed:
                self._changed.notify_all()
            if fault is not None and fault in connection.faults[direction]:
                connection.faults[direction].remove(fault)
                if fault.kind in ("half-open", "swallow"):
                    connection.give(fault._replace(after=None))
                self._happened(fault.kind, connection.number)
                if fault.kind in ("cut", "reset"):
                    self._end(connection, fault.kind)
                    return False
        return True

    async def _shut(self) -> None:
        tasks = [t for t in (self._listening, self._chaos) if t is not None]
        for connection in list(self._connections.values()):
            tasks += connection.tasks
            self._end(connection, "cut")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listening is not None:
            self._listener.close()

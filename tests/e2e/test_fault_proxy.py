"""The proxy between frontends and engines that the tests of failures use."""

import contextlib
import errno
import socket
import threading
import time

import pytest
from fairlead import FaultProxy, fault_proxy, scaled, wait_until
from fairlead.fault_proxy import DOWN, UP, black_hole, corrupt, cut, delay, half_open, reset, slow, swallow


class EchoServer:
    """Sends back what it gets; knows how many connections it has and how they ended."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.open = 0
        self.ends = []
        self.connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.open += 1
            self.connections.append(connection)
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection):
        try:
            while data := connection.recv(65536):
                connection.sendall(data)
            self.ends.append("fin")
        except OSError as error:
            self.ends.append(errno.errorcode[error.errno])
        connection.close()
        self.open -= 1

    def leave(self):
        """Stops listening."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def echo():
    server = EchoServer()
    yield server
    server.leave()


@pytest.fixture
def proxy(fault_proxy, echo):
    return fault_proxy(echo.address)


@contextlib.contextmanager
def connected(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port), scaled(10)) as connection:
        yield connection


def read(connection, count):
    data = b""
    while len(data) < count and (part := connection.recv(count - len(data))):
        data += part
    return data


def ask(connection, data):
    connection.sendall(data)
    return read(connection, len(data))


def test_without_faults_all_bytes_pass_and_ends_too(proxy, echo):
    data = bytes(range(256)) * 8192  # more than the buffers on the way
    with connected(proxy) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        assert read(connection, len(data)) == data
        sender.join()
        assert proxy.connections()[0].passed == {UP: len(data), DOWN: len(data)}
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    proxy.wait_closed()
    wait_until(lambda: echo.ends == ["fin"], 5, "the server's end")


@pytest.mark.parametrize("after", [0, 1, 5, 8])
@pytest.mark.parametrize("direction", [UP, DOWN])
def test_cut_ends_both_sides_after_so_many_bytes(proxy, echo, after, direction):
    with connected(proxy) as connection:
        assert ask(connection, b"first") == b"first"  # does not count
        proxy.strike(cut(after, direction))
        connection.sendall(b"12345678")
        got = read(connection, 8)
        if direction == DOWN:
            assert got == b"12345678"[:after]
        else:
            assert b"12345678".startswith(got) and len(got) <= after
        proxy.wait_for("cut")
        assert connection.recv(1) == b""
    proxy.wait_closed()
    wait_until(lambda: echo.open == 0, 5, "the server's end")


def test_cut_at_once_needs_no_traffic(proxy, echo):
    with connected(proxy) as connection:
        assert ask(connection, b"x") == b"x"
        assert proxy.strike(cut()) == 1
        assert connection.recv(1) == b""
    wait_until(lambda: echo.ends == ["fin"], 5, "the server's end")


@pytest.mark.parametrize("fault", [cut(), reset()], ids=["cut", "reset"])
def test_a_plan_meets_every_connection_and_once_only_the_next(proxy, echo, fault):
    proxy.once(fault)
    for planned in (False, True):
        if planned:
            proxy.plan(fault)
        for again in range(3):
            with contextlib.suppress(ConnectionError), connected(proxy) as connection:
                answer = ask(connection, b"x")
                assert answer == (b"x" if not planned and again else b"")
    proxy.clear()
    with connected(proxy) as connection:
        assert ask(connection, b"x") == b"x"
    assert proxy.counts[fault.kind] == 4


@pytest.mark.parametrize("after", [None, 3])
def test_reset_is_a_reset_on_both_sides(proxy, echo, after):
    with connected(proxy) as connection:
        assert ask(connection, b"x") == b"x"
        proxy.strike(reset(after))
        with pytest.raises(ConnectionResetError):
            connection.sendall(b"12345678")
            assert connection.recv(3) in (b"123", b"12", b"1")
            connection.recv(8)
            connection.recv(8)
    wait_until(lambda: echo.ends == ["ECONNRESET"], 5, "the server's end")


@pytest.mark.parametrize("direction", [UP, DOWN])
@pytest.mark.parametrize("at", [0, 3, 7, 8])
def test_corrupt_changes_one_byte_wherever_pieces_end(proxy, at, direction):
    with connected(proxy) as connection:
        proxy.wait_for("accept")
        assert ask(connection, b"zz") == b"zz"
        proxy.strike(corrupt(at, 0x01, direction))
        got = b"".join(ask(connection, piece) for piece in (b"12345678", b"9abcdefg"))
    expected = bytearray(b"123456789abcdefg")
    expected[at] ^= 1
    assert got == bytes(expected)
    assert proxy.counts["corrupt"] == 1


def test_half_open_takes_everything_and_says_nothing(proxy, echo):
    with connected(proxy) as connection:
        assert ask(connection, b"x") == b"x"
        proxy.strike(half_open())
        connection.sendall(b"y" * 1000)
        proxy.wait(lambda: proxy._connections and next(iter(proxy._connections.values())).taken[UP] == 1001)
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert echo.open == 1
        proxy.clear()  # what comes behind a gap would be nonsense
        connection.settimeout(scaled(10))
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    wait_until(lambda: echo.open == 0, 5, "the server's end")


def test_half_open_ends_with_the_frontends_end(proxy, echo):
    with connected(proxy) as connection:
        assert ask(connection, b"x") == b"x"
        proxy.strike(half_open(after=2))
        assert ask(connection, b"12345678"[:2]) == b"12"
        connection.sendall(b"y")
        proxy.wait_for("half-open")
    proxy.wait_closed()
    wait_until(lambda: echo.open == 0, 5, "the server's end")


def test_one_direction_may_vanish_alone(proxy):
    with connected(proxy) as connection:
        assert ask(connection, b"x") == b"x"
        proxy.strike(swallow(direction=DOWN))
        connection.sendall(b"yy")
        proxy.wait(lambda: (c := next(iter(proxy._connections.values()))).passed[UP] == 3 and c.taken[DOWN] == 3)
        assert proxy.connections()[0].passed[DOWN] == 1


def test_an_engine_that_dies_is_not_seen_through_a_half_open_connection(proxy, echo):
    with connected(proxy) as connection:
        assert ask(connection, b"x") == b"x"
        proxy.strike(half_open())
        echo.connections[0].shutdown(socket.SHUT_RDWR)
        wait_until(lambda: echo.open == 0, 5, "the server's end")
        connection.sendall(b"y")
        proxy.wait(lambda: next(iter(proxy._connections.values())).taken[UP] == 2)
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_delay_and_slow_take_their_time(proxy):
    with connected(proxy) as connection:
        assert ask(connection, b"x") == b"x"
        proxy.strike(delay(0.1))
        begun = time.monotonic()
        assert ask(connection, b"x") == b"x"
        assert time.monotonic() - begun >= 0.2  # both ways
        proxy.clear()
        proxy.strike(slow(10_000))
        begun = time.monotonic()
        assert ask(connection, b"y" * 2000) == b"y" * 2000
        assert time.monotonic() - begun >= 0.19


def test_refuse_and_recover_at_the_same_port(proxy):
    with connected(proxy) as connection:
        assert ask(connection, b"x") == b"x"
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), scaled(10))
        assert ask(connection, b"x") == b"x"  # what is open goes on
        proxy.recover()
        with connected(proxy) as another:
            assert ask(another, b"x") == b"x"


def test_a_black_hole_accepts_and_reads_nothing(proxy, echo):
    proxy.once(black_hole())
    with connected(proxy) as connection:
        connection.sendall(b"x")
        proxy.wait_for("black-hole")
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert echo.open == 0
    with connected(proxy) as connection:
        assert ask(connection, b"x") == b"x"


def test_an_engine_that_is_not_there_resets(proxy, echo):
    echo.leave()
    with pytest.raises(ConnectionResetError), connected(proxy) as connection:
        connection.recv(1)
        raise AssertionError("no reset")
    proxy.wait_for("no-upstream")


def test_chaos_draws_the_same_from_the_same_seed(fault_proxy, echo):
    drawn = []
    for _ in range(2):
        values = []
        with FaultProxy(echo.address, seed=7) as proxy, connected(proxy) as connection:
            assert ask(connection, b"x") == b"x"

            def choose(rng, values=values):
                values.append(rng.random())
                return delay(0)

            proxy.chaos(choose, lambda rng: slow(1e9), pause=(0.0, 0.005))
            proxy.wait(lambda values=values: len(values) >= 20, 10, "twenty draws")
            proxy.calm()
            assert ask(connection, b"x") == b"x"
        drawn.append(values[:20])
    assert drawn[0] == drawn[1]


def test_the_seed_comes_from_the_environment_and_is_said(monkeypatch, capsys):
    monkeypatch.setenv("FAIRLEAD_SEED", "123")
    assert fault_proxy.fault_seed() == 123
    monkeypatch.delenv("FAIRLEAD_SEED")
    seed = fault_proxy.fault_seed()
    assert capsys.readouterr().out == f"FAIRLEAD_SEED=123\nFAIRLEAD_SEED={seed}\n"


def test_closing_ends_threads_and_connections(echo):
    with FaultProxy(echo.address) as proxy, connected(proxy) as connection:
        assert ask(connection, b"x") == b"x"
        thread = proxy._thread
        proxy.close()
        assert connection.recv(1) == b""
        assert not thread.is_alive()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), scaled(10))


def test_a_frontend_serves_through_it(mock_engine, serve, fault_proxy):
    engine = mock_engine("--speedup-ratio", "0", model="demo")
    proxy = fault_proxy(engine)
    server = serve([proxy.url], model_path="share/demo")
    answer = server.post("/v1/completions", {"model": "demo", "prompt": [5, 6], "max_tokens": 3, "ignore_eos": True})
    assert answer.status_code == 200
    assert engine.state()["requests_total"] == 1
    assert sum(c.passed[DOWN] for c in proxy.connections()) > 0

"""Replicas: a frontend that starts takes over what a peer knows of the engines' caches (--kv-peers)."""

import re
import socket
import threading

import pytest
from fairlead import scaled, wait_until
from test_kv_api import dump
from test_kv_routing import (BLOCK, EVENTS, FOLDER, cached, complete, last_choice, prompt, reset_cache, settle, start,
                             start_engines, states, workers)

# An engine that keeps so few batches for replay tells a newcomer next to nothing.
FORGETFUL = ["--kv-events-buffer-steps", "2"]
TAKEN = re.compile(r"peer \S+ \(\S+\) knows (\d+) blocks in the caches of (\d+) ranks")


def warm(server, engines, prompts):
    for number in range(prompts):
        complete(server, prompt(number))
    settle(server, engines)


def held(server):
    """Blocks by worker and rank, and what lets each view be gone on with."""
    targets, blocks = dump(server)
    return blocks, {(t["worker_id"], t["dp_rank"]): t["checkpoint"] for t in targets}


@pytest.mark.parametrize("ranks", [1, 2])
def test_two_replicas_know_the_same(mock_engine, serve, ranks):
    """What `make kv-peers` shows: a second replica starts knowing what the first one knows."""
    engines = start_engines(mock_engine, 2, *FORGETFUL, "--data-parallel-size", ranks)
    first = start(serve, engines)
    warm(first, engines, 24)
    second = start(serve, engines, "--kv-peers", f"http://{first.http}", "--router-predicted-ttl-secs", "0")
    line = second.process.wait_log(TAKEN)
    print(f"\nfirst replica:  {sum(map(len, held(first)[0].values()))} blocks")
    print(f"second replica: {line.group(0)}")
    assert held(second) == held(first)
    assert set(states(second).values()) <= {"live", "no_events"}
    for number in range(24):
        answer = complete(second, prompt(number))
        worker, rank, overlap, total = last_choice(second, number + 1)
        print(f"prompt {number:2}: worker_{worker} dp_rank={rank} {overlap}/{total} blocks, "
              f"{cached(answer)} tokens cached at the engine")
        assert (overlap, total, cached(answer)) == (4, 5, 4 * BLOCK)
    alone = start(serve, engines)
    blocks = sum(map(len, held(alone)[0].values()))
    print(f"a replica without --kv-peers: {blocks} blocks")
    assert blocks < 24 * 4, "the engines have forgotten the events that the others saw"
    # Both go on following the engines.
    for number in range(24, 30):
        complete((first, second)[number % 2], prompt(number))
    settle(first, engines)
    wait_until(lambda: held(second) == held(first), 10, "the replicas to agree")


def test_salted_prompts_stay_apart_after_a_takeover(mock_engine, serve):
    engines = start_engines(mock_engine, 1, *FORGETFUL)
    first = start(serve, engines)
    complete(first, prompt(1)[:2 * BLOCK + 1], cache_salt="tenant-a")
    complete(first, prompt(2))
    settle(first, engines)
    second = start(serve, engines, "--kv-peers", first.http, "--router-predicted-ttl-secs", "0")
    # Its further blocks inherit the salt of blocks that only the first replica saw stored.
    complete(second, prompt(1), cache_salt="tenant-a")
    assert last_choice(second, 1)[2:] == (2, 5)
    wait_until(lambda: held(second) == held(first), 10, "the replicas to agree")
    answer = complete(second, prompt(1))
    assert (last_choice(second, 2)[2:], cached(answer)) == ((0, 5), 0)
    answer = complete(second, prompt(1), cache_salt="tenant-a")
    assert (last_choice(second, 3)[2:], cached(answer)) == ((4, 5), 4 * BLOCK)


def test_an_engine_that_restarted_since_is_not_believed(mock_engine, serve):
    engines = start_engines(mock_engine, 1)
    first = start(serve, engines)
    warm(first, engines, 4)
    reset_cache(engines[0])
    complete(first, prompt(9))
    settle(first, engines)
    second = start(serve, engines, "--kv-peers", first.http, "--router-predicted-ttl-secs", "0")
    answer = complete(second, prompt(1))
    assert (last_choice(second, 1)[2:], cached(answer)) == ((0, 5), 0)
    answer = complete(second, prompt(9))
    assert (last_choice(second, 2)[2:], cached(answer)) == ((4, 5), 4 * BLOCK)


def test_of_all_peers_the_best_view_is_taken(mock_engine, serve):
    engines = start_engines(mock_engine, 1, *FORGETFUL)
    first = start(serve, engines)
    warm(first, engines, 6)
    cold = start(serve, engines)
    newcomer = start(serve, engines, "--no-router-kv-events")
    closed = start(serve, engines, "--disable-admin-api")
    second = start(serve, engines, "--kv-peers", f"127.0.0.1:1,{closed.http}", "--kv-peers",
                   f"{newcomer.http},{cold.http},{first.http},127.0.0.1:2")
    assert held(second) == held(first) != held(cold)
    log = second.process.log_text()
    assert re.search(r"warning peer http://127.0.0.1:1 gives no views of caches: ", log)
    assert f"peer http://{closed.http} gives no views of caches: " in log and "status 404" in log
    assert f"peer http://{newcomer.http} ({newcomer.http}) knows 0 blocks in the caches of 0 ranks" in log
    assert "127.0.0.1:2" not in log, "one that knows everything ends the asking"


def test_a_block_size_is_learned_from_the_engine_and_not_from_peers(mock_engine, serve):
    """An engine that does not tell its block size and restarts with another one."""
    engine = mock_engine("--speedup-ratio", "0", "--block-size", BLOCK, *EVENTS, model="demo", backend="vllm-http",
                         flavor="rust-0.33")
    first = serve([engine], "--router-mode", "kv", model_path=FOLDER, backend="vllm-http")
    complete(first, prompt(1))
    first.process.wait_log(f"have {BLOCK} tokens, as the events of worker_")
    wait_until(lambda: dump(first)[0][0]["checkpoint"] is not None, 20, "the first replica to follow the engine")
    same = serve([engine], "--router-mode", "kv", "--kv-peers", first.http, model_path=FOLDER, backend="vllm-http")
    wait_until(lambda: held(same) == held(first), 20, "the second to know the same")
    address = engine.address
    engine.stop()
    events = [value for name, value in (("--kv-events", "kv_events"), ("--kv-replay", "kv_replay"))
              for value in (name, engine.addresses[value])]
    again = mock_engine("--speedup-ratio", "0", "--block-size", 2 * BLOCK, *events, model="demo",
                        backend="vllm-http", flavor="rust-0.33", listen=address)
    other = serve([again], "--router-mode", "kv", "--kv-peers", first.http, model_path=FOLDER, backend="vllm-http")
    complete(other, prompt(2))
    other.process.wait_log(f"have {2 * BLOCK} tokens, as the events of worker_")


class Peer:
    """A peer that answers every connection with some bytes and then keeps it open."""

    def __init__(self, answer: bytes):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.connections, self.answer = [], answer
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                connection.recv(65536)
                connection.sendall(self.answer)
            except OSError:
                return

    def close(self):
        self.listener.close()
        for connection in self.connections:
            connection.close()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(text: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(text), text)


@pytest.mark.parametrize("answer, reason", [
    (HEAD + chunk(b'{"version":1}\n'), "it is not of version 2"),
    (HEAD + chunk(b'{"version":2}\n[1,2'), "it has stopped answering"),
    (HEAD + chunk(b'{"version":2}\n') + b"0\r\n\r\n", "it ends in the middle"),
    (HEAD + chunk(b"x" * 2_000_000), "a line is too long"),
    (HEAD + chunk(b'{"version":2}\n{"target":{}}\n'), "a target lacks a member"),
    (b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n", "status 404"),
    (b"\xff\xfe nothing of the kind\r\n\r\n", ""),
])
def test_a_peer_that_talks_nonsense_delays_the_start_and_no_more(mock_engine, serve, answer, reason):
    peer = Peer(answer)
    engines = start_engines(mock_engine, 1)
    server = start(serve, engines, "--kv-peers", peer.address)
    assert re.search(re.escape(f"peer http://{peer.address} gives no views of caches: ") + ".*" + re.escape(reason),
                     server.process.log_text())
    complete(server, prompt(1))
    settle(server, engines)
    peer.close()


def test_replicas_that_start_at_once_all_get_the_view(mock_engine, serve, launcher):
    """The peer writes one dump at a time."""
    engines = start_engines(mock_engine, 1, *FORGETFUL, "--num-gpu-blocks", "40000")
    first = start(serve, engines, "--threads", "1")
    for number in range(24):
        complete(first, prompt(number, blocks=400))
    settle(first, engines)
    newcomers = [serve(engines, "--router-mode", "kv", "--kv-peers", first.http, model_path=FOLDER,
                       wait_models=False) for _ in range(4)]
    for server in newcomers:
        server.wait_ready(scaled(20))
        assert TAKEN.search(server.process.log_text()).group(1) == str(24 * 400)
    expected = held(first)
    for server in newcomers:
        wait_until(lambda server=server: held(server) == expected, 10, "the view to be confirmed")


def test_nothing_is_served_before_the_peers_were_heard(mock_engine, serve):
    peer = Peer(b"")
    engines = start_engines(mock_engine, 1)
    server = serve(engines, "--router-mode", "kv", "--kv-peers", peer.address, "--kv-peers-timeout-secs", "3",
                   model_path=FOLDER, wait_models=False)
    wait_until(lambda: peer.connections, 10, "the peer to be asked")
    health = server.get("/health")
    assert health.json()["instances"] == []
    server.wait_ready(scaled(20))
    assert "came in time" in server.process.log_text() or "stopped answering" in server.process.log_text()
    complete(server, prompt(1))
    peer.close()


def test_a_stop_does_not_wait_for_peers(mock_engine, serve):
    peer = Peer(b"")
    server = serve(start_engines(mock_engine, 1), "--router-mode", "kv", "--kv-peers", peer.address,
                   model_path=FOLDER, wait_models=False)
    wait_until(lambda: peer.connections, 10, "the peer to be asked")
    server.stop()
    peer.close()


@pytest.mark.parametrize("value, message", [
    ("https://h:1", "kv-peers"), ("h:1/path", "kv-peers"), ("h:99999", "kv-peers")])
def test_a_bad_peer_is_one_line_and_exit_2(launcher, value, message):
    result = launcher.run("serve", "--direct", "--engine-url", "127.0.0.1:1", "--router-mode", "kv", "--kv-peers", value)
    assert result.returncode == 2 and message in result.stderr and len(result.stderr.strip().splitlines()) == 1

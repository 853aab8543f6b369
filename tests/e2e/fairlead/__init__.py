"""Drives the real binary for the end-to-end tests. See launcher.py for what tests start from."""

from fairlead.cards import CardFolder
from fairlead.clients import anthropic_client, grpc_channel, http_client, openai_client
from fairlead.fault_proxy import FaultProxy, fault_seed
from fairlead.launcher import Launcher, MockEngine, Serve, binary_path
from fairlead.metrics import Metrics, parse_metrics
from fairlead.process import Process
from fairlead.stubs import Stubs, compile_protos
from fairlead.waiting import scaled, wait_until

__all__ = [
    "CardFolder", "FaultProxy", "Launcher", "Metrics", "MockEngine", "Process", "Serve", "Stubs", "anthropic_client",
    "binary_path", "compile_protos", "fault_seed", "grpc_channel", "http_client", "openai_client", "parse_metrics",
    "scaled", "wait_until",
]

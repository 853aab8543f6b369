"""The clients that users have, pointed at a server under test: no retries, no proxies."""

import anthropic
import grpc
import httpx
import openai

from fairlead.waiting import scaled


def openai_client(base_url: str, **options) -> openai.OpenAI:
    """The official client; `base_url` without `/v1`."""
    options = {"api_key": "unused", "max_retries": 0, "timeout": scaled(30), **options}
    return openai.OpenAI(base_url=f"{base_url}/v1", **options)


def async_openai_client(base_url: str, **options) -> openai.AsyncOpenAI:
    """The official asyncio client; `base_url` without `/v1`."""
    options = {"api_key": "unused", "max_retries": 0, "timeout": scaled(30), **options}
    return openai.AsyncOpenAI(base_url=f"{base_url}/v1", **options)


def anthropic_client(base_url: str, **options) -> anthropic.Anthropic:
    """The official client for the Messages API."""
    options = {"api_key": "unused", "max_retries": 0, "timeout": scaled(30), **options}
    return anthropic.Anthropic(base_url=base_url, **options)


def http_client(base_url: str, **options) -> httpx.Client:
    """Plain HTTP/1.1 for what the SDKs hide."""
    return httpx.Client(base_url=base_url, trust_env=False, **{"timeout": scaled(30), **options})


def grpc_channel(address: str, **options) -> grpc.Channel:
    """A plain-text channel of its own (channels to one address share sockets unless told not to)."""
    settings = {"grpc.enable_http_proxy": 0, "grpc.use_local_subchannel_pool": 1,
                "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1, **options}
    return grpc.insecure_channel(address, options=list(settings.items()))

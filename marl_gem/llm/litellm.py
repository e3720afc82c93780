"""Hosted models of any provider, through litellm.

    policy = LLMPolicy(Retrying(LiteLLMModel("openai/gpt-4o-mini")))

litellm is imported when the first such model is made, which takes seconds. Its own retries, logging, download of a
price list and reading of a file `.env` are turned off.

Errors are those of `marl_gem.llm.http`, and no message holds a key.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import logging
import math
import os
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from marl_gem.errors import (
    ConfigError,
    ContextTooLong,
    LLMError,
    MissingPackage,
    ServerUnreachable,
    TransientLLMError,
)
from marl_gem.llm import Sampling, wire
from marl_gem.llm.secrets import redact_message, redact_value, url_secrets
from marl_gem.types import Message, Response, ToolSpec

_log = logging.getLogger(__name__)

COMPROMISED_VERSIONS = frozenset({"1.82.7", "1.82.8"})
"""Releases of litellm that an attacker published; they steal the API keys they find."""

MAX_COST = 10_000.0
"""US dollars; an answer that is said to cost more has no known cost."""


class LiteLLMModel:
    """A model of a provider that litellm knows.

    Costs come from litellm's price list; a price that is missing there, or is 0, is unknown.

    Args:
        model: provider and name, as in "openai/gpt-4o-mini" or "anthropic/claude-sonnet-4-5".
        url: another base URL that serves the provider's API. Its prices are unknown, and only the key in
            `api_key_env` is sent to it.
        api_key_env: the environment variable that holds the API key; by default the provider's usual one.
        price: US dollars for a million tokens read and written, instead of the price list.
        timeout: seconds that a call may take.

    Raises:
        MissingPackage: litellm is not installed.
        ConfigError: litellm does not know the model's provider, its key is not set, or the installed litellm is one
            of `COMPROMISED_VERSIONS`.
    """

    def __init__(
        self,
        model: str,
        *,
        url: str | None = None,
        api_key_env: str | None = None,
        price: tuple[float, float] | None = None,
        timeout: float = 600.0,
    ) -> None:
        self.model, self.url, self.api_key_env, self.price, self.timeout = model, url, api_key_env, price, timeout
        self._url_secrets = url_secrets(url or "")
        if not 0 < timeout < math.inf:
            raise ConfigError(f"timeout is a number of seconds above 0, not {timeout}")
        self._litellm = load_litellm()
        self._check()
        supported = self._litellm.get_supported_openai_params(model) or ("seed", "temperature")
        self._refused = wire.BEYOND_OPENAI | ({"seed"} - set(supported))
        self._takes_temperature = "temperature" in supported
        if "seed" in self._refused:
            _log.warning("%s takes no seed: left out in all requests", self.model)

    @property
    def name(self) -> str:
        return self.model

    def __repr__(self) -> str:
        return f"LiteLLMModel({self.model!r})"

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        """Answer, see `marl_gem.llm.LLM`; the top of `marl_gem.llm.http` lists what is raised."""
        request = self._request(messages, sampling, seed, tools)
        started = time.monotonic()
        answer = await self._ask(request)
        if isinstance(answer, LLMError):
            raise answer  # outside of `except`: litellm's exception may hold the key, and must not be the context
        body, list_price = answer
        unsent = ("seed",) if "seed" in self._refused else ()
        try:
            reply = wire.read_reply(body)
            response = wire.read_response(reply, seconds=time.monotonic() - started, price=self.price)
        except ValueError as error:
            raise TransientLLMError(f"{self.model} gave a reply that cannot be used: {error}") from None
        if not response.usage.get("prompt_tokens"):  # litellm gives 0 for unknown counts
            return msgspec.structs.replace(response, usage={}, cost=None, unsent=unsent)
        cost = response.cost if self.price or self.url else list_price
        return msgspec.structs.replace(response, cost=cost, unsent=unsent)

    def _request(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec]
    ) -> dict[str, Any]:
        body = wire.write_request(
            self.model, messages, sampling, seed, tools, tokens=False, logprobs=False, refused=self._refused
        )
        if sampling.top_p == 1:
            del body["top_p"]  # some providers take only one of the two
        if sampling.temperature == 1 and not self._takes_temperature:
            del body["temperature"]
        clean: dict[str, Any] = msgspec.json.decode(wire.write_json(body))  # no lone surrogates
        return clean

    async def _ask(self, request: dict[str, Any]) -> tuple[bytes, float | None] | LLMError:
        """litellm's answer without secrets and its cost by the price list, or the error of its exception."""
        key = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else None
        try:
            answer = await self._litellm.acompletion(
                **request,
                api_key=key or ("none" if self.url else None),
                api_base=self.url,
                timeout=self.timeout,
                num_retries=0,
                max_retries=0,
                _skip_mcp_handler=True,  # which would need the package mcp, for any tool
                **{"no-log": True},
            )
            body = wire.write_json(redact_value(answer.model_dump(), self._secrets()))
            return body, _known_price(answer._hidden_params.get("response_cost"))
        except Exception as error:
            return self._failure(error)

    def _failure(self, error: Exception) -> LLMError:
        """The error for an exception of litellm."""
        text = " ".join(redact_message(str(error), self._secrets()).split())
        message = f"{self.model}: {text[:400]}{'...' if len(text) > 400 else ''}"
        status = getattr(error, "status_code", None)
        kinds = {type(cause).__name__ for cause in _causes(error)}
        headers = getattr(error, "litellm_response_headers", None) or {}
        wait = wire.retry_after({name.title(): value for name, value in headers.items()})
        if "ContextWindowExceededError" in kinds or wire.is_overflow(text):
            return ContextTooLong(f"{message}. Show less of the history, or ask for fewer tokens")
        if kinds & {"ImportError", "ModuleNotFoundError", "UnsupportedParamsError"}:
            return LLMError(message)
        if status == 429 and re.search("insufficient_quota|exceeded your current quota", text):
            return LLMError(f"{message}. There is no credit left; waiting will not help")
        if status in (401, 403):
            variable = self.api_key_env or "the provider's environment variable"
            return LLMError(f"{message}. Is the API key in {variable} the right one?")
        if kinds & {"ConnectError", "ConnectTimeout"} or status == 502 or (status == 503 and wait is None):
            return ServerUnreachable(message)
        if status in (408, 409, 425, 429) or (isinstance(status, int) and status >= 500 and status not in (501, 505)):
            return TransientLLMError(message, wait)
        return LLMError(message)

    def _check(self) -> None:
        """Raise a ConfigError for a model that cannot be called."""
        if self.api_key_env and not os.environ.get(self.api_key_env, "").strip():
            raise ConfigError(f"{self.model} needs an API key in {self.api_key_env}, which is not set")
        try:
            self._litellm.get_llm_provider(self.model, api_base=self.url)
        except Exception:
            raise ConfigError(
                f"litellm knows no provider of {self.model!r}; write PROVIDER/MODEL, as in openai/gpt-4o-mini"
            ) from None
        if self.url or self.api_key_env:
            return
        missing = self._litellm.validate_environment(self.model)["missing_keys"]
        if len(missing) == 1 and missing[0].endswith("_API_KEY"):  # the rest may come from a login
            raise ConfigError(
                f"{self.model} needs an API key in {missing[0]}, which is not set; "
                "if it is in another variable, give that one's name as api_key_env"
            )

    def _secrets(self) -> list[str]:
        """Values of the environment that may be API keys: litellm chooses by itself which one it sends.

        Values that are short or have no digit may be ordinary words, and are left out.
        """
        candidates = [value.strip() for name, value in os.environ.items() if _SECRET.search(name)]
        values = [value for value in candidates if len(value) >= 16 and re.search("[0-9]", value)]
        key = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""
        return list(dict.fromkeys(filter(None, [*values, key, key and f"Bearer {key}", *self._url_secrets])))


@functools.cache
def load_litellm() -> Any:
    """The module litellm, without its logging and downloads.

    Raises:
        MissingPackage: it is not installed.
        ConfigError: it is one of `COMPROMISED_VERSIONS`.
    """
    try:
        version = importlib.metadata.version("litellm")
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingPackage("litellm", "litellm", "a hosted model") from error
    if version in COMPROMISED_VERSIONS:
        raise ConfigError(
            f"litellm {version} was published by an attacker and steals keys. Uninstall it, replace the keys that "
            "were on this machine, and install another release: pip install 'marl-gem[litellm]'"
        )
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else importing it fetches a file
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # else importing it reads .env
    warnings.filterwarnings("ignore", "Item '.*' on TypedDict class", UserWarning)  # of pydantic, about litellm
    litellm: Any = importlib.import_module("litellm")
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    for name in ("openai", "httpx", "httpcore"):  # below WARNING they log headers and complete URLs
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.WARNING)
    return litellm


_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
"""Names of environment variables that may hold an API key. Fewer than `is_secret_name` knows: the values of all others
would be redacted in answers."""


def _known_price(cost: Any) -> float | None:
    """What an answer cost in US dollars; None for what is no such number, and for 0, which means unknown."""
    return float(cost) if isinstance(cost, (int, float)) and 0 < cost < MAX_COST else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and its causes."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__

"""Models by a text.

    MODEL@URL                a model of an OpenAI-compatible server, by HTTP:
                             Qwen/Qwen3-1.7B@http://127.0.0.1:8000/v1
    @URL                     the only model that the server serves
    litellm:PROVIDER/MODEL   a hosted model, as in litellm:openai/gpt-4o-mini; @URL may follow
    hf:FOLDER                a model folder in the layout of transformers, run in this process

Such a text may end up in files and messages, and so must hold no secret: API keys come from the environment.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from marl_gem.errors import ConfigError, ServerUnreachable
from marl_gem.llm import LLM
from marl_gem.llm.cache import Cached, ResponseCache
from marl_gem.llm.retry import PATIENCE, CircuitBreaker, Retrying
from marl_gem.llm.secrets import hide_in_urls, url_secrets

Made = TypeVar("Made")
Kind = Literal["http", "litellm", "hf"]


class ModelSpec(msgspec.Struct, frozen=True):
    """A model by its back end, its name (the folder, for `hf`) and the URL of its server.

    The name is empty for the only model of a server, the URL where the back end knows it.
    """

    kind: Kind
    name: str
    url: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The model that a text names.

        Raises:
            ConfigError: it names no model, or its URL holds a secret.
        """
        kind = kind_of(text)
        if kind is None:
            raise ConfigError(f"{hide_in_urls(text)!r} names no model; write {_FORMS}")
        name, url = text.removeprefix(f"{kind}:"), ""
        if kind != "hf" and (at := _AT_URL.search(name)):
            name, url = name[: at.start()], name[at.start() + 1 :]
            _check_url(url)
        if not name and not url:
            raise ConfigError(f"{hide_in_urls(text)!r} lacks the model's name, as in {_EXAMPLES[kind]}")
        return cls(kind, name, url)

    def __str__(self) -> str:
        """The text from which `parse` gives it back."""
        prefix = "" if self.kind == "http" else f"{self.kind}:"
        return f"{prefix}{self.name}{f'@{self.url}' if self.url else ''}"


class Connection(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a model is reached, besides its name; see `HTTPModel`, `LiteLLMModel` and `Retrying`."""

    adapter: str | None = None
    api_key_env: str | None = None
    logprobs: Literal["raw", "processed", "off"] = "raw"
    price: tuple[float, float] | None = None
    # Seconds to wait for a connection, for the next bytes of a reply, and for a complete call; None is the back end's
    # default. The first two are of the back end http alone.
    connect_timeout: float | None = None
    read_timeout: float | None = None
    timeout: float | None = None
    # Seconds that an unreachable server is waited for; None leaves it to `Models`.
    wait: float | None = None


class Models:
    """Makes models from texts: each one once, with retries, and with one response cache for all if there is one.

    Models of one server that is waited for equally long share a circuit breaker. A model in this process has neither
    retries nor a cache.

    Args:
        cache: the response cache or its file; see `marl_gem.llm.cache`.
        wait: seconds that an unreachable server is waited for, where a model's connection does not say; by default
            `PATIENCE`, and not at all for a server that is to name its only model.

    Raises:
        RecordError: the file cannot be used as a cache.
    """

    def __init__(self, cache: ResponseCache | str | Path | None = None, wait: float | None = None) -> None:
        self._cache = ResponseCache(cache) if isinstance(cache, (str, Path)) else cache
        self._wait = wait
        self._made: dict[Hashable, Any] = {}
        self._breakers: dict[tuple[str, float], CircuitBreaker] = {}

    def __reduce__(self) -> tuple[type[Models], tuple[Path | None, float | None]]:
        """In another process: the same settings, and no models yet."""
        return Models, (self._cache.path if self._cache else None, self._wait)

    def get(self, model: ModelSpec | str, connection: Connection | None = None) -> LLM:
        """The model of a spec or its text; the same object for the same model and connection.

        Raises:
            ConfigError: the text names no model, or holds a secret; the key is not set; the server has several
                models, and none was named.
            LLMError: the server, asked for its model, gave none.
            MissingPackage: what the back end needs is not installed.
        """
        spec = ModelSpec.parse(model) if isinstance(model, str) else model
        settings = connection or Connection()
        return self.once((spec, settings), lambda: self._make(spec, settings))

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` returns, called only the first time for this key."""
        if key not in self._made:
            self._made[key] = make()
        made: Made = self._made[key]
        return made

    def _make(self, spec: ModelSpec, connection: Connection) -> LLM:
        if spec.kind == "hf":
            return _in_process(spec.name)
        if connection.wait is None:
            connection = msgspec.structs.replace(connection, wait=self._wait)
        make = _litellm_model if spec.kind == "litellm" else _http_model
        llm, server = make(spec.name, spec.url, connection)
        wait = PATIENCE if connection.wait is None else connection.wait
        breaker = self._breakers.setdefault((server, wait), CircuitBreaker(patience=wait))
        retrying = Retrying(llm, patience=wait, breaker=breaker)
        return Cached(retrying, self._cache) if self._cache else retrying


def kind_of(text: str) -> Kind | None:
    """The back end that a text names; None if it names no model."""
    for kind in ("litellm", "hf"):
        if text.startswith(f"{kind}:"):
            return kind
    return "http" if _AT_URL.search(text) else None


_AT_URL = re.compile(r"@https?://", re.IGNORECASE)
_FORMS = "MODEL@URL, litellm:PROVIDER/MODEL or hf:FOLDER"
_EXAMPLES = {"litellm": "litellm:openai/gpt-4o-mini", "hf": "hf:models/tiny", "http": "tiny@http://127.0.0.1:8000/v1"}


def _check_url(url: str) -> None:
    try:
        has_secrets, host = bool(url_secrets(url)), urlsplit(url).hostname
    except ValueError:
        raise ConfigError("the url of a model must look like http://127.0.0.1:8000/v1") from None
    if has_secrets:
        raise ConfigError(
            f"the url at {host} holds a password or a key, which would end up in files; put the key into an "
            "environment variable, and give that one's name as api_key_env=NAME"
        )


def _http_model(name: str, url: str, connection: Connection) -> tuple[LLM, str]:
    from marl_gem.llm.http import HTTPModel, Timeouts

    default = Timeouts()
    connect, read = connection.connect_timeout or default.connect, connection.read_timeout or default.read
    timeouts = Timeouts(connect, read, connection.timeout or max(default.total, connect + read))
    if not name:
        server = HTTPModel(url, api_key_env=connection.api_key_env, timeouts=timeouts)
        name = _only_model(server, connection.wait or 0.0)
    model = HTTPModel(
        url,
        name,
        adapter=connection.adapter,
        api_key_env=connection.api_key_env,
        logprobs=connection.logprobs,
        price=connection.price,
        timeouts=timeouts,
    )
    return model, model.url


def _only_model(server: Any, wait: float) -> str:
    served = _outside_any_loop(lambda: _when_reachable(server.models, wait))
    if len(served) != 1:
        some = ", ".join(name[:100] for name in served[:10]) + (", ..." if len(served) > 10 else "")
        raise ConfigError(
            f"{server.url} has {len(served)} models; name one of them, as in {served[0][:100]}@{server.url}: {some}"
            if served
            else f"{server.url} has no model"
        )
    return str(served[0])


async def _when_reachable(call: Callable[[], Coroutine[Any, Any, Made]], wait: float) -> Made:
    """What a call to a server returns, once that can be reached; so many seconds are spent on trying."""
    if not wait:
        return await call()
    breaker = CircuitBreaker(failures=1, patience=wait)
    while True:
        probe = await breaker.enter()
        try:
            answer = await call()
        except ServerUnreachable as error:
            breaker.leave(probe, error)
        except BaseException as error:
            breaker.leave(probe, error)
            raise
        else:
            breaker.leave(probe, None)
            return answer


def _outside_any_loop(call: Callable[[], Coroutine[Any, Any, Made]]) -> Made:
    """What a coroutine function returns; works inside a running event loop too."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(call())).result()


def _litellm_model(name: str, url: str, connection: Connection) -> tuple[LLM, str]:
    from marl_gem.llm.litellm import LiteLLMModel

    model = LiteLLMModel(
        name,
        url=url or None,
        api_key_env=connection.api_key_env,
        price=connection.price,
        **({} if connection.timeout is None else {"timeout": connection.timeout}),
    )
    return model, url or name.partition("/")[0]


def _in_process(folder: str) -> LLM:
    if not Path(folder).is_dir():
        raise ConfigError(f"there is no folder {folder}; hf: takes the folder of a model in the layout of transformers")
    from marl_gem.llm.transformers import load

    return load(folder)

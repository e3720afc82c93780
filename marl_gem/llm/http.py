"""Any server that speaks OpenAI's chat-completions API, over HTTP: vLLM, SGLang, llama.cpp, OpenAI itself.

    model = HTTPModel("http://127.0.0.1:8000/v1", "Qwen/Qwen3-1.7B")
    policy = LLMPolicy(Retrying(model))

What a call can fail at, and what that is told as:

    ServerUnreachable   no connection, a broken one, a time-out while connecting, a name that cannot be looked up
                        now, 502, 503 without Retry-After
    TransientLLMError   408, 409, 425, 429, other 5xx; no answer in time; a reply cut short, or that is no chat
                        completion (it may be a proxy's)
    ContextTooLong      the server says so, with 400, 413, 422 or 500
    LLMError            all else: 400, 401, 403, 404, 413, 422, 429 for want of credit, 501, 505, a redirect, a
                        name that does not exist, a certificate that does not hold, a reply of unreasonable size

Nothing is asked twice here, but for fields that a server refuses: `marl_gem.llm.retry` does that. No message
holds the API key.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import time
import urllib.request
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from marl_gem.errors import (
    ConfigError,
    ContextTooLong,
    LLMError,
    MissingPackage,
    ServerUnreachable,
    TransientLLMError,
)
from marl_gem.llm import Sampling, wire
from marl_gem.types import Message, Response, ToolSpec

try:
    import aiohttp
    from yarl import URL
except ImportError as error:
    raise MissingPackage(error.name or "aiohttp", "llm", "a model behind HTTP") from error

MAX_BODY = 64 * 2**20
"""The most bytes of a reply that are read, unpacked."""


QUICK = aiohttp.ClientTimeout(total=30.0)
"""For what takes no model."""


class Timeouts(NamedTuple):
    """Seconds to wait: for a connection, for the next bytes of a reply, for a whole call.

    A server sends nothing before an answer is complete, so `read` must do for the longest answer.
    """

    connect: float = 10.0
    read: float = 600.0
    total: float = 900.0


class HTTPModel:
    """A model behind an OpenAI-compatible server.

    May be used in several event loops, one after the other. Each has connections of its own, which are closed
    by `aclose` or when the loop ends as `asyncio.run` ends it.

    Args:
        url: where the API is, as in "http://127.0.0.1:8000/v1". A user and a password in it are sent, and shown
            nowhere.
        model: its name there. None asks the server, which must then serve only one.
        adapter: the name of a LoRA adapter of it that answers instead.
        api_key_env: the environment variable that holds the API key. None sends none, but OPENAI_API_KEY to
            OpenAI itself.
        logprobs: what the server's log-probabilities are. Most give "raw" ones, of the model as it is; those
            are the ones that tokens were drawn with, and are kept, only at temperature 1 and top_p 1. "processed"
            says that temperature and top_p are in them (vLLM's `--logprobs-mode processed_logprobs`), which holds
            at any temperature but 0. "off" asks for neither them nor the ids of tokens.
        extra_body: what else to put into every request, as in {"chat_template_kwargs": {"enable_thinking": False}}.
        price: US dollars for a million tokens read and written; without it costs are unknown.
        timeouts: how long to wait.
        connections: how many requests may be on their way at once.

    Raises:
        ConfigError: the URL, the key or `extra_body` cannot be used.
    """

    version: int = 0
    """How often the policy behind it was updated; whoever trains it sets this. Goes into responses."""

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        adapter: str | None = None,
        api_key_env: str | None = None,
        logprobs: Literal["raw", "processed", "off"] = "raw",
        extra_body: Mapping[str, Any] | None = None,
        price: tuple[float, float] | None = None,
        timeouts: Timeouts | None = None,
        connections: int = 1000,
    ) -> None:
        base = _base(url)
        self._base, self._login = base.with_user(None), base.user and f"{base.user}:{base.password or ''}"
        self.url = str(self._base.with_query(None))
        self.model = model
        self.adapter = adapter
        self.api_key_env = api_key_env or ("OPENAI_API_KEY" if self._base.host == "api.openai.com" else None)
        self.logprobs = logprobs
        self.extra_body = dict(extra_body or {})
        self.price = price
        self.timeouts = timeouts or Timeouts()
        self.connections = connections
        self._refused = wire.BEYOND_OPENAI if self._base.host == "api.openai.com" else frozenset[str]()
        self._understood = False
        self._loaded: dict[str, _Adapter] = {}
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        if logprobs not in ("raw", "processed", "off"):
            raise ConfigError(f"logprobs is raw, processed or off, not {logprobs!r}")
        if connections < 1:
            raise ConfigError(f"connections is a number from 1 up, not {connections}")
        if self.api_key_env and not self._key():
            raise ConfigError(
                f"{self.url} needs an API key in the environment variable {self.api_key_env}, which is not set"
            )
        try:
            wire.write_json(self.extra_body)
        except TypeError as error:
            raise ConfigError(f"extra_body must be what JSON can hold: {error}") from None

    @property
    def name(self) -> str:
        model = "+".join(filter(None, (self.model, self.adapter))) or self.url
        return f"{model}@{self.version}" if self.version else model

    def __repr__(self) -> str:
        return f"HTTPModel({self.url!r}, {self.name!r})"

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        """Answer, see `marl_gem.llm.LLM`; the top of this file tells what is raised when."""
        model = self.adapter or await self._model()
        plain, warm = sampling.temperature == 1 and sampling.top_p == 1, sampling.temperature > 0
        refused, version, loaded_again = self._refused, self.version, False
        while True:
            adapter = self._loaded.get(model)
            body = wire.write_request(
                model,
                messages,
                sampling,
                seed,
                tools,
                tokens=self.logprobs != "off",
                logprobs=(self.logprobs == "raw" and plain) or (self.logprobs == "processed" and warm),
                refused=refused,
                extra_body=({"cache_salt": adapter.salt} if adapter else {}) | self.extra_body,
            )
            answer = await self._send("POST", "chat/completions", wire.write_json(body))
            if answer.status == 200:
                break
            if answer.status == 404 and adapter and not loaded_again:
                await self._load_again(model, adapter.path)
                loaded_again = True
                continue
            more = self._dispensable(answer, body) - refused
            if not more:
                raise await self._refusal(answer, model)
            refused |= more
        self._refused |= refused  # known by now to be what stood in the way
        self._understood = True
        try:
            reply = wire.read_reply(answer.body)
            return wire.read_response(reply, version=version, seconds=answer.seconds, price=self.price)
        except ValueError as error:
            raise TransientLLMError(self._say(answer, f"with a reply that cannot be used: {error}")) from None

    async def health(self) -> None:
        """Ask whether the server is well: `/health`, or the list of models where there is no such thing.

        Raises:
            ServerUnreachable, TransientLLMError: it is not.
            LLMError: it answers something else altogether.
        """
        root = self._base.path.removesuffix("/").removesuffix("/v1")
        answer = await self._send("GET", self._base.with_path(f"{root}/health", keep_query=True))
        if 400 <= answer.status < 500:
            await self.models()
        elif answer.status != 200:
            raise await self._refusal(answer)

    async def models(self, *, adapters: bool = False) -> list[str]:
        """The names of the models that the server serves, and of their adapters if asked for.

        Raises:
            LLMError: the server does not tell; see the top of this file.
        """
        answer = await self._send("GET", "models")
        if answer.status != 200:
            raise await self._refusal(answer)
        try:
            return wire.read_models(answer.body, adapters)
        except ValueError:
            raise TransientLLMError(self._say(answer, "with no list of models")) from None

    async def load_adapter(self, name: str, path: str, *, replace: bool = False) -> None:
        """Let a vLLM server load a LoRA adapter from a folder that it can read, under this name.

        With `replace` it takes the place of one of the same name, for requests that come from then on. Those on their
        way may be answered by either. Give each version a folder of its own and let it be while it is in use: the
        server may read it again.

        Load it with the model that answers as it. That one waits while an adapter is replaced, sees to it that the
        server uses nothing that it computed with the weights before, and loads the adapter again into a server that
        has lost it because it was started again.

        Raises:
            LLMError: it cannot. The server must be started with `--enable-lora`, and with the environment
                variable VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.
        """
        async with (await self._pool()).asking:
            # Not with `load_inplace`: vLLM then reads the folder at every step, and dies when it is gone
            # (https://github.com/vllm-project/vllm/issues/33791).
            if replace and name in await self.models(adapters=True):
                await self._adapt("unload_lora_adapter", {"lora_name": name})
            await self._adapt("load_lora_adapter", {"lora_name": name, "lora_path": path})
            self._loaded[name] = _Adapter(path, salt=os.urandom(8).hex())

    async def unload_adapter(self, name: str) -> None:
        """Let a vLLM server forget a LoRA adapter.

        Raises:
            LLMError: it cannot, see `load_adapter`; or there is none of this name.
        """
        self._loaded.pop(name, None)
        await self._adapt("unload_lora_adapter", {"lora_name": name})

    async def aclose(self) -> None:
        """Close the connections of the running event loop. A later call opens new ones."""
        if pool := self._pools.get(asyncio.get_running_loop()):
            await pool.keeper.aclose()

    async def _model(self) -> str:
        """The model's name, asked for once if none was given."""
        if self.model is None:
            async with (await self._pool()).asking:
                if self.model is None:
                    served = await self.models()
                    if len(served) != 1:
                        raise LLMError(
                            f"{self.url} serves {len(served)} models; name one: {_some(served)}"
                            if served
                            else f"{self.url} serves no model"
                        )
                    (self.model,) = served
        return self.model

    async def _load_again(self, name: str, path: str) -> None:
        """Load an adapter that the server does not know, unless another call has done so meanwhile."""
        async with (await self._pool()).asking:
            if name not in await self.models(adapters=True):
                await self._adapt("load_lora_adapter", {"lora_name": name, "lora_path": path})

    async def _adapt(self, path: str, body: dict[str, Any]) -> None:
        answer = await self._send("POST", path, wire.write_json(body))
        if answer.status == 404:
            if "lora" not in answer.text.lower():
                advice = "It loads no adapters; start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
            else:
                advice = f"Can it read {body['lora_path']}?" if "lora_path" in body else ""
            raise LLMError(self._say(answer, advice=advice))
        if answer.status != 200:
            raise await self._refusal(answer)

    # Sending

    async def _pool(self) -> _Pool:
        """The running loop's connections."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or pool.session.closed:
            for ended in [other for other in self._pools if other.is_closed()]:
                del self._pools[ended]
            keeper = _keep_open(self._session_options)
            pool = _Pool(await anext(keeper), keeper, asyncio.Semaphore(self.connections), asyncio.Lock())
            self._pools[loop] = pool
        return pool

    @property
    def _session_options(self) -> dict[str, Any]:
        """What a session is made with."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if credentials := self._credentials():
            headers["Authorization"] = credentials
        connect, read, total = self.timeouts
        return {
            "timeout": aiohttp.ClientTimeout(total=total, sock_connect=connect, sock_read=read),
            "headers": headers,
            "proxy": _proxy(self._base),
        }

    async def _send(self, method: str, path: str | URL, body: bytes | None = None) -> _Answer:
        """Ask once, and read the whole answer, whatever its status."""
        url = path if isinstance(path, URL) else self._base.joinpath(path).with_query(self._base.query)
        pool = await self._pool()
        async with pool.places:
            started = time.monotonic()
            try:
                async with pool.session.request(
                    method, url, data=body, allow_redirects=False, timeout=pool.session.timeout if body else QUICK
                ) as answer:
                    said = self._redact(await self._read(answer))
                    return _Answer(answer.status, answer.headers, said, time.monotonic() - started)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                failure = self._unanswered(error)
        raise failure  # not within `except`: aiohttp's errors hold the request with its key, and would hang on to this

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        chunks, size = [], 0
        async for chunk in answer.content.iter_any():
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BODY:
                raise LLMError(f"{self.url} answered with more than {MAX_BODY >> 20} MiB; is that a model?")
        return b"".join(chunks)

    # Secrets

    def _key(self) -> str:
        """Read when it is needed: what holds no key cannot show one."""
        return os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""

    def _credentials(self) -> str:
        """What stands in the header Authorization."""
        if self._login:
            return f"Basic {b64encode(self._login.encode()).decode()}"
        return f"Bearer {key}" if (key := self._key()) else ""

    def _without_secrets(self, text: str) -> str:
        return self._redact(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def _redact(self, body: bytes) -> bytes:
        """Take out what servers echo: what is shorter than 8 characters is no secret, and may be any word."""
        secrets = [self._key(), self._credentials().partition(" ")[2], (self._login or "").partition(":")[2]]
        secrets += [value for name, value in self._base.query.items() if _SECRET.search(name)]
        for secret in secrets:
            if len(secret) >= 8:
                body = body.replace(secret.encode(), b"[secret]")
        return body

    # What went wrong

    def _dispensable(self, answer: _Answer, body: dict[str, Any]) -> set[str]:
        """The parts of a request that it may have been refused for, and that can be done without."""
        if answer.status not in (400, 422) or wire.is_overflow(answer.text):
            return set()
        named = wire.refusals(answer.text, body)
        if named or self._understood:
            return named
        return set(wire.BEYOND_OPENAI & body.keys())  # perhaps it does not say what it minds

    async def _refusal(self, answer: _Answer, model: str = "") -> LLMError:
        """The error that an answer other than 200 stands for."""
        status = answer.status
        if status in (400, 413, 422, 500) and wire.is_overflow(answer.text):
            return ContextTooLong(self._say(answer, advice="Show less of the history, or ask for fewer tokens"))
        if status == 429 and "insufficient_quota" in answer.text:
            return LLMError(self._say(answer, advice="There is no credit left; waiting will not help"))
        wait = wire.retry_after(answer.headers)
        if status == 502 or (status == 503 and wait is None):
            return ServerUnreachable(self._say(answer))
        if status in (408, 409, 425, 429) or (status >= 500 and status not in (501, 505)):
            return TransientLLMError(self._say(answer), wait)
        return LLMError(self._say(answer, advice=await self._advice(answer, model)))

    async def _advice(self, answer: _Answer, model: str) -> str:
        status = answer.status
        if status in (401, 403) and self.api_key_env:
            return f"Is the API key in the environment variable {self.api_key_env} the right one?"
        if status in (401, 403):
            return "Put the API key into an environment variable, and give its name as api_key_env"
        if 300 <= status < 400:
            target = str(answer.headers.get("Location")).partition("?")[0]
            return f"It sends us on to {target}; if you trust that, give it as url"
        if status == 404 and model:
            with suppress(LLMError):
                return f"We asked for {model!r}; it serves {_some(await self.models(adapters=True))}"
        if status == 404:
            return "Is the url right? It often ends in /v1"
        return ""

    def _say(self, answer: _Answer, how: str = "", advice: str = "") -> str:
        """A message: who answered what, in one line without secrets, and what to do."""
        said = " ".join("".join(letter if letter.isprintable() else " " for letter in answer.text[:2000]).split())
        beginning = f"{said[:300]}..." if len(said) > 300 else said
        message = ". ".join(filter(None, (f"{how}: {beginning or 'nothing'}" if how else beginning, advice)))
        return self._without_secrets(f"{self.url} answered {answer.status}{' ' if how else ': '}{message or 'nothing'}")

    def _unanswered(self, error: Exception) -> LLMError:
        """The error that a call without an answer stands for."""
        cause = getattr(error, "os_error", error)  # what aiohttp wraps
        number = cause.errno if isinstance(cause, OSError) else None
        told = error.message if isinstance(error, aiohttp.ClientResponseError) else error  # not with the whole URL
        why = os.strerror(number) if number and number > 0 else self._without_secrets(str(told))
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return ServerUnreachable(f"{self.url} took no connection for {self.timeouts.connect:g} s. Is it running?")
        if isinstance(error, aiohttp.SocketTimeoutError):
            return TransientLLMError(f"{self.url} sent nothing for {self.timeouts.read:g} s")
        if isinstance(error, TimeoutError):
            return TransientLLMError(f"{self.url} was not done after {self.timeouts.total:g} s")
        if isinstance(error, aiohttp.ClientSSLError):
            return LLMError(f"{self.url}: {error}. Does it speak https, with a certificate that this machine trusts?")
        if isinstance(cause, socket.gaierror):
            if number == socket.EAI_AGAIN:
                return ServerUnreachable(f"{self.url}: the name cannot be looked up at the moment ({cause.strerror})")
            return LLMError(f"{self.url}: no machine has this name ({cause.strerror}). Is the url right?")
        if number in (errno.EMFILE, errno.ENFILE):
            return TransientLLMError(f"{self.url}: {why}. Allow more (ulimit -n), or fewer connections")
        if isinstance(error, aiohttp.ClientConnectorError):
            return ServerUnreachable(f"{self.url} takes no connection: {why}. Is the server running?")
        if isinstance(error, (aiohttp.ServerDisconnectedError, OSError)):
            return ServerUnreachable(f"{self.url} broke the connection: {why}")
        return TransientLLMError(f"{self.url} did not answer in full: {why}")


class _Adapter(NamedTuple):
    """An adapter that was loaded from `path`. vLLM keeps what it computes of prompts apart by `salt`."""

    path: str
    salt: str


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.body[:10_000].decode("utf-8", "replace")


@dataclass(eq=False, slots=True)
class _Pool:
    """What belongs to one event loop."""

    session: aiohttp.ClientSession
    keeper: AsyncGenerator[aiohttp.ClientSession, None]
    places: asyncio.Semaphore  # not the session's own limit: waiting for a place counts against no time-out
    asking: asyncio.Lock


async def _keep_open(options: Mapping[str, Any]) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Hold a session open. A loop that ends closes its generators first, and so the session.

    It knows nothing of the model, so that a model that is dropped lets go of this, and this closes the session.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0)  # uvicorn hangs up after 5 s
    session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), **options)
    try:
        yield session
    finally:
        await session.close()


_SECRET = re.compile(r"key|token|secret|password|sig|code", re.IGNORECASE)
"""Names of values in a URL's query that are nobody else's business."""


def _base(url: str) -> URL:
    """Where the API is; a URL without a path gets the usual one."""
    try:
        base = URL(url.strip())
        host = base.host
    except ValueError:
        host = None
    if not host or base.scheme not in ("http", "https"):
        raise ConfigError("the url of a model must look like http://127.0.0.1:8000/v1")  # not shown: it may hold a key
    path = base.path.rstrip("/").removesuffix("/chat/completions")
    return base.with_path(path or "/v1", keep_query=True)


def _proxy(url: URL) -> str | None:
    """The proxy that the environment names for this URL, as HTTPS_PROXY and NO_PROXY do; none to this machine."""
    host = url.host or ""
    if host in ("localhost", "127.0.0.1", "::1") or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(url.scheme)


def _some(names: Sequence[str]) -> str:
    """Some of these names, for a message."""
    return ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")

"""The HTTP side of `marl_gem.llm.http`: connections, credentials, reading replies, errors of calls without a reply."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import socket
import time
import urllib.request
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from marl_gem.episode_clock import infrastructure
from marl_gem.errors import ConfigError, LLMError, MissingPackage, ServerUnreachable, TransientLLMError
from marl_gem.llm import secrets
from marl_gem.open_files import file_limit, files_left

try:
    import aiohttp
    from yarl import URL
except ImportError as error:
    raise MissingPackage(error.name or "aiohttp", "llm", "a model behind HTTP") from error

_log = logging.getLogger(__name__)

MAX_BODY = 64 * 2**20
"""The most bytes of a reply that are read, after decompression."""

MODELS = 4
"""For how many models the files that may be open are shared out."""

SHORT_TIMEOUT = aiohttp.ClientTimeout(total=30.0)
"""For requests that need no generation."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds to wait: for a connection, for the next bytes of a reply, for a complete call.

    A server sends nothing before an answer is complete, so `read` must be long enough for the longest answer.

    Raises:
        ConfigError: one is no number above 0.
    """

    connect: float = 10.0
    read: float = 600.0
    total: float = 900.0

    def __post_init__(self) -> None:
        for name, seconds in vars(self).items():
            if not 0 < seconds < math.inf:  # nan is neither
                raise ConfigError(f"the time-out {name!r} is a number of seconds above 0, not {seconds}")


HEADERS = ("Retry-After", "Location")
"""The headers of a reply that are read."""


class Reply(NamedTuple):
    """A reply of the server: status, the headers in `HEADERS`, the body, both without secrets, the seconds it took, and
    whether there was a secret in the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float
    redacted: bool = False

    @property
    def text(self) -> str:
        """The beginning of the body."""
        return self.body[:10_000].decode("utf-8", "replace")


@dataclass(eq=False, slots=True)
class _Pool:
    """What belongs to one event loop."""

    session: aiohttp.ClientSession
    keeper: AsyncGenerator[aiohttp.ClientSession, None]
    slots: asyncio.Semaphore  # not the session's limit: waiting for a slot must not count against a time-out
    lock: asyncio.Lock
    probe_lock: asyncio.Lock


class HTTPClient:
    """Sends requests to one API, and removes secrets from all that it returns or raises.

    It may be used in several event loops, one after the other; each has its own connections.

    Args:
        url: the base URL of the API. A user and a password in it are sent as credentials, and never shown.
        api_key_env: the environment variable with the API key. None means none, except OPENAI_API_KEY for OpenAI.
        timeouts: how long to wait.
        connections: the greatest number of requests at the same time.

    Raises:
        ConfigError: the URL cannot be used, or the environment variable is not set.
    """

    def __init__(
        self, url: str, *, api_key_env: str | None = None, timeouts: Timeouts | None = None, connections: int = 1000
    ) -> None:
        base = parse_url(url)
        self.base = base.with_user(None)
        self._login = base.user and f"{base.user}:{base.password or ''}"
        self._url_secrets = tuple(secrets.url_secrets(str(base)))
        self.url = str(self.base.with_query(None))
        self.is_openai = base.host == "api.openai.com"
        self.api_key_env = api_key_env or ("OPENAI_API_KEY" if self.is_openai else None)
        self.timeouts = timeouts or Timeouts()
        self.connections = connections
        self._urls: dict[str, URL] = {}
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._limited: int | None = None  # how many connections there may be, where that is fewer and was not said
        if connections < 1:
            raise ConfigError(f"connections is a number from 1 up, not {connections}")
        if self.api_key_env and not self._key():
            raise ConfigError(
                f"{self.url} needs an API key in the environment variable {self.api_key_env}, which is not set"
            )
        if not self._key().isprintable():
            raise ConfigError(
                f"the API key in {self.api_key_env} holds a line break or another character that cannot be sent; "
                "set the variable to the key alone"
            )

    async def send(self, method: str, path: str | URL, body: bytes | None = None) -> Reply:
        """Send a request once, and read the complete reply, whatever its status.

        Args:
            path: relative to the base URL; or a URL.

        Raises:
            ServerUnreachable, TransientLLMError, LLMError: there is no complete reply; see `marl_gem.llm.http`.
        """
        url = path if isinstance(path, URL) else self._url_of(path)
        pool = await self._pool()
        if pool.slots.locked():
            self._tell_of_the_limit()
            with infrastructure():  # the wait for a connection is not the agent's time
                await pool.slots.acquire()
        else:
            await pool.slots.acquire()
        try:
            started = time.monotonic()
            async with pool.session.request(
                method,
                url,
                data=body,
                allow_redirects=False,
                timeout=pool.session.timeout if body else SHORT_TIMEOUT,
            ) as response:
                content, redacted = self._redacted(await self._read(response))
                headers = self._headers(response)
                return Reply(response.status, headers, content, time.monotonic() - started, redacted)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            failure = self._no_reply(error)
        finally:
            pool.slots.release()
        raise failure  # outside of `except`: aiohttp's errors hold the request and its key, and must not be the context

    def _url_of(self, path: str) -> URL:
        if path not in self._urls:
            self._urls[path] = self.base.joinpath(path).with_query(self.base.query)
        return self._urls[path]

    async def lock(self) -> asyncio.Lock:
        """A lock for requests that must not overlap; one per event loop."""
        return (await self._pool()).lock

    async def probe_lock(self) -> asyncio.Lock:
        """A lock for finding out what the server takes; one per event loop."""
        return (await self._pool()).probe_lock

    async def aclose(self) -> None:
        """Close the connections of the running event loop. A later call opens new ones."""
        if pool := self._pools.get(asyncio.get_running_loop()):
            await pool.keeper.aclose()

    def describe(self, reply: Reply, problem: str = "", advice: str = "") -> str:
        """An error message about a reply, in one line and without secrets: the server, the status, the text, advice."""
        text = " ".join("".join(letter if letter.isprintable() else " " for letter in reply.text[:2000]).split())
        beginning = f"{text[:300]}..." if len(text) > 300 else text
        message = ". ".join(filter(None, (f"{problem}: {beginning or 'nothing'}" if problem else beginning, advice)))
        separator = " " if problem else ": "
        return self._without_secrets(f"{self.url} answered {reply.status}{separator}{message or 'nothing'}")

    # Connections

    async def _pool(self) -> _Pool:
        """The connections of the running event loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or pool.session.closed:
            for closed in [other for other in self._pools if other.is_closed()]:
                del self._pools[closed]
            keeper = _keep_open(self._session_options())
            slots = asyncio.Semaphore(self._most_connections())
            pool = _Pool(await anext(keeper), keeper, slots, asyncio.Lock(), asyncio.Lock())
            self._pools[loop] = pool
        return pool

    def _most_connections(self) -> int:
        """How many connections there may be, so that enough files are left for other models and all else.

        Raises:
            ConfigError: there may be none.
        """
        most = files_left(MODELS * self.connections) // MODELS
        self._limited = most if most < self.connections else None
        if most < 1:
            raise ConfigError(f"no connection to {self.url} can be opened: {file_limit(2 * self.connections)}")
        return most

    def _tell_of_the_limit(self) -> None:
        """Say once that calls wait for others because of the limit on open files."""
        if self._limited:
            limit = file_limit(2 * self.connections)
            _log.warning("at most %d calls of %s at the same time: %s", self._limited, self.url, limit)
            self._limited = None

    def _session_options(self) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if credentials := self._credentials():
            headers["Authorization"] = credentials
        wait, proxy = self.timeouts, find_proxy(self.base)
        if proxy:
            self._url_secrets += tuple(secrets.url_secrets(proxy))
        return {
            "timeout": aiohttp.ClientTimeout(total=wait.total, sock_connect=wait.connect, sock_read=wait.read),
            "headers": headers,
            "proxy": proxy,
        }

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        chunks, size = [], 0
        async for chunk in response.content.iter_any():
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BODY:
                raise LLMError(f"{self.url} answered with more than {MAX_BODY >> 20} MiB; is that a model?")
        return b"".join(chunks)

    # Secrets

    def _key(self) -> str:
        """The API key, read from the environment when it is needed and never stored."""
        return os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""

    def _credentials(self) -> str:
        """The value of the header Authorization."""
        if self._login:
            return f"Basic {b64encode(self._login.encode()).decode()}"
        return f"Bearer {key}" if (key := self._key()) else ""

    def _secrets(self) -> list[str]:
        """What must not be shown; with a short key the complete header, since "Bearer x" is no ordinary word."""
        credentials = self._credentials()
        key = credentials.partition(" ")[2]
        found = [key, *([] if len(key) >= secrets.SHORTEST else [credentials]), *self._url_secrets]
        return [secret for secret in dict.fromkeys(found) if secret]

    def _without_secrets(self, text: str) -> str:
        return secrets.redact_message(text, self._secrets())

    def _redacted(self, body: bytes) -> tuple[bytes, bool]:
        """A body without secrets, and whether it held some."""
        content = secrets.redact_body(body, self._secrets())
        return content, content != body

    def _headers(self, response: aiohttp.ClientResponse) -> dict[str, str]:
        given = {name: response.headers[name] for name in HEADERS if name in response.headers}
        return {name: self._without_secrets(value) for name, value in given.items()}

    # Errors

    def _no_reply(self, error: Exception) -> LLMError:
        """The error for a call that got no complete reply."""
        cause = getattr(error, "os_error", error)  # what aiohttp wraps
        number = cause.errno if isinstance(cause, OSError) else None
        text = error.message if isinstance(error, aiohttp.ClientResponseError) else error  # not with the complete URL
        why = os.strerror(number) if number and number > 0 else self._without_secrets(str(text))
        if isinstance(error, aiohttp.ClientOSError) and number is None:  # aiohttp could not write the request
            why = "it was closed while the request was sent"
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return ServerUnreachable(
                f"{self.url} took no connection for {self.timeouts.connect:g} s (connect_timeout). Is it running?"
            )
        if isinstance(error, aiohttp.SocketTimeoutError):
            return TransientLLMError(f"{self.url} sent nothing for {self.timeouts.read:g} s (read_timeout)")
        if isinstance(error, TimeoutError):
            return TransientLLMError(f"{self.url} was not done after {self.timeouts.total:g} s (timeout)")
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


async def _keep_open(options: Mapping[str, Any]) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Keep a session open until this generator is closed.

    An event loop that ends closes its generators first, and so the session. This holds no reference to the client, so
    that a client which is dropped drops this generator too, which closes the session.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0)  # uvicorn closes idle connections after 5 s
    session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), **options)
    try:
        yield session
    finally:
        await session.close()


def parse_url(url: str) -> URL:
    """The base URL of an API. A URL without a path gets /v1; a trailing /chat/completions is removed.

    Raises:
        ConfigError: it is no http or https URL.
    """
    try:
        base = URL(url.strip())
        host = base.host
    except ValueError:
        host = None
    if not host or base.scheme not in ("http", "https"):
        raise ConfigError("the url of a model must look like http://127.0.0.1:8000/v1")  # not shown: it may hold a key
    path = base.path.rstrip("/").removesuffix("/chat/completions")
    return base.with_path(path or "/v1", keep_query=True)


def find_proxy(url: URL) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name for this URL; never one for this machine."""
    host = url.host or ""
    if host in ("localhost", "127.0.0.1", "::1") or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(url.scheme)

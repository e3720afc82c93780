"""Any server that speaks OpenAI's chat-completions API, over HTTP: vLLM, SGLang, llama.cpp, OpenAI itself.

    model = HTTPModel("http://127.0.0.1:8000/v1", "Qwen/Qwen3-1.7B")
    policy = LLMPolicy(Retrying(model))

What a call raises:

    ServerUnreachable   no connection, a broken connection, a time-out while connecting, a name that cannot be looked
                        up now, 502, 503 without Retry-After
    TransientLLMError   408, 409, 425, 429, other 5xx; no answer in time; a reply that is cut short or is no chat
                        completion (a proxy may have sent it)
    ContextTooLong      the server says that the prompt is too long, with 400, 413, 422 or 500
    LLMError            all else: 400, 401, 403, 404, 413, 422, 429 for lack of credit, 501, 505, a redirect, a name
                        that does not exist, an invalid certificate, a reply of unreasonable size

Nothing is retried here (see `marl_gem.llm.retry`). No message holds the API key.

Before the first answer the server is sent one short request with all fields that are in use (more only if it refuses
that): which optional ones it does not take is found out once, and holds for all requests of this model object. A line
in the log says so, and `Response.unsent` names the fields in each record; see `marl_gem.llm.probe`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from marl_gem.errors import ConfigError, ContextTooLong, LLMError, ServerUnreachable, TransientLLMError
from marl_gem.llm import Sampling, wire
from marl_gem.llm.http_client import HTTPClient, Reply, Timeouts
from marl_gem.llm.probe import Ask, Probe, Refusal
from marl_gem.types import Message, Response, ToolSpec

__all__ = ["HTTPModel", "Timeouts"]

PROBE: list[Message] = [{"role": "user", "content": "Say hi."}]
PROBE_TOKENS = 16
"""What a server is asked to find out which fields it takes; some refuse a limit below 16 tokens."""


class HTTPModel:
    """A model behind an OpenAI-compatible server.

    It may be used in several event loops, one after the other. Each has its own connections, which are closed by
    `aclose`, or when the loop ends as `asyncio.run` ends it.

    Args:
        url: the base URL of the API, as in "http://127.0.0.1:8000/v1". A user and a password in it are sent, and
            never shown.
        model: the model's name on the server. None asks the server, which must then serve only one.
        adapter: the name of a LoRA adapter of the model that answers instead.
        api_key_env: the environment variable that holds the API key. None sends none, but OPENAI_API_KEY to
            OpenAI itself.
        logprobs: what the server's log-probabilities are. Most servers give "raw" ones, of the unscaled model; those
            are the probabilities that tokens were drawn with, and are kept, only at temperature 1 and top_p 1.
            "processed" states that temperature and top_p are included (vLLM's `--logprobs-mode
            processed_logprobs`), which holds at any temperature but 0. "off" requests neither log-probabilities nor
            token ids.
        extra_body: fields added to every request, as in {"chat_template_kwargs": {"enable_thinking": False}}.
        price: US dollars for a million tokens read and written; without it costs are unknown.
        timeouts: how long to wait.
        connections: the greatest number of requests at the same time.

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
        if logprobs not in ("raw", "processed", "off"):
            raise ConfigError(f"logprobs is raw, processed or off, not {logprobs!r}")
        self._client = HTTPClient(url, api_key_env=api_key_env, timeouts=timeouts, connections=connections)
        self.url, self.api_key_env = self._client.url, self._client.api_key_env
        self.model = model
        self.adapter = adapter
        self.logprobs = logprobs
        self.extra_body = dict(extra_body or {})
        self.price = price
        self.timeouts = self._client.timeouts
        # What OpenAI's own API is known not to have is no finding about it.
        self._unknown_fields = wire.BEYOND_OPENAI if self._client.is_openai else frozenset[str]()
        self._probe = Probe(self.url, self._unknown_fields)
        self._loaded: dict[str, Adapter] = {}
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
        """Answer, see `marl_gem.llm.LLM`; the top of this file lists what is raised."""
        model, version = self.adapter or await self._model(), self.version
        fields = self._fields(sampling, tools)
        if not self._probe.knows(fields):
            ask = self._refusal_of(model, sampling, seed, tools)
            await self._probe.find(fields, ask, await self._client.probe_lock())
        reply = await self._send(model, messages, sampling, seed, tools, self._probe.refused)
        if reply.status != 200:
            raise await self._error(reply, model)
        response = self._read(reply, version)
        if missing := (fields & self._probe.refused) - self._unknown_fields:
            unsent = tuple(name for name in wire.DISPENSABLE if name in missing)
            return msgspec.structs.replace(response, unsent=unsent)
        return response

    async def health(self) -> None:
        """Ask whether the server works: `/health`, or the list of models where there is no such path.

        Raises:
            ServerUnreachable, TransientLLMError: it does not work.
            LLMError: it answers something else.
        """
        base = self._client.base
        root = base.path.removesuffix("/").removesuffix("/v1")
        reply = await self._client.send("GET", base.with_path(f"{root}/health", keep_query=True))
        if 400 <= reply.status < 500:
            await self.models()
        elif reply.status != 200:
            raise await self._error(reply)

    async def models(self, *, adapters: bool = False) -> list[str]:
        """The names of the models that the server serves, and of their adapters if asked for.

        Raises:
            LLMError: the server gives no list; see the top of this file.
        """
        reply = await self._client.send("GET", "models")
        if reply.status != 200:
            raise await self._error(reply)
        try:
            return wire.read_models(reply.body, adapters)
        except ValueError:
            raise TransientLLMError(self._client.describe(reply, "with no list of models")) from None

    async def load_adapter(self, name: str, path: str, *, replace: bool = False) -> None:
        """Load a LoRA adapter into a vLLM server, under this name.

        With `replace` it replaces an adapter of the same name, for requests that are sent from then on; either may
        answer requests that are being processed. Give each version a folder of its own and keep the folder while the
        adapter is in use: the server may read it again.

        Call this on the model that is used with the adapter. It waits while an adapter is replaced, prevents the
        server from reusing its prefix cache of the old weights, and loads the adapter again into a server that was
        restarted.

        Args:
            path: a folder that the server can read.

        Raises:
            LLMError: it cannot. The server must be started with `--enable-lora`, and with the environment
                variable VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.
        """
        async with await self._client.lock():
            # Not with `load_inplace`: vLLM then reads the folder at every step, and dies when it is gone
            # (https://github.com/vllm-project/vllm/issues/33791).
            if replace and name in await self.models(adapters=True):
                await self._update_adapter("unload_lora_adapter", {"lora_name": name})
            await self._update_adapter("load_lora_adapter", {"lora_name": name, "lora_path": path})
            self._loaded[name] = Adapter(path, salt=os.urandom(8).hex())

    async def unload_adapter(self, name: str) -> None:
        """Remove a LoRA adapter from a vLLM server.

        Raises:
            LLMError: it cannot, see `load_adapter`; or there is none of this name.
        """
        self._loaded.pop(name, None)
        await self._update_adapter("unload_lora_adapter", {"lora_name": name})

    async def aclose(self) -> None:
        """Close the connections of the running event loop. A later call opens new ones."""
        await self._client.aclose()

    async def _model(self) -> str:
        """The model's name; the server is asked once if none was given."""
        if self.model is None:
            async with await self._client.lock():
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

    async def _reload_adapter(self, name: str, path: str) -> None:
        """Load an adapter that the server does not know, unless another call has done so meanwhile."""
        async with await self._client.lock():
            if name not in await self.models(adapters=True):
                await self._update_adapter("load_lora_adapter", {"lora_name": name, "lora_path": path})

    async def _update_adapter(self, path: str, body: dict[str, Any]) -> None:
        reply = await self._client.send("POST", path, wire.write_json(body))
        if reply.status == 404:
            if "lora" not in reply.text.lower():
                advice = "It loads no adapters; start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
            else:
                advice = f"Can it read {body['lora_path']}?" if "lora_path" in body else ""
            raise LLMError(self._client.describe(reply, advice=advice))
        if reply.status != 200:
            raise await self._error(reply)

    # Requests and replies

    def _asks_for_logprobs(self, sampling: Sampling) -> bool:
        """Whether the server's log-probabilities are those that tokens are drawn with."""
        if self.logprobs == "raw":
            return sampling.temperature == 1 and sampling.top_p == 1
        return self.logprobs == "processed" and sampling.temperature > 0

    def _fields(self, sampling: Sampling, tools: Sequence[ToolSpec]) -> frozenset[str]:
        """The fields of a request that a server may refuse, or know by another name."""
        fields = {"seed", "top_k", "min_p", "repetition_penalty"}
        fields |= {"return_token_ids"} if self.logprobs != "off" else set()
        fields |= {"logprobs"} if self._asks_for_logprobs(sampling) else set()
        fields |= {"max_tokens"} if sampling.max_tokens is not None else set()
        fields |= {"tool_choice"} if tools else set()
        return frozenset(fields - self.extra_body.keys())

    async def _send(
        self,
        model: str,
        messages: Sequence[Message],
        sampling: Sampling,
        seed: int,
        tools: Sequence[ToolSpec],
        refused: frozenset[str],
    ) -> Reply:
        """The reply to one request, without refused fields."""
        body = wire.write_request(
            model,
            messages,
            sampling,
            seed,
            tools,
            tokens=self.logprobs != "off",
            logprobs=self._asks_for_logprobs(sampling),
            refused=refused,
            extra_body=self.extra_body,
        )
        return await self._post("chat/completions", model, body)

    async def _post(self, path: str, model: str, body: Mapping[str, Any]) -> Reply:
        """The reply to a request of a model. An adapter that the server has lost is loaded again."""
        reloaded = False
        while True:
            adapter = self._loaded.get(model)
            salt = {"cache_salt": adapter.salt} if adapter else {}
            reply = await self._client.send("POST", path, wire.write_json(salt | dict(body)))
            if reply.status != 404 or adapter is None or reloaded:
                return reply
            await self._reload_adapter(model, adapter.path)
            reloaded = True

    def _refusal_of(self, model: str, sampling: Sampling, seed: int, tools: Sequence[ToolSpec]) -> Ask:
        """Asks the server whether it takes such requests without some fields."""
        limit = None if sampling.max_tokens is None else min(sampling.max_tokens, PROBE_TOKENS)
        short = msgspec.structs.replace(sampling, max_tokens=limit)

        async def ask(without: frozenset[str]) -> Refusal | None:
            reply = await self._send(model, PROBE, short, seed, tools, without)
            if reply.status == 200:
                self._read(reply, self.version)
                return None
            if reply.status not in (400, 422) or wire.is_overflow(reply.text):
                raise await self._error(reply, model)
            if wire.is_cut_short(reply.text):  # it was taken
                return None
            return Refusal(wire.refusals(reply.text, self._fields(sampling, tools)), await self._error(reply, model))

        return ask

    def _read(self, reply: Reply, version: int) -> Response:
        """The response in a reply with status 200.

        Raises:
            TransientLLMError: it holds none, or is damaged.
        """
        try:
            completion = wire.read_reply(reply.body)
            response = wire.read_response(completion, version=version, seconds=reply.seconds, price=self.price)
        except ValueError as error:
            problem = f"with a reply that cannot be used: {error}"
            raise TransientLLMError(self._client.describe(reply, problem)) from None
        if reply.redacted:  # the tokens would give the secret back
            return msgspec.structs.replace(response, prompt_ids=(), token_ids=(), logprobs=())
        return response

    # Errors

    async def _error(self, reply: Reply, model: str = "") -> LLMError:
        """The error for a reply with a status other than 200."""
        status = reply.status
        if status in (400, 413, 422, 500) and wire.is_overflow(reply.text):
            advice = "Show less of the history, or ask for fewer tokens"
            return ContextTooLong(self._client.describe(reply, advice=advice))
        if status == 429 and "insufficient_quota" in reply.text:
            return LLMError(self._client.describe(reply, advice="There is no credit left; waiting will not help"))
        wait = wire.retry_after(reply.headers)
        if status == 502 or (status == 503 and wait is None):
            return ServerUnreachable(self._client.describe(reply))
        if status in (408, 409, 425, 429) or (status >= 500 and status not in (501, 505)):
            return TransientLLMError(self._client.describe(reply), wait)
        return LLMError(self._client.describe(reply, advice=await self._advice(reply, model)))

    async def _advice(self, reply: Reply, model: str) -> str:
        status = reply.status
        if status in (401, 403) and self.api_key_env:
            return f"Is the API key in the environment variable {self.api_key_env} the right one?"
        if status in (401, 403):
            return "Put the API key into an environment variable, and give its name as api_key_env"
        if 300 <= status < 400:
            target = reply.headers.get("Location", "").partition("?")[0]
            return f"It redirects to {target or 'no other url'}; if you trust that, give it as url"
        if status == 404 and model:
            with suppress(LLMError):
                served = await self.models(adapters=True)
                if model in served:
                    return f"It lists the model {model!r} all the same. Does it serve {self.url}/chat/completions?"
                return f"We asked for {model!r}; it serves {_some(served) or 'no model'}"
        if status == 404:
            return "Is the url right? It often ends in /v1"
        return ""


class Adapter(NamedTuple):
    """An adapter that was loaded from `path`. vLLM keeps separate prefix caches for different salts."""

    path: str
    salt: str


def _some(names: Sequence[str]) -> str:
    """The first ten of these names, for a message."""
    return ", ".join(repr(name[:100]) for name in names[:10]) + (
        f" and {len(names) - 10} more" if len(names) > 10 else ""
    )

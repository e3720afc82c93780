"""What a server has of a policy: its versions, under names or one after the other.

A policy that is an adapter (LoRA) is published as `NAME-vN`, a name that never means other weights, so that a request
under way ends with the version with which it began. A policy with weights of its own is written to a folder that the
server reads when no request is under way. The server gets a version when it is asked for first, and again when it has
lost it.
"""

from __future__ import annotations

import asyncio
import copy
import shutil
import uuid
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from safetensors.torch import save_file

from marl_gem.episode_clock import infrastructure
from marl_gem.errors import LLMError
from marl_gem.llm.completions import TokenModel
from marl_gem.trainers.backends.base import Backend, Weights
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.opponent_pool import Snapshot
from marl_gem.trainers.samplers.vllm_server import SERVED, VLLMServer


class Versions(Protocol):
    """The versions of one policy on a server."""

    def use(self, version: int | None) -> AbstractAsyncContextManager[tuple[str, int]]:
        """The name that answers with a version, by default the newest one, and the version.

        In the context the name means nothing else.
        """
        ...


class AdapterVersions:
    """Versions that are adapters, each in a folder of its own and under a name of its own.

    Args:
        name: of the policy.
        client: loads and unloads them; it is used in one thread at a time.
        folder: where the adapters' folders lie; the server must be able to read it.
        write: writes weights into a folder, in the layout of peft.
        keep: how many versions of opponents stay loaded.
    """

    def __init__(
        self, name: str, client: TokenModel, folder: Path, write: Callable[[Weights, Path], None], *, keep: int
    ) -> None:
        self._prefix = f"{name}-{uuid.uuid4().hex[:6]}"  # several runs may share a server
        self._client, self._folder, self._write, self._keep = client, folder, write, keep
        self._newest = -1
        self._opponents: OrderedDict[int, None] = OrderedDict()
        self._folders: dict[int, Path] = {}
        self._in_use: Counter[int] = Counter()

    def publish(self, backend: Backend) -> None:
        """Let the backend's present weights be the newest version; older ones go as soon as nobody uses them."""
        self.publish_weights(Snapshot(backend.version, backend.weights()))

    def publish_weights(self, snapshot: Snapshot) -> None:
        """Let these be the newest version, also where they are older than the last ones."""
        if snapshot.version not in self._folders:
            self._add(snapshot)
        self._newest = snapshot.version

    def publish_opponent(self, snapshot: Snapshot) -> None:
        """Add an earlier version."""
        self._opponents[snapshot.version] = None
        self._opponents.move_to_end(snapshot.version)
        if snapshot.version not in self._folders:
            self._add(snapshot)
        while len(self._opponents) > self._keep:
            self._opponents.popitem(last=False)

    @asynccontextmanager
    async def use(self, version: int | None) -> AsyncIterator[tuple[str, int]]:
        version = self._newest if version is None else version
        self._in_use[version] += 1
        try:
            await self._client.publish_adapter(self._name(version), str(self._folders[version]))
            yield self._name(version), version
        finally:
            self._in_use[version] -= 1
        await self._retire()

    def close(self) -> None:
        """Remove all versions, from a server that others may use and from the disk."""
        self._newest = -1
        self._opponents.clear()
        self._in_use.clear()
        asyncio.run(self._retire())

    def _add(self, snapshot: Snapshot) -> None:
        folder = self._folder / self._name(snapshot.version)
        self._write(snapshot.weights, folder)
        self._folders[snapshot.version] = folder

    def _name(self, version: int) -> str:
        return f"{self._prefix}-v{version}"

    async def _retire(self) -> None:
        """Remove the versions that nobody uses."""
        for version in [v for v in self._folders if v != self._newest and v not in self._opponents]:
            if not self._in_use[version]:
                folder = self._folders.pop(version)
                with suppress(LLMError):  # it may be gone with the server
                    await self._client.unload_adapter(self._name(version))
                shutil.rmtree(folder, ignore_errors=True)


class WeightVersions:
    """Versions that are all weights of a server's only model, which has one version at a time.

    Args:
        client: has the server load them.
        folder: where the weights' folders lie.
        server: is started with the newest ones.
        write: writes a backend's model into a folder.
    """

    def __init__(
        self, client: TokenModel, folder: Path, server: VLLMServer, write: Callable[[Backend, Path], None]
    ) -> None:
        self._client, self._folder, self._server, self._write = client, folder, server, write
        self._newest = -1
        self._folders: dict[int, Path] = {}
        self._loaded: tuple[int, int] | None = None  # the server's start, and the version
        self._in_use = 0

    def publish(self, backend: Backend) -> None:
        """Let the backend's present weights be the newest version; a request that asks for it waits for the others."""
        folder = self._folder / f"v{backend.version}"
        self._write(backend, folder)
        self._folders[backend.version] = self._server.model = folder
        self._newest = backend.version

    @asynccontextmanager
    async def use(self, version: int | None) -> AsyncIterator[tuple[str, int]]:
        version = await self._load_newest()
        self._in_use += 1
        try:
            yield SERVED, version
        finally:
            self._in_use -= 1

    def close(self) -> None:
        """Remove all versions from the disk."""
        for folder in self._folders.values():
            shutil.rmtree(folder, ignore_errors=True)

    async def _load_newest(self) -> int:
        """Have the server load the newest version, if it has another one, when no request is under way."""
        if self._loaded == (self._server.starts, self._newest):
            return self._newest
        async with await self._client.exclusive():
            while self._loaded != (self._server.starts, self._newest):
                with infrastructure():
                    while self._in_use:
                        await asyncio.sleep(0.01)
                starts, version = self._server.starts, self._newest
                self._loaded = None
                await self._client.reload_weights(str(self._folders[version]))
                self._client.extra_body = {"cache_salt": uuid.uuid4().hex}
                self._loaded = starts, version
            for old in [v for v in self._folders if v < self._newest]:
                shutil.rmtree(self._folders.pop(old), ignore_errors=True)
        return self._newest


def write_model(backend: Backend, folder: Path) -> None:
    """Write a backend's model and tokenizer in the layout of transformers."""
    backend.save_model(folder)


def write_untied(backend: Backend, folder: Path) -> None:
    """The same with weights of its own for a head that shares those of the embeddings.

    Without a GPU vLLM 0.32 computes with a copy of the head's weights that it has rearranged. It makes a new one when
    it reloads a head, but not when it reloads embeddings whose weights a head shares.
    """
    assert isinstance(backend, LocalBackend)
    config = copy.deepcopy(backend.model.config)
    config.tie_word_embeddings = False
    config.architectures = [type(backend.model).__name__]  # as save_pretrained notes it; vLLM goes by this
    config.save_pretrained(folder)
    weights = {name: value.detach().cpu().clone() for name, value in backend.model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    backend.tokenizer.save_pretrained(folder)

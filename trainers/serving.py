"""The vLLM server that answers during a run, started by the run or at a URL."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from marl_gem.errors import ConfigError
from marl_gem.llm.completions import TokenModel
from marl_gem.llm.http import Timeouts
from marl_gem.trainers.backends.adapters import AdapterModel
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.learner import Learner, device
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.policy_tables import for_policy, policy_names
from marl_gem.trainers.samplers.in_process import InProcessSampler
from marl_gem.trainers.samplers.vllm import RemoteServer, Server, VLLMSampler
from marl_gem.trainers.samplers.vllm_server import SERVED, VLLMServer, check_installed
from marl_gem.trainers.samplers.vllm_versions import AdapterVersions, WeightVersions, write_model, write_untied
from marl_gem.trainers.sections import TrainConfig

FOLDER = "vllm"
"""The folder in the run's folder that holds the server's log and the weights that it reads."""

WEIGHTS = "weights"

TIMEOUT = 3600.0
"""How many seconds a server may take for an answer."""


def check_sampler(config: TrainConfig, learners: int) -> None:
    """Raises ConfigError if the server that the configuration asks for cannot be started, or cannot serve its policies.

    Args:
        config: the run's.
        learners: how many policies learn.
    """
    if config.sampler == "vllm":
        check_installed(config.vllm)
    adapted = [for_policy(config, name).policy.lora_rank > 0 for name in policy_names(config)]
    if all(adapted):
        return
    if config.training.staleness:
        raise ConfigError(
            "training.staleness: a vLLM server has one version of a model at a time, so that it cannot play while the "
            "model learns; make the policies adapters (policy.lora_rank), set it to 0, or let the model answer in this "
            'process (sampler = "in_process")'
        )
    if config.sampler != "vllm":
        raise ConfigError(
            f"sampler: a server at a URL ({config.sampler}) serves policies that are adapters (policy.lora_rank); for "
            'weights of its own the run needs a server that it starts itself (sampler = "vllm")'
        )
    if learners > 1:
        raise ConfigError(
            f"sampler: a vLLM server has the weights of one model, and {learners} policies learn; make them adapters "
            '(policy.lora_rank), or let them answer in this process (sampler = "in_process")'
        )


class Serving:
    """The server of a run.

        serving = Serving(config, folder)
        try:
            for seconds in serving.start(loop): ...
        finally:
            serving.stop()

    Args:
        config: the run's.
        folder: the run's.
    """

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        self._config, self._folder = config, (folder / FOLDER).resolve()
        self._server: VLLMServer | None = None
        self._without_gpu = device(config.device).type == "cpu"
        self._samplers: list[VLLMSampler] = []
        self._restore: Callable[[], None] = lambda: None

    def start(self, loop: TrainingLoop) -> Iterator[int]:
        """Let the server answer for the policies; yields the seconds that it was waited for.

        Raises:
            LLMError: the server does not start; the message quotes its log.
        """
        shutil.rmtree(self._folder / WEIGHTS, ignore_errors=True)  # of a run that was killed
        config = self._config
        server: Server = RemoteServer(config.sampler, config.vllm.patience)
        if config.sampler == "vllm":
            server = self._server = self._new_server(loop)
        samplers = {name: self._sampler(name, learner, server) for name, learner in loop.learners.items()}
        for name, sampler in samplers.items():
            sampler.sync(loop.learners[name].backend)
        if self._server is not None:
            yield from self._server.start()
        local = {name: learner.sampler for name, learner in loop.learners.items()}
        self._restore = lambda: loop.set_samplers(local)
        loop.set_samplers(samplers)

    def stop(self) -> None:
        """End the server, or remove from it what was published; the models in this process answer again."""
        self._restore()
        for sampler in self._samplers:
            sampler.close()
        if self._server is not None:
            self._server.stop()

    def _new_server(self, loop: TrainingLoop) -> VLLMServer:
        config = self._config
        base = next((learner.base for learner in loop.learners.values()), "")  # all adapters share it
        past = config.training.pool_size if config.league.draw == "episode" else 1
        copies = 2 if config.training.staleness else 1  # the playing ones have versions of their own
        return VLLMServer(
            Path(base),
            config.vllm,
            log=self._folder / "server.log",
            cpu=self._without_gpu,
            half=config.training.precision == "bfloat16",
            lora_rank=max(mine.policy.lora_rank for mine in loop.configs.values()),
            adapters=len(loop.learners) * (2 + past) * copies,
        )

    def _sampler(self, name: str, learner: Learner, server: Server) -> VLLMSampler:
        config, backend = self._config, learner.backend
        policy = for_policy(config, name).policy
        folder, keep = self._folder / WEIGHTS / name, config.training.pool_size

        def beside(local: InProcessSampler) -> VLLMSampler:
            client = self._client(server)
            versions: AdapterVersions | WeightVersions
            if isinstance(backend, LocalBackend) and isinstance(backend.model, AdapterModel):
                write = partial(backend.model.shared.write, backend.model.name)
                versions = AdapterVersions(name, client, folder, write, keep=keep)
            else:
                assert self._server is not None
                write_model_folder = write_untied if self._without_gpu else write_model
                versions = WeightVersions(client, folder, self._server, write_model_folder)
            self._samplers.append(VLLMSampler(local, policy, config.vllm, client, server, versions, beside))
            return self._samplers[-1]

        assert isinstance(learner.sampler, InProcessSampler)
        return beside(learner.sampler)

    def _client(self, server: Server) -> TokenModel:
        timeouts = Timeouts(read=TIMEOUT, total=TIMEOUT)
        if self._server is not None:
            return TokenModel(server.url, SERVED, timeouts=timeouts)
        return TokenModel(server.url, api_key_env=self._config.vllm.api_key_env or None, timeouts=timeouts)

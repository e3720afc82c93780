"""A model that several processes train together: FSDP2 for models, replicas for adapters.

The rows of an update are dealt out to the processes. Denominators are those of the whole update and gradients are sums
over processes, so that the gradient is that of one process up to rounding. A full model and its optimizer are sharded
(`fully_shard` of every layer and of the rest); of adapters, which are small, each process has all, over a base of its
own. The reference is a full copy in each process.

Every method of `Backend` is called in the first process, which lets the others do the same (`ranks.send`, `serve`).
"""

from __future__ import annotations

import copy
import functools
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_layers import GradientCheckpointingLayer

from marl_gem.errors import TrainingError
from marl_gem.trainers.backends import ranks
from marl_gem.trainers.backends.adapters import AdapterModel, CausalModel, SharedBase
from marl_gem.trainers.backends.base import Weights
from marl_gem.trainers.backends.frozen import FrozenModel, load_weights, untied
from marl_gem.trainers.backends.layout import Layout
from marl_gem.trainers.backends.local import LocalBackend, TokenMetrics, load_optimizer_tensors, optimizer_tensors
from marl_gem.trainers.backends.memory import autocast
from marl_gem.trainers.backends.readout import TokenStatistics
from marl_gem.trainers.rows import Row


class ModelSpec(NamedTuple):
    """What another process needs to make the same model; its numbers are sent afterwards."""

    kind: type[PreTrainedModel]
    config: Any
    dtype: torch.dtype
    device: str
    tokenizer: PreTrainedTokenizerBase
    options: dict[str, Any]
    base: int
    """Which shared base the model adapts; 0 for a model of its own."""
    adapters: dict[str, Any]
    """How large the adapters are."""


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def together(
    method: Callable[Concatenate[Any, Parameters], Result],
) -> Callable[Concatenate[Any, Parameters], Result]:
    """A method of `ShardedBackend` that, called in the first process, all processes run."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        outer, self.performing = self.performing, True
        if not outer and ranks.rank() == 0:
            ranks.send((self.index, method.__name__, arguments, options))
        try:
            return method(self, *arguments, **options)
        finally:
            self.performing = outer

    return call


class ShardedBackend(LocalBackend):
    """As `LocalBackend`, in each of several processes.

    Args:
        model: is changed, so that each process keeps a share of it.
        index: what commands call this backend.
        tokenizer, frozen, options: see `LocalBackend`.
    """

    def __init__(
        self, model: CausalModel, tokenizer: PreTrainedTokenizerBase, frozen: FrozenModel, index: int, **options: Any
    ) -> None:
        self.index, self.performing = index, True
        super().__init__(model, tokenizer, frozen, **options)
        self._names = list(untied(model))
        self._sharded = isinstance(model, PreTrainedModel)
        if isinstance(model, PreTrainedModel):
            _shard(model)
            self.optimizer = torch.optim.Adam(model.parameters(), betas=self.optimizer.defaults["betas"], fused=True)
        self.performing = False

    forward_backward = together(LocalBackend.forward_backward)
    set_reference = together(LocalBackend.set_reference)

    @property  # type: ignore[override]  # it must reach all processes
    def reference(self) -> Weights | None:
        return self._reference

    @reference.setter
    def reference(self, weights: Weights | None) -> None:
        self.replace_reference(weights)

    @together
    def replace_reference(self, weights: Weights | None) -> None:
        self._reference = weights

    @together
    def logprobs(self, rows: Sequence[Row], *, reference: bool = False) -> list[list[float]]:
        self.model.eval()
        if reference and self.reference is None:
            raise TrainingError("there is no reference to give log-probabilities; set training.kl above 0")
        positions = {id(row): position for position, row in enumerate(rows)}
        found: dict[int, list[float]] = {}
        with self._out_of_memory_explained():
            frozen = self._frozen.load(self.reference) if reference and self.reference is not None else None
            for layout, factor in self._shares(rows):
                with torch.no_grad(), autocast(self.model, self._memory):
                    read = self._readout(frozen, None, layout) if frozen is not None else self._read(None, layout)
                if factor:
                    indices = [positions[id(row)] for row in layout.rows]
                    found |= zip(indices, layout.per_row(read.logprobs), strict=True)
        for others in ranks.gather(found):
            found |= others
        return [found[position] for position in range(len(rows))]

    @together
    def step(self, *, learning_rate: float, max_grad_norm: float) -> float:
        if not self._sharded:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    ranks.total(parameter.grad)
        return super().step(learning_rate=learning_rate, max_grad_norm=max_grad_norm)

    @together
    def weights(self) -> Weights:
        state = self.model.state_dict()
        return {name: _complete(state[name]) for name in self._names}

    @together
    def optimizer_state(self) -> Weights:
        return {name: _complete(value) for name, value in optimizer_tensors(self.optimizer, copy=False).items()}

    @together
    def load_optimizer_state(self, state: Weights) -> None:
        parameters = list(self.model.parameters())
        shares = {}
        for name, value in state.items():
            parameter = parameters[int(name.partition("/")[0])]
            shares[name] = _share_like(parameter, value) if value.shape == parameter.shape else value
        load_optimizer_tensors(self.optimizer, shares)

    def save_model(self, folder: Path) -> None:
        if isinstance(self.model, AdapterModel):
            super().save_model(folder)
            return
        network = _new_network(self.model)
        network.generation_config = self.model.generation_config
        load_weights(network, self.weights())
        network.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def utilization(self, rows: Sequence[Row], seconds: float) -> float | None:
        used = super().utilization(rows, seconds)
        return None if used is None else used / ranks.count()

    def _shares(self, rows: Sequence[Row]) -> Iterator[tuple[Layout, float]]:
        """This process's micro-batches; as many as any has, the last ones without a gradient, since all must take part
        when the layers' weights are put together."""
        ordered = sorted(rows, key=lambda row: len(row.ids))
        parts = [ordered[first :: ranks.count()] for first in range(ranks.count())]
        mine = list(self._layouts(parts[ranks.rank()] or ordered[:1]))
        counts = [len(list(self._groups(part))) for part in parts]
        factor = float(ranks.count()) if self._sharded else 1.0  # FSDP takes the mean over processes
        for number in range(max(counts)):
            real = number < counts[ranks.rank()]
            yield mine[number if real else 0], factor if real else 0.0

    def _over_processes(self, metrics: TokenMetrics) -> TokenMetrics:
        return functools.reduce(TokenMetrics.plus, ranks.gather(metrics), TokenMetrics())

    def _read(self, reference: CausalModel | None, layout: Layout, **options: Any) -> TokenStatistics:
        if isinstance(self.model, AdapterModel):
            return super()._read(reference, layout, **options)
        read = functools.partial(self._readout, self.model, reference, layout, **options)
        found: TokenStatistics = self.model.within_forward(read)
        return found


class FrozenCopy(FrozenModel):
    """As `FrozenModel`, for a process that has no complete model to copy."""

    def _new(self) -> CausalModel:
        if isinstance(self._like, AdapterModel):
            return self._like.sibling()
        return _new_network(self._like).to(self._like.device)


def make_sharded(
    model: CausalModel, tokenizer: PreTrainedTokenizerBase, options: dict[str, Any]
) -> tuple[ShardedBackend, CausalModel, FrozenModel]:
    """In the first process: a backend of all of them.

    Returns:
        the backend, a complete model for episodes that this process plays, and what holds frozen weights.
    """
    shared = model.shared if isinstance(model, AdapterModel) else None
    network = shared.model if shared else model
    new_base = shared is not None and id(shared) not in _bases
    if shared is not None:
        _bases.setdefault(id(shared), shared)
    kind, index = type(network), next(_indices)
    sizes = shared.sizes if shared else {}
    ranks.send(ModelSpec(
        kind, network.config, model.dtype, model.device.type, tokenizer, options, id(shared) if shared else 0, sizes
    ))  # fmt: skip
    if shared is None or new_base:
        ranks.share(_plain(network))
    if shared is not None:
        ranks.share(model.state_dict())
        frozen = FrozenModel(model)
        return ShardedBackend(model, tokenizer, frozen, index, **options), model, frozen
    complete = copy.deepcopy(model)
    frozen = FrozenModel(complete)
    return ShardedBackend(model, tokenizer, frozen, index, **options), complete, frozen


def serve() -> None:
    """In the other processes: do what the first one says until it ends."""
    backends: list[ShardedBackend] = []
    bases: dict[int, SharedBase] = {}
    while (command := ranks.receive()) is not None:
        if isinstance(command, ModelSpec):
            backends.append(_follow(command, len(backends), bases))
            continue
        index, method, arguments, options = command
        try:
            getattr(backends[index], method)(*arguments, **options)
        except TrainingError as error:  # the first process has raised it too, unless this one alone lacks memory
            if error.__cause__ is not None:
                raise


def _follow(spec: ModelSpec, index: int, bases: dict[int, SharedBase]) -> ShardedBackend:
    """The same model as the first process has."""
    device = torch.device(spec.device)  # of several GPUs the one that `ranks.begin` has chosen
    if spec.base in bases:
        shared = bases[spec.base]
    else:
        network = spec.kind(spec.config).to(device, spec.dtype)
        ranks.share(_plain(network))
        if not spec.base:
            return ShardedBackend(network, spec.tokenizer, FrozenCopy(network), index, **spec.options)
        shared = bases[spec.base] = SharedBase(network, **spec.adapters)
    adapter = shared.adapter("follower", seed=0)
    ranks.share(adapter.state_dict())
    return ShardedBackend(adapter, spec.tokenizer, FrozenCopy(adapter), index, **spec.options)


_bases: dict[int, SharedBase] = {}
_indices = itertools.count()


def _plain(network: PreTrainedModel) -> Weights:
    """A model's tensors under the names that they have without adapters."""
    return {name.replace(".base_layer.", "."): value for name, value in untied(network).items() if ".lora_" not in name}


def _shard(model: PreTrainedModel) -> None:
    """Leave a share of every layer, and of the rest, in this process."""
    mesh = init_device_mesh(model.device.type, (ranks.count(),))
    for part in model.modules():
        if isinstance(part, GradientCheckpointingLayer):
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.within_forward = types.MethodType(_call, model)
    register_fsdp_forward_method(model, "within_forward")


def _call(_: PreTrainedModel, read: Callable[[], TokenStatistics]) -> TokenStatistics:
    """What becomes a method of a sharded model, during which its weights are there; its results may be no views."""
    return TokenStatistics(*(values.clone() for values in read()))


def _new_network(model: PreTrainedModel) -> PreTrainedModel:
    """A model like a sharded one, complete and on the CPU, with other numbers."""
    kind: Any = next(base for base in type(model).__mro__ if not issubclass(base, FSDPModule))
    network: PreTrainedModel = kind(model.config).to(model.dtype)
    return network


def _complete(value: torch.Tensor) -> torch.Tensor:
    """A tensor's numbers, from all processes, on the CPU."""
    complete = value.full_tensor() if isinstance(value, DTensor) else value
    return complete.detach().to("cpu", copy=True)


def _share_like(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """This process's share of a tensor, as it has one of the parameter."""
    if not isinstance(parameter, DTensor):
        return value
    return distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements)

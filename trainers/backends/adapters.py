"""Low-rank adapters (LoRA): several policies over one frozen model, which is on the device once.

    base = SharedBase(model, rank=32)
    user, assistant = base.adapter("user", seed=1), base.adapter("assistant", seed=2)

Source: Hu et al., "LoRA" (arXiv 2106.09685); the package peft.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeAlias

import torch
from transformers import PreTrainedModel

from marl_gem.errors import ConfigError, MissingPackage

Weights: TypeAlias = dict[str, torch.Tensor]

ADAPTER = "adapter_model.safetensors"
"""The file of an adapter's weights, in the layout of peft."""


class SharedBase:
    """A frozen model with room for adapters.

    Args:
        model: is changed: its linear layers get places for adapters, and its parameters are frozen.
        rank: of the adapters' matrices, where an adapter does not say.
        alpha: an adapter's output is scaled by alpha / rank; 0 stands for twice the rank.
        targets: the names of the layers that are adapted; empty for all linear layers but the head.
    """

    def __init__(self, model: PreTrainedModel, *, rank: int, alpha: int, targets: tuple[str, ...] = ()) -> None:
        try:
            import peft
        except ImportError as error:
            raise MissingPackage("peft", "train", "training adapters") from error
        self.model = model.requires_grad_(False)
        self.sizes = {"rank": rank, "alpha": alpha, "targets": targets}
        self._peft = peft
        self._rank, self._alpha, self._targets = rank, alpha, targets
        self._configs: dict[str, Any] = {}
        self._active = ""
        self._count = 0
        self._head = next((name for name, part in model.named_modules() if part is model.get_output_embeddings()), "")
        if self._head.rpartition(".")[2] in targets:
            raise ConfigError(f"policy.lora_targets: the head {self._head!r} cannot be adapted; leave it out")

    def adapter(self, name: str, *, seed: int, rank: int = 0, alpha: int = 0) -> AdapterModel:
        """A new adapter, which changes nothing yet.

        Args:
            name: of the policy.
            seed: of the random half of its weights; the other half is 0.
            rank, alpha: of this adapter; with rank 0 both are the base's.

        Raises:
            ConfigError: the model has no such layers.
        """
        self._count += 1
        unique = f"{name}-{self._count}"
        rank, alpha = (rank, alpha) if rank else (self._rank, self._alpha)
        config = self._peft.LoraConfig(
            r=rank,
            lora_alpha=alpha or 2 * rank,
            target_modules=list(self._targets) or "all-linear",
            lora_dropout=0.0,
            bias="none",
        )
        self._configs[unique] = copy.deepcopy(config)
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of a second adapter, and of GPT-2's transposed layers
                torch.manual_seed(seed)
                self.model.add_adapter(config, adapter_name=unique)
        except ValueError as error:
            raise ConfigError(f"policy.lora_targets: the model cannot be adapted so: {error}") from error
        self._active = unique
        adapter = AdapterModel(self, unique)
        for parameter in adapter.parameters():  # of a bfloat16 model, too: small steps would round to nothing in that
            parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
        return adapter

    def size(self, name: str) -> dict[str, int]:
        """Rank and alpha of an adapter, as `adapter` takes them."""
        return {"rank": self._configs[name].r, "alpha": self._configs[name].lora_alpha}

    def activate(self, name: str) -> PreTrainedModel:
        """The model with this adapter, until another is activated."""
        if self._active != name:
            for module in self.model.modules():
                if isinstance(module, self._peft.tuners.tuners_utils.BaseTunerLayer):
                    module.set_adapter(name)
            self._active = name
        return self.model

    def beside(self) -> SharedBase:
        """The same weights in modules of its own, with copies of all adapters.

        Which adapter is active is kept in the modules, so that two threads cannot share them.
        """
        other = copy.copy(self)
        shared = {id(value): value for name, value in self.model.named_parameters() if ".lora_" not in name}
        other.model = copy.deepcopy(self.model, shared)
        return other

    def adapter_weights(self, name: str) -> Weights:
        """The weights of an adapter, not copied."""
        weights: Weights = self._peft.get_peft_model_state_dict(self.model, adapter_name=name)
        return weights

    def merged_weights(self, name: str) -> Weights:
        """The weights of a model of its own that answers as this one does with an adapter."""
        layer = self._peft.tuners.tuners_utils.BaseTunerLayer
        changes = {
            f"{path}.weight": part.get_delta_weight(name)  # type: ignore[attr-defined]  # adapted layers have it
            for path, part in self.model.named_modules()
            if isinstance(part, layer)
        }
        plain = {
            key.replace(".base_layer.", "."): value
            for key, value in self.model.state_dict().items()
            if ".lora_" not in key
        }
        return {key: value + changes[key] if key in changes else value for key, value in plain.items()}

    def load(self, name: str, weights: Mapping[str, torch.Tensor]) -> None:
        """Put weights into an adapter.

        Raises:
            ConfigError: they are of another model, or of another rank.
        """
        try:
            if weights.keys() != self.adapter_weights(name).keys():
                raise RuntimeError("it has other layers")
            self._peft.set_peft_model_state_dict(self.model, dict(weights), adapter_name=name)
        except RuntimeError as error:
            raise ConfigError(f"the adapter does not fit the model: {error}") from error

    def save(self, name: str, folder: Path) -> None:
        """Write an adapter in the layout of peft."""
        self.write(name, self.adapter_weights(name), folder)

    def write(self, name: str, weights: Weights, folder: Path) -> None:
        """Write weights of the shape of an adapter's, in the layout of peft."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        config = copy.deepcopy(self._configs[name])
        config.base_model_name_or_path = self.model.config.name_or_path
        config.inference_mode = True
        config.save_pretrained(str(folder))
        named = {f"base_model.model.{key}": value for key, value in weights.items()}
        save_file(named, folder / ADAPTER, metadata={"format": "pt"})


class AdapterModel:
    """One adapter over a shared base, with the part of a transformers model's interface that training uses.

    Before each use the shared base is switched to this adapter. `parameters` and `state_dict` are the adapter's alone.
    """

    def __init__(self, shared: SharedBase, name: str) -> None:
        self.shared = shared
        self.name = name

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self.shared.activate(self.name)(*inputs, **options)

    @property
    def base_model(self) -> Any:
        return self.shared.activate(self.name).base_model

    @property
    def config(self) -> Any:
        return self.shared.model.config

    @property
    def device(self) -> torch.device:
        device: torch.device = self.shared.model.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.shared.model.dtype
        return dtype

    @property
    def generation_config(self) -> Any:
        return self.shared.model.generation_config

    def get_input_embeddings(self) -> Any:
        return self.shared.model.get_input_embeddings()

    def get_output_embeddings(self) -> Any:
        return self.shared.model.get_output_embeddings()  # no part of an adapter, so none need be active

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The adapter's parameters and their names, always in the same order."""
        marker = f".{self.name}."
        return (item for item in self.shared.model.named_parameters() if marker in f"{item[0]}.")

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        return (value for _, value in self.named_parameters())

    def state_dict(self) -> Weights:
        return self.shared.adapter_weights(self.name)

    def load_state_dict(self, weights: Mapping[str, torch.Tensor], strict: bool = True) -> None:
        self.shared.load(self.name, weights)

    def eval(self) -> Self:
        self.shared.model.eval()
        return self

    def to(self, device: torch.device) -> Self:
        self.shared.model.to(device)
        return self

    def save_pretrained(self, folder: Path | str) -> None:
        self.shared.save(self.name, Path(folder))

    def sibling(self) -> AdapterModel:
        """A further adapter over the same base with the same rank and weights."""
        new = self.shared.adapter(self.name, seed=0, **self.shared.size(self.name))
        new.load_state_dict({name: value.clone() for name, value in self.state_dict().items()})
        return new

    def beside(self) -> AdapterModel:
        """A copy for another thread, over the same base; see `SharedBase.beside`."""
        return AdapterModel(self.shared.beside(), self.name)


CausalModel: TypeAlias = PreTrainedModel | AdapterModel
"""What a policy's tokens are read with: a model of its own, or an adapter over a shared one."""

"""Weights that do not learn: a reference, earlier versions. They wait on the CPU, and share one model on the device."""

from __future__ import annotations

import copy

from marl_gem.trainers.backends.adapters import AdapterModel, CausalModel
from marl_gem.trainers.backends.base import Weights


def copy_weights(model: CausalModel) -> Weights:
    """A copy of a model's weights, on the CPU; what the model shares between names (tied weights) is copied once."""
    return {name: value.detach().to("cpu", copy=True) for name, value in untied(model).items()}


def fits(model: CausalModel, weights: Weights) -> bool:
    """Whether these are weights that `copy_weights` gave of a model of the same architecture.

    Those of the first version have tied weights under each of their names.
    """
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    known = all(shapes.get(name) == value.shape for name, value in weights.items())
    return known and weights.keys() >= untied(model).keys()


def untied(model: CausalModel) -> Weights:
    """The model's own tensors, under the first of their names."""
    weights: Weights = {}
    seen = set()
    for name, value in model.state_dict().items():
        if value.data_ptr() not in seen:
            seen.add(value.data_ptr())
            weights[name] = value
    return weights


def load_weights(model: CausalModel, weights: Weights) -> None:
    """Put weights that `copy_weights` gave into a model of the same architecture."""
    model.load_state_dict(weights, strict=False)  # what is left out are the further names of tied weights


def beside(model: CausalModel) -> CausalModel:
    """A copy with weights of its own, which another thread may use at the same time; of an adapter without the base."""
    return model.beside() if isinstance(model, AdapterModel) else copy.deepcopy(model).eval().requires_grad_(False)


class FrozenModel:
    """One more model of the same architecture, on the same device, that any frozen weights can be loaded into; or one
    more adapter over the same base.

    It is made when it is needed first. One policy needs at most one at a time: an opponent while episodes are played,
    the reference while gradients are computed.
    """

    def __init__(self, like: CausalModel) -> None:
        self._like = like
        self._model: CausalModel | None = None
        self._loaded: Weights | None = None

    def load(self, weights: Weights) -> CausalModel:
        """The model with these weights, for as long as no others are loaded."""
        if self._model is None:
            self._model = self._new()
            self._model.eval()
            for parameter in self._model.parameters():
                parameter.requires_grad_(False)
        if self._loaded is not weights:
            load_weights(self._model, weights)
            self._loaded = weights
        return self._model

    def _new(self) -> CausalModel:
        """A model to load weights into."""
        return self._like.sibling() if isinstance(self._like, AdapterModel) else copy.deepcopy(self._like)

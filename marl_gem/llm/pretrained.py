"""Models from folders in the layout of transformers. Nothing else in marl_gem calls `from_pretrained`.

What such a folder holds is data of somebody else. None of its Python code runs, whatever its files ask for; weights are
read from safetensors files alone, so that nothing is unpickled; nothing is downloaded. A model comes back only if each
of its weights was in the files, with the shape that its configuration gives it, and is a finite number: transformers
by itself fills what is missing with random numbers.

Sizes are compared with the headers of the weights' files before any memory is taken for them.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from marl_gem.errors import CheckpointError, MissingPackage

try:
    import torch
    from safetensors import SafetensorError, safe_open
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoTokenizer,
        PretrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
    )
    from transformers.utils import logging as transformers_logging
except ImportError as error:
    raise MissingPackage(error.name or "torch", "train", "a model in this process") from error

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
DESCRIPTIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    INDEX,
)
"""The files of a folder that hold one JSON object each."""

DESCRIPTION_BYTES = 1 << 24
"""The greatest size of such a file."""

DEPTH = 32
"""How deep they may be nested."""

SAFE = {"trust_remote_code": False, "local_files_only": True}
"""What is said wherever transformers loads anything. Without the first, it asks on stdin whether to run code."""

Shapes = Mapping[str, tuple[int, ...]]
"""The shapes of tensors, by name."""


def load_pretrained(
    folder: str | Path, dtype: torch.dtype = torch.float32
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal language model and its tokenizer.

    Args:
        folder: holds config.json, the weights as safetensors, and the tokenizer with its chat template.
        dtype: what the weights become, whatever the folder holds. A model that is to learn needs float32: in bfloat16
            most steps of a small learning rate round to nothing.

    Raises:
        CheckpointError: the folder holds no such model, or an incomplete or damaged one; the message says which.
    """
    folder = Path(folder)
    config, tokenizer, _ = _load_descriptions(folder)
    with _explained(folder, "no model that transformers can load"), _quiet():
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # they are an error below, with their names
            output_loading_info=True,
            **SAFE,
        )
    _check_loaded(folder, found)
    if name := not_finite({**dict(model.named_parameters()), **dict(model.named_buffers())}):
        raise CheckpointError(
            f"{folder}: {name} holds numbers that are not finite, so the model cannot answer: its training diverged, "
            "or the file is damaged. Take an earlier checkpoint, or copy the model again"
        )
    return model, tokenizer


def check_pretrained(folder: str | Path) -> PreTrainedModel:
    """What of `load_pretrained` takes no reading of weights: configuration, tokenizer, and the sizes of the weights.

    Returns:
        the model without its weights, on torch's meta device.

    Raises:
        CheckpointError: see `load_pretrained`.
    """
    return _load_descriptions(Path(folder))[2]


def not_finite(tensors: Mapping[str, torch.Tensor]) -> str | None:
    """The name of the first tensor that holds NaN or an infinity; None if none does."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.itemsize > 1 and tensor.numel():
            low, high = torch.aminmax(tensor.detach())
            if not (math.isfinite(low) and math.isfinite(high)):
                return name
    return None


def is_deeper(values: object, depth: int) -> bool:
    """Whether plain data is nested more than `depth` deep."""
    if not isinstance(values, (dict, list)):
        return False
    inner = values.values() if isinstance(values, dict) else values
    return depth <= 0 or any(is_deeper(value, depth - 1) for value in inner)


def _load_descriptions(folder: Path) -> tuple[PretrainedConfig, PreTrainedTokenizerBase, PreTrainedModel]:
    """Configuration, tokenizer and a model without weights, after comparing the first with the weights' files."""
    descriptions = _read_descriptions(folder)
    shapes = _read_shapes(folder, descriptions)
    _check_numbers(folder, descriptions["config.json"], shapes)
    needs_code = any("auto_map" in values for values in descriptions.values())
    with _explained(folder, "no model that transformers can load", needs_code), _quiet():
        config = AutoConfig.from_pretrained(folder, **SAFE)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        rows = model.get_input_embeddings().weight.shape[0]
    asked, there = sum(p.numel() for p in model.parameters()), _capacity(shapes)
    if asked > 2 * there + (1 << 16):
        raise CheckpointError(
            f"{folder}: config.json asks for {asked:,} numbers, but the weights' files hold {there:,}; it is not the "
            "configuration of these weights. Copy the model again"
        )
    with _explained(folder, "no tokenizer that transformers can load", needs_code), _quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder, config=config, **SAFE)
        if tokenizer.chat_template is None or not isinstance(tokenizer.eos_token_id, int):
            raise CheckpointError(f"the tokenizer in {folder} needs a chat template and an end-of-sequence token")
        for name in ("is_local", *SAFE):  # how it was loaded is no part of it, and would be saved with it
            tokenizer.init_kwargs.pop(name, None)
        if not isinstance(tokenizer.model_max_length, int | float):
            raise CheckpointError(
                f"{folder}: tokenizer_config.json says model_max_length = {tokenizer.model_max_length!r:.80}, which is "
                "no number. Copy the model again"
            )
        _check_vocabulary(folder, tokenizer, rows)
    return config, tokenizer, model


def _read_descriptions(folder: Path) -> dict[str, dict[str, Any]]:
    """The content of each file of `DESCRIPTIONS` that is there."""
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}")
    if not (folder / "config.json").exists():
        content = ", ".join(sorted(path.name for path in folder.iterdir())[:5])
        raise CheckpointError(
            f"{folder} holds no model: it is empty"
            if not content
            else f"{folder} holds no model in the layout of transformers: no config.json, but {content}"
        )
    if (folder / "adapter_config.json").exists():
        raise CheckpointError(
            f"{folder} holds an adapter (adapter_config.json), which names a base model that lies elsewhere. Merge the "
            "two into one model, or serve them and name the adapter: MODEL@URL,adapter=NAME"
        )
    return {name: _read_object(folder / name) for name in DESCRIPTIONS if (folder / name).exists()}


def _read_object(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file() or path.stat().st_size > DESCRIPTION_BYTES:
            raise ValueError(f"it is no file of at most {DESCRIPTION_BYTES >> 20} MiB")
        values = json.loads(path.read_bytes())
        if not isinstance(values, dict):
            raise ValueError(f"it holds no JSON object, but {type(values).__name__}")
        if is_deeper(values, DEPTH):
            raise ValueError(f"it is nested more than {DEPTH} deep")
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {_short(error)}. Copy the model again") from error
    return values


def _read_shapes(folder: Path, descriptions: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors in the weights' files, from their headers."""
    if (folder / WEIGHTS).exists():
        files = [WEIGHTS]
    else:
        files = _shards(folder, descriptions.get(INDEX))
    shapes: dict[str, tuple[int, ...]] = {}
    for name in files:
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{path} is missing, but {INDEX} names it. Copy the model again")
        try:
            with safe_open(path, "pt") as file:
                for tensor in file.keys():  # noqa: SIM118, it is no dict
                    shapes[tensor] = tuple(file.get_slice(tensor).get_shape())
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is cut short or damaged: {_short(error)}. Copy the model again") from error
    return shapes


def _shards(folder: Path, index: Mapping[str, Any] | None) -> list[str]:
    """The names of the weights' files that an index gives; they lie in the folder itself."""
    if index is None:
        pickled = sorted(path.name for path in folder.iterdir() if path.suffix in {".bin", ".pt", ".pth", ".pkl"})
        reason = f"; {pickled[0]} is pickled, and unpickling runs code. Convert it to safetensors" if pickled else ""
        raise CheckpointError(f"{folder} holds no weights as safetensors: no {WEIGHTS} and no {INDEX}{reason}")
    names = index.get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(
            f"{folder / INDEX} is damaged: weight_map gives no file for each tensor. Copy the model again"
        )
    for name in names.values():
        if not re.fullmatch(r"[\w.-]+\.safetensors", name):
            raise CheckpointError(f"{folder / INDEX} names {name!r}, which is no safetensors file in this folder")
    return sorted(set(names.values()))


_COUNT = re.compile(r"n(um)?_.*(layer|block|expert|stage|label)s?|.*(layers|blocks|experts|labels|depth)")
_MEASURE = re.compile(r".*(position|length|window|theta|token|seed|chunk).*")
"""Numbers that count parts of the model, and those that neither count parts nor give a tensor its shape."""


def _check_numbers(folder: Path, config: Mapping[str, Any], shapes: Shapes) -> None:
    """Refuse sizes for which these weights are too small, before they are used: some loop over them at once.

    A configuration may name an implementation of attention, which transformers can fetch as code; that is refused too.
    """
    parts, width = max(128, len(shapes)), max([1 << 20, *map(math.prod, shapes.values())])
    for name, value in _entries(config):
        limit = parts if _COUNT.fullmatch(name) else math.inf if _MEASURE.fullmatch(name) else width
        if isinstance(value, int) and abs(value) > limit:
            raise CheckpointError(
                f"{folder}: config.json says {name} = {value:.4g}, but the weights' files hold {len(shapes)} tensors "
                f"with {_capacity(shapes):,} numbers. Copy the model again"
            )
        if isinstance(value, str) and name.endswith("implementation") and not re.fullmatch(r"[\w|]*", value):
            raise CheckpointError(
                f"{folder}: config.json says {name} = {value[:80]!r}, code that would be fetched. Remove the entry"
            )


def _entries(values: object, name: str = "") -> Iterator[tuple[str, object]]:
    """All values in nested data, each with the nearest name."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield from _entries(value, key)
    elif isinstance(values, list):
        for value in values:
            yield from _entries(value, name)
    else:
        yield name, values


def _capacity(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _check_loaded(folder: Path, found: Mapping[str, Any]) -> None:
    """Refuse a model of which not all weights, or other ones, were in the files."""
    problems = {
        "lacks the weights": sorted(found["missing_keys"]),
        "holds weights that the model in config.json does not have:": sorted(found["unexpected_keys"]),
        "holds weights of another shape than config.json says:": sorted(
            f"{name} {tuple(there)}, not {tuple(asked)}" for name, there, asked in found["mismatched_keys"]
        ),
        "cannot be loaded:": [_short(ValueError(text)) for text in found["error_msgs"]],
    }
    for problem, names in problems.items():
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise CheckpointError(
                f"{folder} {problem} {', '.join(names[:3])}{more}. Copy the model again, all of its files"
            )


def _check_vocabulary(folder: Path, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """Every token that text may become has an embedding, and so have the tokens that end and fill a row."""
    special = set(tokenizer.all_special_ids)
    plain = (token for token in tokenizer.get_vocab().values() if token not in special)
    needed = [tokenizer.eos_token_id, tokenizer.pad_token_id or 0]
    if (greatest := max([*plain, *needed])) >= rows:
        raise CheckpointError(
            f"{folder}: the tokenizer gives tokens up to {greatest}, but the model has embeddings for {rows} tokens; "
            "it is the tokenizer of another model"
        )


@contextlib.contextmanager
def _explained(folder: Path, problem: str, needs_code: bool = False) -> Iterator[None]:
    """Turn whatever transformers raises on data that it does not expect into an CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        if needs_code and "trust_remote_code" in str(error):
            raise CheckpointError(
                f"{folder} needs Python code of its own (auto_map), which is never run. Take a model of an "
                "architecture that transformers knows, or serve this one and name it as MODEL@URL"
            ) from error
        raise CheckpointError(f"{folder} holds {problem}: {_short(error)}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' tables of missing weights: those are errors here."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def _short(error: BaseException, limit: int = 300) -> str:
    """The beginning of an error's message in one line."""
    lines: Iterable[str] = filter(None, (line.strip() for line in str(error).splitlines()))
    text = " ".join(lines) or type(error).__name__
    return text if len(text) <= limit else f"{text[:limit]} ..."

"""Folders that look like models: a sound one, made once, and ways to spoil a copy of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer

CODE = """
import pathlib
pathlib.Path({mark!r}).write_text("this code ran")
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
class Config(GPT2Config): model_type = "foreign"
class Model(GPT2LMHeadModel): config_class = Config
class Tokenizer(PreTrainedTokenizerFast): pass
"""
"""A module of a model's folder that leaves a mark when it is imported."""


def sound_model(folder: Path) -> Path:
    """A small model with its tokenizer, in the layout of transformers."""
    tokenizer = tiny_tokenizer(["a b c"] * 3, vocabulary=300)
    tiny_model(tokenizer, width=8, layers=1, heads=1, context=64).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def change_json(path: Path, **values: Any) -> None:
    """Set values in a file with a JSON object; `...` removes one."""
    content = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Write the weights anew after a change to them by name."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def with_code(source: Path, folder: Path, mark: Path, *, model: bool, tokenizer: bool) -> Path:
    """A copy of a model whose configuration asks for Python code of its own; that writes `mark` when it runs."""
    shutil.copytree(source, folder)
    (folder / "foreign.py").write_text(CODE.format(mark=str(mark)))
    if model:
        auto = {"AutoConfig": "foreign.Config", "AutoModelForCausalLM": "foreign.Model"}
        change_json(folder / "config.json", model_type="foreign", auto_map=auto)
    if tokenizer:
        classes = {"AutoTokenizer": ["foreign.Tokenizer", "foreign.Tokenizer"]}
        change_json(folder / "tokenizer_config.json", tokenizer_class="Tokenizer", auto_map=classes)
    return folder

"""How much of a device's arithmetic an update uses (model FLOPs utilization, MFU)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from marl_gem.trainers.backends.adapters import AdapterModel, CausalModel
from marl_gem.trainers.rows import Row

PEAK_FLOPS = {
    "B200": 2.25e15,
    "GH200": 9.89e14,
    "H200": 9.89e14,
    "H100": 9.89e14,
    "A100": 3.12e14,
    "L40S": 3.62e14,
    "RTX 4090": 1.65e14,
    "A10": 1.25e14,
    "L4": 1.21e14,
}
"""Dense bfloat16 operations a second, by a part of the device's name, as NVIDIA's data sheets give them; a longer name
stands before a shorter one that it holds."""


def peak_flops(device: torch.device) -> float | None:
    """The greatest number of bfloat16 operations a second; None where it is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAK_FLOPS.items() if part in name), None)


def update_flops(model: CausalModel, rows: Sequence[Row]) -> float:
    """The operations of one forward and backward pass over these rows, without what is computed twice to save memory.

    Two for each weight and token of the forward pass, and as many again for the gradient of the activations and, where
    the weights learn, for that of the weights; attention over the tokens before; the head where tokens were sampled.
    Source: PaLM (arXiv 2204.02311), appendix B, with causal attention.
    """
    network = model.shared.model if isinstance(model, AdapterModel) else model
    config = network.config.get_text_config()
    head = network.get_input_embeddings().weight.numel()
    looked_up = {id(part.weight) for part in network.modules() if isinstance(part, torch.nn.Embedding)}
    inner = sum(p.numel() for p in network.base_model.parameters() if id(p) not in looked_up)
    tokens, sampled = sum(len(row.ids) for row in rows), sum(sum(map(bool, row.counts)) for row in rows)
    heads = config.num_attention_heads
    width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    attention = 2 * config.num_hidden_layers * width * sum(len(row.ids) ** 2 for row in rows)
    passes = 2 if isinstance(model, AdapterModel) else 3
    return float(passes * 2 * (inner * tokens + head * sampled) + 3 * attention)

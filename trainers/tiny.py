"""Small models made on the spot, for machines without a GPU and without a model hub.

They are ordinary transformers models with ordinary tokenizers, made from a configuration with random
weights; a downloaded checkpoint takes the same road afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.trainers import BpeTrainer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("system", "user", "assistant")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% if message.role == 'assistant' %}" + END + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


SPLITS = {"lines": r"[^\n]*\n+|[^\n]+", "words": r"\W*\w+|\W+"}


VOCABULARY = 2048
"""The greatest number of tokens of a tiny tokenizer."""


def tiny_tokenizer(
    texts: Iterable[str], vocabulary: int = VOCABULARY, *, split: str = "lines", tools: bool = False
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on `texts`.

    Merges may span words but not lines, so that a line that stands in the texts often, such as a row of a
    board, becomes one token: prompts are short, and what a small model would have to piece together from
    several tokens it finds in one embedding. Where texts are sentences, split into "words" instead: then one token
    is a word with what stands before it, as in `": "name`. Other text falls back to smaller pieces, down to bytes,
    and none is lost.

    Args:
        texts: what it will see.
        vocabulary: the greatest number of tokens.
        split: what a token holds at most, "lines" or "words".
        tools: whether there are messages of tools.
    """
    tokenizer = Tokenizer(models.BPE())
    pieces = pre_tokenizers.Split(Regex(SPLITS[split]), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pieces, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        show_progress=False,
        special_tokens=[PAD, END, *(f"<|{role}|>" for role in (*ROLES, *["tool"] * tools))],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def tiny_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    context: int = 512,
    seed: int = 0,
) -> GPT2LMHeadModel:
    """A GPT-2 with random weights for this tokenizer.

    Args:
        tokenizer: gives the vocabulary and the special tokens.
        width: the size of the hidden states.
        layers, heads: of the transformer.
        context: the greatest number of tokens it reads.
        seed: fixes the weights.
    """
    config = tiny_config(len(tokenizer), width=width, layers=layers, heads=heads, context=context)
    config.bos_token_id = config.eos_token_id = tokenizer.eos_token_id
    config.pad_token_id = tokenizer.pad_token_id
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config)


def tiny_config(vocabulary: int, *, width: int, layers: int, heads: int, context: int) -> GPT2Config:
    """The configuration of a tiny model; see `tiny_model`."""
    return GPT2Config(
        vocab_size=vocabulary,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        n_positions=context,
        initializer_range=width**-0.5,  # GPT-2's 0.02 suits a width of 768; narrow models learn far slower with it
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,  # GPT-2's numbers are beyond this vocabulary, and transformers warns of them
        eos_token_id=None,
    )

"""Prompts in tokens, by the chat templates of many vendors. No message can imitate a control token."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AddedToken, PreTrainedTokenizerFast

from marl_gem.errors import LLMError
from marl_gem.llm.chat_template import ChatTemplate
from marl_gem.trainers.tiny import tiny_tokenizer
from marl_gem.types import Message

VENDORS = {
    "qwen2_5": "<|im_end|>",
    "qwen3": "<|im_end|>",
    "qwen3_5_think": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "llama3_1": "<|eot_id|>",
    "llama3_2": "<|eot_id|>",
    "gemma": "<end_of_turn>",
    "gemma3": "<end_of_turn>",
    "phi3": "<|end|>",
    "phi3_5": "<|end|>",
    "cohere": "<|END_OF_TURN_TOKEN|>",
    "cohere2": "<|end|>",
    "deepseekv3": "<|end|>",
    "glm4moe": "<|user|>",
    "gptoss": "<|end|>",
    "lfm2": "<|im_end|>",
    "nemotron_3_nano": "<|im_end|>",
}
"""Templates that trl ships, and the token that each writes after an answer; "<|end|>" is the stand-in's own."""

CONTROL = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|assistant|>",
    "<|user|>",
    "<|system|>",
    "<|START_OF_TURN_TOKEN|>",
    "<|END_OF_TURN_TOKEN|>",
]
TEXT_LIKE = ["<tool_call>", "</tool_call>", "<tool_response>", "<think>", "</think>"]
"""Tokens that are added, but not marked as special: in Qwen3 these are."""


def tokenizer(template: str | None = None) -> PreTrainedTokenizerFast:
    found = tiny_tokenizer(["hello"], tools=True)
    found.add_special_tokens({"additional_special_tokens": CONTROL, "bos_token": "<bos>"})
    found.add_tokens([AddedToken(text, special=False) for text in TEXT_LIKE])
    if template:
        found.chat_template = template
    return found


def vendor(name: str) -> PreTrainedTokenizerFast:
    spec = importlib.util.find_spec("trl")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the templates of many vendors come with trl: pip install --no-deps trl==1.16.0")
    return tokenizer((Path(spec.submodule_search_locations[0]) / "chat_templates" / f"{name}.jinja").read_text("utf-8"))


def user(text: str) -> Message:
    return {"role": "user", "content": text}


CONVERSATIONS = {
    "chat": ["system", "user", "assistant", "user", "assistant", "user"],
    "tools": ["system", "user", "assistant", "tool", "assistant", "tool", "tool", "assistant", "user"],
    "no system message": ["user", "assistant", "tool", "assistant", "user"],
}


@pytest.mark.parametrize("name", VENDORS)
class TestVendors:
    @pytest.mark.parametrize("conversation", CONVERSATIONS)
    def test_every_prompt_begins_with_the_prompt_and_the_answer_before(self, name: str, conversation: str) -> None:
        tokens = vendor(name)
        template = ChatTemplate(tokens, name)
        messages: list[Message] = []
        before: tuple[int, ...] = ()
        prompts = 0
        for index, role in enumerate(CONVERSATIONS[conversation]):
            if role == "assistant":
                prompt, answer = template.encode(messages), template.encode_answer(f"answer {index}")
                assert prompt[: len(before)] == before
                before, prompts = prompt + answer, prompts + 1
                messages.append({"role": "assistant", "content": f"answer {index}", "token_ids": answer})
            else:
                messages.append({"role": role, "content": f"{role} {index}."})  # type: ignore[typeddict-item]
        prompt = template.encode(messages)
        assert prompt[: len(before)] == before and prompts >= 2
        text = tokens.decode(prompt)
        positions = [text.index(str(message["content"])) for message in messages]
        assert positions == sorted(positions)
        assert all(text.count(str(message["content"])) == 1 for message in messages)

    def test_an_answer_ends_as_the_template_ends_it(self, name: str) -> None:
        tokens = vendor(name)
        template = ChatTemplate(tokens, name)
        (end,) = template.encode_answer("")
        assert tokens.convert_ids_to_tokens(end) == VENDORS[name]
        assert template.ends == {end, tokens.eos_token_id}

    def test_no_text_becomes_a_control_token(self, name: str) -> None:
        tokens = vendor(name)
        template = ChatTemplate(tokens, name)
        hostile = "".join(CONTROL + TEXT_LIKE) + "<|end|><bos><|pad|>"
        ordinary, attacked = template.encode([user("x")]), template.encode([user(hostile)])
        added = set(tokens.added_tokens_decoder)
        assert [t for t in attacked if t in added] == [t for t in ordinary if t in added]
        assert hostile in tokens.decode(attacked)


class TestTexts:
    @given(st.lists(st.sampled_from([*CONTROL, *TEXT_LIKE, "<", "|", "think>", "a", " ", "é", "\n"]), max_size=12))
    def test_whatever_is_said_stays_text(self, parts: list[str]) -> None:
        tokens, text = STANDARD, "".join(parts)
        ids = TEMPLATE.encode_answer(text)[:-1]
        assert not set(ids) & set(tokens.added_tokens_decoder)
        assert tokens.decode(ids) == text

    def test_lone_surrogates_are_replaced(self) -> None:
        assert STANDARD.decode(TEMPLATE.encode_answer("a\ud800b")[:-1]) == "a?b"


STANDARD = tokenizer()
TEMPLATE = ChatTemplate(STANDARD)


class TestTemplates:
    def test_variables_of_the_template(self) -> None:
        tokens = vendor("qwen3")
        thinking, off = (ChatTemplate(tokens, options={"enable_thinking": value}) for value in (True, False))
        assert "<think>\n\n</think>" in tokens.decode(off.encode([user("x")]))
        assert "<think>" not in tokens.decode(thinking.encode([user("x")]))

    def test_a_base_model_ends_its_answers_as_its_template_does(self) -> None:
        """As Qwen3's base models: the tokenizer's end is <|endoftext|>, the template's <|im_end|>."""
        tokens = vendor("qwen3")
        tokens.eos_token = "<|endoftext|>"
        template = ChatTemplate(tokens, ends=[77])
        answer = template.encode_answer("yes")
        assert tokens.convert_ids_to_tokens(answer[-1]) == "<|im_end|>"
        assert template.ends == {answer[-1], tokens.eos_token_id, 77}
        messages: list[Message] = [user("x"), {"role": "assistant", "content": "yes", "token_ids": answer}, user("y")]
        assert "yes<|im_end|>\n<|im_start|>user\ny" in tokens.decode(template.encode(messages))

    def test_an_answer_that_was_cut_is_ended_in_the_next_prompt(self) -> None:
        tokens = vendor("qwen3")
        template = ChatTemplate(tokens)
        cut = template.encode_answer("yes")[:-1]
        messages: list[Message] = [user("x"), {"role": "assistant", "content": "yes", "token_ids": cut}, user("y")]
        assert "yes<|im_end|>\n<|im_start|>user\ny" in tokens.decode(template.encode(messages))

    def test_a_template_that_leaves_messages_out_is_refused(self) -> None:
        template = ChatTemplate(tokenizer("{{ messages[0].content }}"), "small")
        assert template.encode([user("x"), user("y")])  # joined to one message
        answered: list[Message] = [user("x"), {"role": "assistant", "content": "yes"}, user("y")]
        with pytest.raises(LLMError, match="template of small refuses messages of the roles user, assistant, user: it"):
            template.encode(answered)

    def test_a_tokenizer_without_a_template_is_refused(self) -> None:
        tokens = tokenizer()
        tokens.chat_template = None
        with pytest.raises(LLMError, match="'small' needs a chat template"):
            ChatTemplate(tokens, "small")

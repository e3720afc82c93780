"""A language model that is asked elsewhere: by a trainer, a sampling client or an agent of somebody else.

    model = OutsideModel(generate, tokenizer)

Prompts are made by the tokenizer's own chat template, and an earlier answer goes into the next prompt as the tokens
that were sampled: so the turns of a seat can be trained as one sequence.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from marl_gem.errors import ContextTooLong, LLMError
from marl_gem.llm import Sampling
from marl_gem.llm.chat_template import ChatTemplate
from marl_gem.llm.wire import split_reasoning
from marl_gem.types import Message, Response, ToolSpec

Tokenizer: TypeAlias = Any
"""A tokenizer of transformers; nothing is imported for it here."""


class Request(NamedTuple):
    """What a seat is asked. Without a tokenizer `prompt_ids` are empty, and `messages` are all there is.

    `ends` are the tokens that end an answer.
    """

    messages: list[Message]
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    tools: tuple[ToolSpec, ...]
    ends: tuple[int, ...] = ()

    @property
    def new_messages(self) -> list[Message]:
        """What came after the seat's last answer."""
        answers = [index for index, message in enumerate(self.messages) if message["role"] == "assistant"]
        return self.messages[answers[-1] + 1 if answers else 0 :]


class Completion(msgspec.Struct, frozen=True):
    """What the other side sampled.

    `logprobs` holds the natural logarithm of each token's probability, or is empty. `text` is decoded from the tokens
    where it is None. `finish_reason` is "length" for an answer that its greatest length cut short, "stop" for others;
    by default the last token says which it is. `version` is the number of updates of the policy that answered.
    """

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    text: str | None = None
    finish_reason: str = ""
    version: int = 0


Answer: TypeAlias = Completion | str
Generate: TypeAlias = Callable[[list[Request]], Sequence[Answer] | Awaitable[Sequence[Answer]]]
"""From requests to an answer for each: a function, or a coroutine function, which other episodes do not wait for."""


class OutsideModel:
    """An `LLM` whose answers a function gives.

    Requests that arrive before the event loop becomes idle are answered in one call. So a function that holds the
    event loop, such as a trainer's own generation, gets as large batches as there can be.

    Args:
        generate: from a list of requests to a list of completions, or of texts.
        tokenizer: a tokenizer of transformers with a chat template; None where the other side tokenizes.
        name: goes into records.
        max_batch: the greatest number of requests in one call; None sets no limit. With 1, a coroutine function is
            called for each request by itself.
        context: the greatest number of tokens of prompt and answer together; a longer history is cut, see `LLMPolicy`.
        template_options: variables of the chat template, such as {"enable_thinking": False}.

    Raises:
        LLMError: the tokenizer has no chat template or no end-of-sequence token.
    """

    def __init__(
        self,
        generate: Generate,
        tokenizer: Tokenizer | None = None,
        *,
        name: str = "outside",
        max_batch: int | None = None,
        context: int | None = None,
        template_options: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.template = None if tokenizer is None else ChatTemplate(tokenizer, name, options=template_options)
        self._generate, self._tokenizer = generate, tokenizer
        self._max_batch, self._context = max_batch, context
        self._waiting: list[tuple[Request, asyncio.Future[Response]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        prompt = self.template.encode(messages, tools) if self.template else ()
        if self._context is not None and len(prompt) >= self._context:
            raise ContextTooLong(
                f"a prompt of {len(prompt)} tokens does not fit {self.name}, which reads {self._context}"
            )
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # what an earlier loop left when it was interrupted, nobody waits for
            self._loop, self._waiting = loop, []
        answer: asyncio.Future[Response] = loop.create_future()
        ends = tuple(sorted(self.template.ends)) if self.template else ()
        self._waiting.append((Request(list(messages), prompt, sampling, seed, tuple(tools), ends), answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._answer_when_idle, 0)
        return await answer

    def _answer_when_idle(self, seen: int) -> None:
        """Wait until one iteration of the event loop has brought no further request, then ask for all answers."""
        loop = asyncio.get_running_loop()
        if len(self._waiting) > seen:
            loop.call_soon(self._answer_when_idle, len(self._waiting))
            return
        waiting, self._waiting = [(r, answer) for r, answer in self._waiting if not answer.done()], []
        size = self._max_batch or max(1, len(waiting))
        for start in range(0, len(waiting), size):
            task = loop.create_task(self._answer(waiting[start : start + size]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, batch: list[tuple[Request, asyncio.Future[Response]]]) -> None:
        requests = [request for request, _ in batch]
        try:
            given = self._generate(requests)
            completions = list(await given if inspect.isawaitable(given) else given)
            if len(completions) != len(requests):
                raise LLMError(f"{self.name} gave {len(completions)} answers to {len(requests)} requests; one for each")
            responses = [self._response(*pair) for pair in zip(requests, completions, strict=True)]
        except BaseException as error:  # whatever it is, no request may be left waiting
            failure = (
                error if isinstance(error, LLMError) else LLMError(f"{self.name}: {type(error).__name__}: {error}")
            )
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(failure)
            if not isinstance(error, Exception):
                raise
            return
        for (_, answer), response in zip(batch, responses, strict=True):
            if not answer.done():
                answer.set_result(response)

    def _response(self, request: Request, completion: Answer) -> Response:
        if isinstance(completion, str):
            completion = Completion(text=completion)
        ids = tuple(int(token) for token in completion.token_ids)
        text = completion.text
        if text is None:
            if self._tokenizer is None:
                raise LLMError(f"{self.name} answered in tokens without text; give it the tokenizer, or text")
            text = str(self._tokenizer.decode(ids, skip_special_tokens=True))
        if completion.logprobs and len(completion.logprobs) != len(ids):
            raise LLMError(f"{self.name} gave {len(completion.logprobs)} log-probabilities for {len(ids)} tokens")
        ended = self.template is None or not ids or ids[-1] in self.template.ends
        reasoning, text = split_reasoning(text)
        return Response(
            text=text,
            reasoning=reasoning,
            prompt_ids=request.prompt_ids,
            token_ids=ids,
            logprobs=tuple(float(value) for value in completion.logprobs),
            finish_reason=completion.finish_reason or ("stop" if ended else "length"),
            version=completion.version,
            usage={"prompt_tokens": len(request.prompt_ids), "completion_tokens": len(ids)} if ids else {},
        )

"""Tools made of functions, classes and methods: their schema, the check of arguments, and what comes back."""

from __future__ import annotations

import asyncio
import enum
import math
import pickle
import threading
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, Optional

import pytest

from marl_gem.errors import ConfigError, LLMError, ResourceError
from marl_gem.tools import Context, FunctionTool, Image, Tool, ToolError, ToolResult, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: float = 0.0


@tool
def paint(
    shape: Literal["square", "circle"],
    corners: list[Point],
    colour: Colour = Colour.RED,
    width: int | None = None,
    label: Optional[str] = None,  # noqa: UP045
    scale: int | str = 1,
    tags: list[str] = [],  # noqa: B006
) -> str:
    """Paint a shape.

    It stays on the wall.

    Args:
        shape: What to paint.
        corners: Where its corners are,
            from left to right.
        width (int): In pixels.
    """
    return f"{shape} {corners} {colour.name} {width} {label} {scale} {tags}"


def call(a_tool: Tool, arguments: Any = None, context: Context | None = None) -> ToolResult:
    return asyncio.run(a_tool.call({} if arguments is None else arguments, context))


def error_of(a_tool: Tool, arguments: Any = None) -> tuple[str, str]:
    result = call(a_tool, arguments)
    assert result.is_error
    return result.error, result.text


# The schema


def test_the_schema_comes_from_signature_and_docstring() -> None:
    schema = paint.spec.parameters
    assert (paint.name, paint.spec.description) == ("paint", "Paint a shape.\n\nIt stays on the wall.")
    assert schema["type"] == "object" and schema["required"] == ["shape", "corners"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["shape"] == {"description": "What to paint.", "enum": ["circle", "square"]}
    assert properties["corners"]["items"] == {"$ref": "#/$defs/Point"}
    assert properties["corners"]["description"] == "Where its corners are, from left to right."
    assert properties["colour"]["default"] == "red" and schema["$defs"]["Colour"]["enum"] == ["blue", "red"]
    assert properties["width"] == {
        "description": "In pixels.",
        "anyOf": [{"type": "integer"}, {"type": "null"}],
        "default": None,
    }
    assert properties["scale"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert properties["tags"] == {"type": "array", "items": {"type": "string"}, "default": []}
    assert schema["$defs"]["Point"]["required"] == ["x"]


@pytest.mark.parametrize(
    "docstring",
    [
        "Add.\n\nArgs:\n    a: The first.\n",
        "Add.\n\nParameters\n----------\na : int\n    The first.\n",
        "Add.\n\n:param a: The first.\n",
    ],
    ids=["google", "numpy", "rest"],
)
def test_docstrings_in_three_styles(docstring: str) -> None:
    def add(a: int) -> int:
        return a

    add.__doc__ = docstring
    spec = tool(add).spec
    assert spec.description == "Add."
    assert spec.parameters["properties"]["a"]["description"] == "The first."


def test_a_tool_without_parameters_and_docstring() -> None:
    @tool
    def now() -> str:
        return "noon"

    assert now.spec.description == "" and now.spec.parameters["properties"] == {}
    assert call(now) == ToolResult("noon") and now() == "noon"


def test_name_and_description_can_be_given() -> None:
    @tool(name="look-up", description="Finds things.")
    def find(text: str) -> str:
        return text

    assert (find.name, find.spec.description) == ("look-up", "Finds things.")


def no_annotation(a) -> str:  # type: ignore[no-untyped-def]
    return str(a)


def any_number(*numbers: int) -> int:
    return sum(numbers)


def of_an_object(a: threading.Thread) -> str:
    return str(a)


def two_records(a: Point | dict[str, int]) -> str:
    return str(a)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_annotation, "a lacks an annotation"),
        (any_number, r"\*args"),
        (of_an_object, "no JSON type"),
        (two_records, "no JSON type"),
    ],
)
def test_what_cannot_be_a_tool_says_why(function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        tool(function)


def test_names_and_limits_that_cannot_be_used() -> None:
    with pytest.raises(ConfigError, match="no name for a tool"):
        tool(name="look up")(no_arguments)
    with pytest.raises(ConfigError, match="timeout is a positive number"):
        tool(timeout=0)(no_arguments)
    with pytest.raises(ConfigError, match="max_length is a positive number"):
        tool(max_length=-1)(no_arguments)


def no_arguments() -> None:
    return None


# Arguments


def test_arguments_become_values_of_their_types_and_the_function_keeps_its_defaults() -> None:
    result = call(paint, {"shape": "circle", "corners": [{"x": 1, "y": 2}], "colour": "blue", "width": 3})
    assert result.content == "circle [Point(x=1, y=2.0)] BLUE 3 None 1 []"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"corners": []}, "the argument 'shape' is missing"),
        ({"shape": "circle", "corners": [], "size": 1}, "there is no argument 'size'"),
        ({"shape": "star", "corners": []}, "the argument 'shape': there is no value 'star'"),
        ({"shape": "circle", "corners": [{"x": "1"}]}, "the argument 'corners[0].x': expected int, got str"),
        ({"shape": "circle", "corners": [{}]}, "the argument 'corners[0]': the argument 'x' is missing"),
        ({"shape": "circle", "corners": None}, "the argument 'corners': expected array, got null"),
        ({"shape": "circle", "corners": [], "width": True}, "the argument 'width': expected int | null, got bool"),
        ({"shape": "circle", "corners": [], "width": math.nan}, "the argument 'width': expected int | null, got float"),
    ],
)
def test_wrong_arguments_are_told_in_words_a_model_can_use(arguments: Any, complaint: str) -> None:
    error, text = error_of(paint, arguments)
    assert error == "arguments"
    assert text.startswith(f"Error: paint: {complaint}. It takes paint(shape: 'circle' or 'square', corners: array of ")


def test_arguments_nested_without_end() -> None:
    @tool
    def keep(value: list[Any]) -> str:
        return "kept"

    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    result = call(keep, {"value": value})
    assert result.text in (
        "kept",
        "Error: keep: the arguments are nested too deeply. It takes keep(value: array of any)",
    )


def test_a_model_does_not_see_the_context_and_cannot_set_it() -> None:
    @tool
    def who(greeting: str, context: Context) -> str:
        return f"{greeting} {context.agent} {context.seed} {context.env}"

    assert list(who.spec.parameters["properties"]) == ["greeting"]
    assert call(who, {"greeting": "hi"}, Context("player_1", 7, "the env")).content == "hi player_1 7 the env"
    assert "there is no argument 'context'" in error_of(who, {"greeting": "hi", "context": "me"})[1]


# Functions, classes, methods


def test_an_asynchronous_function_is_awaited() -> None:
    @tool
    async def slow(a: int) -> int:
        await asyncio.sleep(0)
        return a + 1

    assert call(slow, {"a": 1}).content == "2"


def test_a_function_runs_in_a_thread_unless_it_says_otherwise() -> None:
    def thread() -> int:
        return threading.get_ident()

    assert call(tool(thread)).content != str(threading.get_ident())
    assert call(tool(in_thread=False)(thread)).content == str(threading.get_ident())


class Notes:
    """Keeps notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def __call__(self, note: str) -> str:
        """Add a note.

        Args:
            note: The text.
        """
        self.notes.append(note)
        return ", ".join(self.notes)


notes = tool(name="notes")(Notes)


def test_an_object_of_a_class_belongs_to_one_agent_of_one_episode() -> None:
    assert notes.spec.description == "Keeps notes."
    assert notes.spec.parameters["properties"]["note"]["description"] == "The text."
    ann, bob, later = Context("ann"), Context("bob"), Context("ann")
    bob = Context("bob", leases=ann.leases)
    assert call(notes, {"note": "a"}, ann).content == "a"
    assert call(notes, {"note": "b"}, ann).content == "a, b"
    assert call(notes, {"note": "c"}, bob).content == "c"
    assert call(notes, {"note": "d"}, later).content == "d"


def test_agents_can_share_an_object_of_a_class() -> None:
    shared = tool(name="notes", scope="episode")(Notes)
    ann = Context("ann")
    call(shared, {"note": "a"}, ann)
    assert call(shared, {"note": "b"}, Context("bob", leases=ann.leases)).content == "a, b"


class Shop:
    def __init__(self, price: int) -> None:
        self.price = price

    @tool
    def cost(self, count: int) -> int:
        """What so many cost."""
        return self.price * count

    def plain(self, count: int) -> int:
        return self.price * count


def test_methods() -> None:
    assert call(Shop(3).cost, {"count": 2}).content == "6"
    assert Shop(3).cost(2) == 6
    assert call(tool(Shop(4).plain), {"count": 2}).content == "8"
    assert Shop.cost.spec == Shop(3).cost.spec
    assert list(Shop.cost.spec.parameters["properties"]) == ["count"]


def test_tools_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(paint)) is paint
    assert pickle.loads(pickle.dumps(notes)).spec == notes.spec
    method = pickle.loads(pickle.dumps(tool(Shop(5).plain)))
    assert call(method, {"count": 2}).content == "10"


# Answers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (None, ""),
        (3, "3"),
        (True, "true"),
        (math.nan, "NaN"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ([Point(1)], '[{"x": 1, "y": 0.0}]'),
        (Colour.RED, '"red"'),
        ("lone surrogate \ud800", "lone surrogate \ud800"),
    ],
)
def test_what_a_tool_may_return(value: Any, text: str) -> None:
    assert call(tool(name="give")(lambda: value)) == ToolResult(text)


@pytest.mark.parametrize("value", [object(), b"bytes", {1: object()}, threading.Lock()])
def test_what_is_no_answer_is_an_error_that_names_it(value: Any) -> None:
    error, text = error_of(tool(name="give")(lambda: value))
    assert error == "answer" and text.startswith("Error: give gave no answer that can be shown: it returned a ")


def test_a_list_in_itself_is_no_answer() -> None:
    value: list[Any] = []
    value.append(value)
    assert error_of(tool(name="give")(lambda: value))[0] == "answer"


def test_images_become_parts() -> None:
    result = call(tool(name="draw")(lambda: ["two dots", Image(b"dots")]))
    assert result.content == [
        {"type": "text", "text": "two dots"},
        {"type": "image", "url": "data:image/png;base64,ZG90cw=="},
    ]
    assert result.text == "two dots" and len(result.images) == 1
    assert call(tool(name="draw")(lambda: Image(b"", "image/jpeg"))).images[0]["url"] == "data:image/jpeg;base64,"


def test_a_long_answer_is_cut_and_says_so() -> None:
    text = "a" * 3_000_000 + "the end"
    content = call(tool(name="give", max_length=90)(lambda: text)).text
    assert content.startswith("a" * 60 + "\n[... 2,999,917 of 3,000,007 characters are left out here ...]\n")
    assert content.endswith("the end") and len(content) < 200


def test_what_a_tool_raises_is_the_answer() -> None:
    @tool
    def divide(a: int, b: int) -> float:
        if a < 0:
            raise ToolError("a must not be negative")
        return a / b

    assert error_of(divide, {"a": 1, "b": 0}) == ("raised", "Error: divide raised ZeroDivisionError: division by zero")
    assert error_of(divide, {"a": -1, "b": 0}) == ("refused", "Error: a must not be negative")


RAISED = [SystemExit(3), asyncio.CancelledError(), TimeoutError("own")]


@pytest.mark.parametrize(
    ("raised", "asynchronous"), [(KeyboardInterrupt(), False), *product(RAISED, (False, True))], ids=repr
)
def test_whatever_a_tool_raises_ends_nothing_but_the_call(raised: BaseException, asynchronous: bool) -> None:
    @tool(name="fail")
    def fail() -> None:
        raise raised

    @tool(name="fail")
    async def fail_later() -> None:
        raise raised

    assert error_of(fail_later if asynchronous else fail)[0] == "raised"


@pytest.mark.parametrize("error", [ResourceError("no process"), LLMError("no answer")])
def test_failures_of_the_infrastructure_are_no_answers(error: Exception) -> None:
    @tool
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        call(fail)


def test_a_tool_that_hangs_is_stopped() -> None:
    free = threading.Event()

    @tool(timeout=0.05)
    def hang() -> bool:
        return free.wait(60)

    @tool(timeout=0.05)
    async def hang_too() -> None:
        await asyncio.sleep(60)

    try:
        assert error_of(hang) == ("time-out", "Error: hang took longer than 0.05 s and was stopped")
        assert error_of(hang_too)[0] == "time-out"
    finally:
        free.set()


def test_a_blocking_tool_holds_up_no_others() -> None:
    free = threading.Event()

    @tool
    def wait() -> bool:
        return free.wait(60)

    @tool
    async def release() -> str:
        free.set()
        return "released"

    async def both() -> list[ToolResult]:
        return list(await asyncio.gather(wait.call({}), release.call({})))

    assert [result.content for result in asyncio.run(both())] == ["true", "released"]


def test_a_tool_is_made_once() -> None:
    assert isinstance(paint, FunctionTool) and isinstance(paint, Tool)

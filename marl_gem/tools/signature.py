"""The schema of a function's arguments, and the check of a call against it."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from marl_gem.faults import shown
from marl_gem.tools.context import Context
from marl_gem.tools.resources import Resource
from marl_gem.tools.result import ToolError
from marl_gem.types import ToolSpec


class Signature:
    """What a function takes: the arguments that a model gives, and those that are filled in.

    Args:
        function: a function, a bound method, or a class or an object with `__call__`.
        name: of the tool; by default the function's.
        description: of the tool; by default the docstring's.

    Raises:
        TypeError: a parameter lacks an annotation, has one without a JSON type, or is `*args` or `**kwargs`.
    """

    def __init__(self, function: Callable[..., Any], name: str = "", description: str = "") -> None:
        name = name or getattr(function, "__name__", type(function).__name__)
        code = code_of(function)
        hints = _hints(code, name)
        summary, described = _described(function, code)
        self.contexts: list[str] = []
        self.resources: dict[str, type[Resource]] = {}
        fields: list[Any] = []
        defaults: dict[str, Any] = {}
        for position, parameter in enumerate(inspect.signature(code).parameters.values()):
            if parameter.name == "self" and position == 0:
                continue  # a method in the body of its class
            hint = _hint(parameter, hints, name)
            if hint is Context:
                self.contexts.append(parameter.name)
            elif isinstance(hint, type) and issubclass(hint, Resource):
                self.resources[parameter.name] = hint
            else:
                if text := described.get(parameter.name):
                    hint = Annotated[hint, msgspec.Meta(description=text)]
                if parameter.default is parameter.empty:
                    fields.append((parameter.name, hint))
                else:
                    defaults[parameter.name] = parameter.default
                    factory: Any = _giving(parameter.default)
                    fields.append((parameter.name, hint, msgspec.field(default_factory=factory)))
        try:
            self._struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
            msgspec.json.Decoder(self._struct)  # looks at the type now: msgspec crashes if two threads do so at once
            schema = _schema(self._struct, defaults)
        except TypeError as error:
            raise TypeError(f"tool {name}: a parameter has no JSON type: {error}") from error
        self.spec = ToolSpec(name, description or summary, schema)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as values of the annotated types; those that the call leaves out are left out.

        Raises:
            ToolError: they do not fit; the message says where, and what the tool takes.
        """
        try:
            checked = msgspec.convert(arguments, self._struct)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ToolError(f"{self.spec.name}: {_complaint(error)}. It takes {usage(self.spec)}") from None
        return {name: getattr(checked, name) for name in self._struct.__struct_fields__ if name in arguments}


def code_of(function: Any) -> Any:
    """What runs when a tool is called: of a class or an object its `__call__`."""
    return function if inspect.isroutine(function) else function.__call__


def usage(spec: ToolSpec) -> str:
    """A tool's arguments in one line, as in `weather(city: string, days?: integer)`."""
    required = spec.parameters.get("required", ())
    names = [
        f"{name}{'' if name in required else '?'}: {_type_text(schema)}"
        for name, schema in spec.parameters.get("properties", {}).items()
    ]
    return f"{spec.name}({', '.join(names)})"


def _type_text(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(_type_text(part) for part in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("type", "any")
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return f"array of {_type_text(schema['items'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _complaint(error: Exception) -> str:
    """What is wrong with arguments, in words about arguments."""
    if isinstance(error, RecursionError):
        return "the arguments are nested too deeply"
    text, _, path = str(error).partition(" - at `$.")
    for pattern, plain in (
        (r"Object contains unknown field `(.*)`", r"there is no argument '\1'"),
        (r"Object missing required field `(.*)`", r"the argument '\1' is missing"),
    ):
        text = re.sub(pattern, plain, text)
    text = text.replace("`", "").replace("Expected", "expected").replace("Invalid enum value", "there is no value")
    return f"the argument '{path.rstrip('`')}': {text}" if path else text


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"tool {name}: an annotation names something that its module does not hold: {error}") from error


def _hint(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> Any:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise TypeError(f"tool {name}: arguments are given by name, so *args, **kwargs and / cannot be used")
    if parameter.name not in hints:
        raise TypeError(f"tool {name}: {parameter.name} lacks an annotation, as in {parameter.name}: str")
    return hints[parameter.name]


def _giving(value: Any) -> Callable[[], Any]:
    return lambda: value


def _schema(struct: type[msgspec.Struct], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with these fields."""
    written = msgspec.json.schema(struct)
    definitions = written["$defs"]
    schema: dict[str, Any] = definitions.pop(struct.__name__)
    for name, value in defaults.items():
        try:
            schema["properties"][name]["default"] = msgspec.to_builtins(value)
        except TypeError:
            raise TypeError(f"the default of {name} is {shown(value)}") from None
    del schema["title"]
    return schema | ({"$defs": definitions} if definitions else {})


def _described(function: object, code: object) -> tuple[str, dict[str, str]]:
    """The description of a tool, and those of its parameters, of a class also from the docstring of `__call__`."""
    summary, parameters = _read_docstring(inspect.getdoc(function) or "")
    if code is function:
        return summary, parameters
    of_call, more = _read_docstring(inspect.getdoc(code) or "")
    return summary or of_call, {**parameters, **more}


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and that of each parameter, in the styles of Google, NumPy and reST."""
    if not text:
        return "", {}
    import docstring_parser  # 10 ms

    try:
        read = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    parts = [part for part in (read.short_description, read.long_description) if part]
    described = {item.arg_name: " ".join((item.description or "").split()) for item in read.params}
    return "\n\n".join(parts), described

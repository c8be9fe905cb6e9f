"""PURE: may this call run? Availability, exclusiveness, arguments, repeated failures, the number of calls of a step.

Laws:
- A verdict is about a call alone or about its step; nothing is run to find it, and nobody is asked.
- A refusal says first what is wrong, then what is accepted. It names fields, and never repeats a value: a value may be
  long, and may be a secret.
- The third identical call after two failures isn't run: a model that repeats itself gets told so. Identical calls that
  succeed are never refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from actors import too_long
from maka.contracts.codec import canonical_json, hash_hex
from maka.contracts.content import FunctionCall
from maka.contracts.events import RuntimeEvent
from maka.contracts.limits import BAD_TOOL_ROUNDS_MAX, STEP_CALLS_MAX
from maka.contracts.tool_ports import Tool, ToolCatalog

REPEATS_MAX = 2
"""Failures of one call in a row, after which the same call is refused."""
_MISSING = object()
_NO_VALUES = (None, "")
"""What some providers send for a field that the model left out."""


class Admit(Struct, frozen=True, kw_only=True):
    """The call may be dispatched: `name` is the tool's own, `args` fit its schema."""

    name: str
    args: dict[str, Any]


class Refuse(Struct, frozen=True, kw_only=True):
    """The call isn't run; the text is its result."""

    text: str


GateVerdict = Admit | Refuse


class Failures(Struct, frozen=True, kw_only=True):
    """The failed call that is being repeated, if one is. Folded over a run's answers by `note`."""

    signature: str = ""
    streak: int = 0


class ArgumentError(Exception):
    """Arguments that don't fit a schema."""


def check_step(calls: Sequence[RuntimeEvent], tools: ToolCatalog, failures: Failures) -> tuple[GateVerdict, ...]:
    """Decide about the calls of one step, in their order. Each event carries a `FunctionCall`."""
    verdicts: list[GateVerdict] = []
    earlier: list[Tool] = []
    for number, event in enumerate(calls):
        call = event.content
        assert isinstance(call, FunctionCall), "a call without its content"
        tool = find(call.name, tools)
        if number >= STEP_CALLS_MAX:
            verdicts.append(
                Refuse(text=f"not run: a step may have {STEP_CALLS_MAX} calls. Repeat this one in the next")
            )
            continue
        verdicts.append(_verdict(call, tool, tools, earlier, failures))
        if tool is not None:
            earlier.append(tool)
    return tuple(verdicts)


def note(failures: Failures, call: FunctionCall, *, failed: bool) -> Failures:
    """Fold the answer of one call: a success or another call ends a row of failures."""
    if not failed:
        return Failures()
    same = signature(call)
    return Failures(signature=same, streak=failures.streak + 1 if same == failures.signature else 1)


def signature(call: FunctionCall) -> str:
    """Name a call by its tool and arguments; the order of keys doesn't matter."""
    return hash_hex(canonical_json([call.name.lower(), call.args, call.malformed]))


def bad_rounds(before: int, verdicts: Sequence[GateVerdict]) -> int:
    """Count the steps in a row of which every call was refused."""
    refused = bool(verdicts) and not any(isinstance(verdict, Admit) for verdict in verdicts)
    return before + 1 if refused else 0


def must_fail(rounds: int) -> bool:
    """Say whether a run has had its number of such steps, and fails as `invalid_tool_calls`."""
    return rounds >= BAD_TOOL_ROUNDS_MAX


def find(name: str, tools: ToolCatalog) -> Tool | None:
    """Return the tool of a name, also where only the case of letters differs and that leaves one tool."""
    exact = tools.get(name)
    if exact is not None:
        return exact
    alike = [spec.name for spec in tools.specs() if spec.name.lower() == name.strip().lower()]
    return tools.get(alike[0]) if len(alike) == 1 else None


def _verdict(
    call: FunctionCall, tool: Tool | None, tools: ToolCatalog, earlier: Sequence[Tool], failures: Failures
) -> GateVerdict:
    if tool is None:
        names = ", ".join(spec.name for spec in tools.specs()) or "none"
        return Refuse(text=f"not run: there is no tool of this name. Available tools: {names}")
    name, schema = tool.spec.name, tool.spec.parameters
    if earlier and (tool.exclusive or any(one.exclusive for one in earlier)):
        alone = name if tool.exclusive else next(one.spec.name for one in earlier if one.exclusive)
        return Refuse(
            text=f"not run: {alone} must be the only call of its step. Call {name} again in a step of its own"
        )
    if call.malformed is not None and (why := too_long.refusal(name, call.malformed)) is not None:
        return Refuse(text=why)
    if call.cut:
        return Refuse(
            text=f"not run: the arguments of {name} were cut off by the output limit. Do it in smaller parts, with "
            "shorter arguments"
        )
    if call.malformed is not None:
        return Refuse(text=f"not run: arguments must be a JSON object. {accepted(name, schema)}")
    try:
        args = fitted(call.args, schema)
    except ArgumentError as error:
        return Refuse(text=f"not run: {error}. {accepted(name, schema)}")
    if failures.streak >= REPEATS_MAX and failures.signature == signature(call):
        return Refuse(
            text=f"not run: this same call of {name} has just failed {failures.streak} times. Look at why it "
            "failed, and try something else"
        )
    return Admit(name=name, args=args)


def accepted(name: str, schema: Mapping[str, Any]) -> str:
    """Say which arguments a tool takes."""
    fields = _fields(schema)
    return f"{name} takes: {fields}" if fields else f"{name} takes no arguments"


def _fields(schema: Mapping[str, Any]) -> str:
    required = _names(schema.get("required"))
    properties = _mapping(schema.get("properties"))
    return ", ".join(field if field in required else f"{field} (optional)" for field in properties)


def fitted(args: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as the schema wants them, without empty optional ones. Raises ArgumentError.

    Of JSON schema just what our tools use is known: object, properties, required, additionalProperties, string,
    integer, number, boolean, array, enum, minimum, maximum, minLength, maxLength, minItems, maxItems.
    """
    return _object(args, schema, "")


def _object(value: Any, schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{where or 'the argument list'} must be an object")
    given = cast("Mapping[str, Any]", value)
    properties = _mapping(schema.get("properties"))
    required = _names(schema.get("required"))
    if schema.get("additionalProperties") is False and (unknown := [name for name in given if name not in properties]):
        many = "1 unknown field was" if len(unknown) == 1 else f"{len(unknown)} unknown fields were"
        there = f" in {where[:-1]}, which takes: {_fields(schema)}" if where else ""
        raise ArgumentError(f"{many} given{there}")
    out: dict[str, Any] = {name: item for name, item in given.items() if name not in properties}
    for name, inner in properties.items():
        item = given.get(name, _MISSING)
        if item is _MISSING or (item in _NO_VALUES and name not in required):
            if name in required:
                raise ArgumentError(f"the field {where}{name} is missing")
            continue
        out[name] = _value(item, _mapping(inner), f"{where}{name}")
    return out


def _value(value: Any, schema: Mapping[str, Any], where: str) -> Any:
    match schema.get("type"):
        case "object":
            value = _object(value, schema, f"{where}.")
        case "array":
            value = _array(value, schema, where)
        case "string":
            _must(isinstance(value, str), where, "must be a string")
            _within(len(value), schema, where, "minLength", "maxLength", "characters")
        case "integer":
            if isinstance(value, float) and value.is_integer():
                value = int(value)  # JSON has one kind of number, and some models write 3.0
            _must(isinstance(value, int) and not isinstance(value, bool), where, "must be an integer")
            _within(value, schema, where, "minimum", "maximum", "")
        case "number":
            _must(isinstance(value, int | float) and not isinstance(value, bool), where, "must be a number")
            _within(value, schema, where, "minimum", "maximum", "")
        case "boolean":
            _must(isinstance(value, bool), where, "must be true or false")
        case _:
            pass
    choices = schema.get("enum")
    _must(choices is None or value in choices, where, f"must be one of {choices}")
    return value


def _array(value: Any, schema: Mapping[str, Any], where: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ArgumentError(f"the field {where} must be an array")
    items = list(cast("Sequence[Any]", value))
    _within(len(items), schema, where, "minItems", "maxItems", "items")
    return [_value(item, _mapping(schema.get("items")), f"{where}[{number}]") for number, item in enumerate(items)]


def _within(size: float, schema: Mapping[str, Any], where: str, low: str, high: str, unit: str) -> None:
    at_least, at_most = schema.get(low), schema.get(high)
    of = f" {unit}" if unit else ""
    _must(at_least is None or size >= at_least, where, f"must be at least {at_least}{of}")
    _must(at_most is None or size <= at_most, where, f"must be at most {at_most}{of}")


def _must(right: bool, where: str, demand: str) -> None:
    if not right:
        raise ArgumentError(f"the field {where} {demand}")


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _names(value: Any) -> tuple[str, ...]:
    return tuple(cast("Sequence[str]", value)) if isinstance(value, list | tuple) else ()

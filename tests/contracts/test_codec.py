"""Facts and their bytes: the golden corpus, the round trip, and shapes that are closed at every level."""

import enum
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from maka.contracts import codec
from maka.contracts.actions import Actions
from maka.contracts.codec import CodecError, NewerSchemaError
from maka.contracts.content import Content, Outcome
from maka.contracts.events import Committed, RuntimeEvent
from tests.contracts.examples import EXAMPLES

CORPUS = Path(__file__).parents[1] / "corpus" / "events.v1.jsonl"
FREE_FORM = {"args", "data", "options"}


def lines() -> list[bytes]:
    return CORPUS.read_bytes().splitlines()


def payload(line: bytes) -> bytes:
    return b"\x01" + line


def test_the_corpus_decodes_to_its_examples_and_back_to_its_bytes() -> None:
    assert [codec.decode(payload(line)) for line in lines()] == list(EXAMPLES)
    assert [codec.encode(event) for event in EXAMPLES] == [payload(line) for line in lines()]


def test_the_corpus_holds_every_kind_of_content_and_action() -> None:
    kinds = {type(event.content) for event in EXAMPLES if event.content is not None}
    assert kinds == set(get_args(Content))
    acts = {
        name
        for event in EXAMPLES
        if event.actions is not None
        for name in Actions.__struct_fields__
        if getattr(event.actions, name)
    }
    assert acts == set(Actions.__struct_fields__)


def test_every_field_of_every_shape_is_in_the_corpus() -> None:
    """A field that no line holds could change its name without a test that fails."""
    seen: dict[type[Struct], set[str]] = {}
    for event in EXAMPLES:
        _collect(event, seen)
    missing = {
        f"{shape.__name__}.{field}" for shape in seen for field in shape.__struct_fields__ if field not in seen[shape]
    }
    assert not missing


def _collect(value: Any, seen: dict[type[Struct], set[str]]) -> None:
    if isinstance(value, Struct):
        known = seen.setdefault(type(value), set())
        defaults = dict(zip(reversed(value.__struct_fields__), reversed(value.__struct_defaults__), strict=False))
        for name in value.__struct_fields__:
            each = getattr(value, name)
            if name not in defaults or each != defaults[name]:
                known.add(name)
            _collect(each, seen)
    elif isinstance(value, tuple):
        for each in _elements(value):
            _collect(each, seen)


def _elements(value: Any) -> Iterator[Any]:
    """Iterate without a type: narrowing would make the elements unknown."""
    yield from value


def _objects(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all objects that are shapes."""
    if isinstance(value, dict):
        yield path
        for key, each in cast("dict[str, Any]", value).items():
            if key not in FREE_FORM:
                yield from _objects(each, (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(_elements(value)):
            yield from _objects(each, (*path, at))


def test_an_unknown_key_at_any_level_is_an_error() -> None:
    refused = 0
    for line in lines():
        for path in _objects(msgspec.json.decode(line)):
            whole = msgspec.json.decode(line)
            target = whole
            for key in path:
                target = target[key]
            target["surprise"] = 1
            with pytest.raises(CodecError, match="surprise"):
                codec.decode(payload(msgspec.json.encode(whole)))
            refused += 1
    assert refused > len(lines())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01null",
        b"\x01[]",
        b"\x01{",
        b"\x00{}",
        b"{}",
        b"\x01\xff\xfe",
        b'\x01{"id":"x"}',
    ],
)
def test_bytes_that_are_no_fact_are_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        codec.decode(data)


def test_an_unknown_kind_or_word_is_an_error() -> None:
    text = next(line for line in lines() if b'"kind":"text"' in line)
    for old, new in ((b'"kind":"text"', b'"kind":"song"'), (b'"role":"user"', b'"role":"guru"')):
        assert old in text
        with pytest.raises(CodecError):
            codec.decode(payload(text.replace(old, new)))


def test_a_newer_schema_is_refused_with_what_to_do() -> None:
    with pytest.raises(NewerSchemaError, match="update maka"):
        codec.decode(bytes([codec.SCHEMA_VERSION + 1]) + lines()[0])


def test_exported_lines_begin_with_the_place() -> None:
    item = Committed(position=7, seq=3, event=EXAMPLES[0])
    line = codec.export_line(item)
    assert line.startswith(b'{"position":7,"seq":3,"id":')
    value = msgspec.json.decode(line)
    assert {key: value[key] for key in value if key not in ("position", "seq")} == msgspec.json.decode(
        codec.encode(EXAMPLES[0])[1:]
    )
    assert "sessionId" in value


def test_drafts_carry_the_digest_of_their_payload() -> None:
    (draft,) = codec.drafts(EXAMPLES[:1])
    assert draft.payload == codec.encode(EXAMPLES[0])
    assert codec.hash_hex(draft.payload) == draft.digest.hex()


def test_argument_hashes_do_not_depend_on_key_order() -> None:
    assert codec.canonical_json({"b": 1, "a": {"d": 2, "c": 3}}) == codec.canonical_json(
        {"a": {"c": 3, "d": 2}, "b": 1}
    )


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Draw any value of a contract's type."""
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: texts,
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        type(None): st.none(),
        dict[str, Any]: st.dictionaries(texts, json_values, max_size=3),
    }
    if kind in plain:
        return plain[kind]
    if supertype := getattr(kind, "__supertype__", None):
        return of_type(supertype)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(of_type, get_args(kind)))
    if origin is Literal:
        return st.sampled_from(get_args(kind))
    if origin is tuple:
        return st.lists(of_type(get_args(kind)[0]), max_size=2).map(tuple)
    if issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    assert issubclass(kind, Struct), kind
    return st.builds(kind, **{field.name: of_type(field.type) for field in msgspec.structs.fields(kind)})


@given(of_type(RuntimeEvent))
@settings(max_examples=150)
def test_any_fact_comes_back_from_its_bytes(event: RuntimeEvent) -> None:
    data = codec.encode(event)
    assert codec.decode(data) == event
    assert codec.decode(memoryview(data)) == event
    assert codec.encode(codec.decode(data)) == data


def test_the_words_of_outcomes_are_frozen() -> None:
    assert [outcome.value for outcome in Outcome] == [
        "ok",
        "error",
        "timeout",
        "outcome_unknown",
        "refused",
        "not_started",
        "aborted",
    ]

"""How the file writes what an edit puts in at a looser match: its indentation. Pure."""

from maka.tools.edit_place import MatchError


def indented_like(there: list[str], wanted: list[str], new: str) -> tuple[str, str]:
    """Indent the new lines as the file has it: all shifted by the same, or each as the given ones are.

    Raises MatchError where neither is possible: written as they are they would mix two ways to indent.
    """
    pairs = [(_indent(line), _indent(want)) for line, want in zip(there, wanted, strict=True) if want.strip(" \t")]
    lines = new.split("\n")
    used = {_indent(line) for line in lines if line.strip(" \t\r")}
    if not used or all(real == given for real, given in pairs):
        return new, ""
    deeper = {real[: len(real) - len(given)] if real.endswith(given) else None for real, given in pairs}
    real_of = {given: real for real, given in pairs}
    if len(deeper) == 1 and (shift := deeper.pop()):
        real_of = {given: shift + given for given in used}
    elif len({*pairs}) > len(real_of) or not used <= real_of.keys():
        raise MatchError(
            "old_string isn't there exactly: its indentation differs from the file's, and what that makes of "
            "new_string isn't clear; copy the exact text, with its indentation, from the file"
        )
    fitted = [real_of[_indent(line)] + line[len(_indent(line)) :] if line.strip(" \t\r") else line for line in lines]
    return "\n".join(fitted), "; new_string was indented like the text it replaces"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]

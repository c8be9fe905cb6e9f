"""Text within a bound: what is kept of a text that is too long for its place."""


def head_and_tail(text: str, keep: int) -> str:
    """Return a text of about `keep` characters at most: head, tail, and between them a note of what is left out."""
    if len(text) <= keep:
        return text
    head, tail = (keep + 1) // 2, keep // 2
    note = f"\n… [{len(text) - head - tail:,} characters left out] …\n"
    return text[:head] + note + text[len(text) - tail :]

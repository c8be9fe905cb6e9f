"""Values of options, and what a person is told of one that doesn't fit.

Law: an empty one is most often a variable that wasn't set, and never means the default.
"""

import click


class Filled(click.ParamType[str]):
    """A text that isn't empty."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("it is empty; give a value, or leave the option out.", param, ctx)
        return value


class Number(click.FloatRange):
    """A number within bounds."""

    name = "number"


class WholeNumber(click.IntRange):
    """A whole number within bounds."""

    name = "whole number"


FILLED = Filled()

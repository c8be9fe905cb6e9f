"""Values of options: an empty one is a variable that wasn't set, and never means the default."""

import click


class Filled(click.ParamType[str]):
    """A text that isn't empty."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("it is empty; give a value, or leave the option out.", param, ctx)
        return value


FILLED = Filled()

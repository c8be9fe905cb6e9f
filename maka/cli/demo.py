"""stub"""

import click


@click.command()
def demo() -> None:
    """stub"""

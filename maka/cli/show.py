"""stub"""

import click


@click.command()
def show() -> None:
    """stub"""

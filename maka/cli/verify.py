"""stub"""

import click


@click.command()
def verify() -> None:
    """stub"""

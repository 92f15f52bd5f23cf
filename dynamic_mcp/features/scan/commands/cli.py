"""`dynamic-mcp cli`: command line programs as servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import output_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.group(short_help="Describe command line programs for models.", subcommand_metavar="COMMAND")
def command() -> None:
    """Describe command line programs, so that models can call them as tools."""


@command.command("scan", short_help="Make a pack of a program's commands and flags, for review.")
@click.argument("program")
@click.option("--depth", type=click.IntRange(0, 6), default=3, show_default=True, help="How deep commands may lie.")
@click.option("--commands", "globs", metavar="GLOBS", multiple=True, help="Only these commands; may be repeated.")
@click.option(
    "--from",
    "origin",
    type=click.Choice(["help", "man", "complete", "python", "spec"]),
    help="Read only this source. Default: all, the best for each fact.",
)
@click.option("--spec", metavar="FILE", help="A usage spec as JSON, or a carapace spec.")
@click.option("-o", "--output", metavar="FILE", help="Write the pack here. Default: print it.")
@click.option("-y", "--yes", is_flag=True, help="Ask no questions, and run what is shown.")
@output_options
def scan(
    context: Invocation,
    program: str,
    *,
    depth: int,
    globs: tuple[str, ...],
    origin: str | None,
    spec: str | None,
    output: str | None,
    yes: bool,
) -> int:
    """Find out what a program's commands take, and make a pack of it for review.

    It runs the program with `--help` and the like, after showing that. Each fact says where it is from. The effect of
    a command is unknown unless a spec says it, and unknown counts as write.
    """
    from dynamic_mcp.features.scan.commands import scanning

    split = tuple(glob.strip() for each in globs for glob in each.split(",") if glob.strip())
    options = scanning.Options(depth=depth, globs=split, origin=origin, spec=spec, output=output, yes=yes)
    return scanning.scan(context, program, options)

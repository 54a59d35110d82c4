"""The project's folder and what it is shared with: remotes, housekeeping."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twf import files
from twf.cli.base import DefaultStudyArgument, ParamsFile, app
from twf.errors import UserError
from twf.study import reading

new_app = typer.Typer(no_args_is_help=True, help="What is one's own, made from what is there.")
app.add_typer(new_app, name="new")


@new_app.command("method")
def new_method(
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits, hyphens.")],
    like: Annotated[str, typer.Option(help="The method that it is a copy of at first.")],
    title: Annotated[
        str | None, typer.Option(help="What tables and figures call it. Default: its name.")
    ] = None,
) -> None:
    """Make a method of one's own: loss, hyperparameters, values, test, trace and page.

    It trains as the one it is like, until its loss is changed. Next: docs/add-a-method.md.
    """
    from twf.upkeep import method

    for path in method.new(name, like, title):
        print(path)
    print(f"next: change the loss in {method.LOSSES / name.replace('-', '_')}.py")


@app.command()
def pull(study: DefaultStudyArgument = None) -> None:
    """Bring a study's data, checkpoints and results from DVC's default remote, and touch them.

    Then neither `snakemake` nor `dvc repro` has anything to do. Called again after an interruption,
    it continues. docs/remotes.md has the set-up of a remote.
    """
    from twf.engines import touch as touching

    loaded = reading.load(files.PARAMS)  # the one that both engines read
    touching.pull(loaded, study or loaded.study)


@app.command()
def touch(study: DefaultStudyArgument = None) -> None:
    """After `dvc checkout`: have Snakemake take a study's files as up to date.

    Only if all contents are as in dvc.lock and all records as planned; else it names what differs.
    """
    from twf.engines import touch as touching

    loaded = reading.load(files.PARAMS)
    touching.touch(loaded, study or loaded.study)


@app.command()
def make(
    targets: Annotated[list[str], typer.Argument(help="Files, as for `snakemake`.")],
) -> None:
    """Have Snakemake make files with all cores, unless they are up to date. For DVC's stages."""
    from twf.engines import made

    made.make(targets)


@app.command()
def doctor(params: ParamsFile = files.PARAMS) -> None:
    """Say what is wrong with the set-up, and how to mend it; exit with 1 where something is.

    A line for each check, which is ok, a warning or wrong: code, packages, GPUs, data and
    checkpoints, tracking.
    """
    from twf.upkeep import doctor as examining

    if not examining.show(examining.examine(reading.load(params))):
        raise typer.Exit(1)


@app.command()
def clean(
    params: ParamsFile = files.PARAMS,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it.")] = False,
) -> None:
    """Say what is left over and how many bytes that is; with `--yes`, remove it.

    Logs, partial files of killed processes, saved states of what is done, and records that others
    replaced. Records, data, checkpoints, archives and the states of interrupted runs stay.
    """
    from twf.upkeep import clean as cleaning

    reading.load(params)  # elsewhere, a folder called logs may be anyone's
    found = cleaning.find()
    sizes = [cleaning.size(path) for path in found]
    if yes:
        cleaning.remove(found)
    for path, size in zip(found, sizes, strict=True):
        print(f"{size:>15,}  {path}")
    print(f"{'removed' if yes else 'would be removed'}: {len(found)} items, {sum(sizes):,} bytes")
    if found and not yes:
        print(cleaning.AT_WORK if cleaning.is_locked() else "next: the same with --yes")


@app.command()
def schema(
    output: Annotated[Path, typer.Argument(help="Where to write it.")] = files.SCHEMA,
) -> None:
    """Write the JSON schema of params.yaml, after a change of the types in twf.study.params."""
    _write_generated(output, reading.schema(), "https://json-schema.org/")


@app.command()
def stages(
    output: Annotated[Path, typer.Argument(help="Where to write it.")] = files.STAGES,
    params: ParamsFile = files.PARAMS,
) -> None:
    """Write dvc.yaml, after a change of the data sets, sources or studies of params.yaml."""
    from twf.engines.stages import dvc_yaml

    text = dvc_yaml(reading.load(params))
    _write_generated(output, text, text.splitlines()[0])


def _write_generated(output: Path, text: str, mark: str) -> None:
    """Write a text that has a mark at its beginning, but over no file that has not."""
    if output.exists() and mark not in output.read_bytes()[:200].decode(errors="replace"):
        raise UserError(f"{output} is not a file that this command writes: name another one")
    with files.atomic(output) as partial:
        partial.write_text(text, encoding="utf-8")

"""`twf data`: archives and arrays; and what is about the project's folder: `twf new`, `doctor`."""

from pathlib import Path
from typing import Annotated

import typer

from twf import files
from twf.cli.app import NODES, PROJECT, ParamsFile, app, group
from twf.engines import plans
from twf.errors import UserError, lookup
from twf.study import expand, products, reading

data_app = group("data", NODES, "Data sets: fetch their archives, prepare their arrays.")


@data_app.command("fetch")
def data_fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Such as cifar10.")] = None,
    study: Annotated[str | None, typer.Option(help="All that a study still needs.")] = None,
    params: ParamsFile = files.PARAMS,
) -> None:
    """Fetch official archives, and check them: archives/NAME. Next: `twf data prepare`.

    Their licences, citations and checksums are in src/twf/data/registry.yaml. Called again, it
    keeps what is complete. Where jobs run without network, call it on the login node.
    """
    from twf.data import registry
    from twf.data.fetch import fetch

    wanted, loaded = list(names or []), reading.load(params)
    if study is not None:
        wanted += registry.needed(loaded, expand(loaded, study))
    elif not wanted:
        raise UserError(f"say which: {', '.join(registry.load())}; or --study STUDY")
    entries = {name: registry.entry(name) for name in wanted}
    for name, entry in entries.items():
        fetch(name, entry)


@data_app.command("prepare")
def data_prepare(
    name: Annotated[str, typer.Argument(help="A data set, or its plan file: plans/data/X.json.")],
    params: ParamsFile = files.PARAMS,
) -> None:
    """Make the arrays of a data set: data/NAME.safetensors. Next: `twf pretrain`.

    By a plan file, and nothing of params.yaml; for a name, the plans are written first.
    """
    from twf.data.prepare import prepare

    path = Path(name)
    if path.suffix != ".json":
        _held = plans.write(reading.load(params))
        path = products.named("data set", files.data_plan(name))
    dataset = products.planned_dataset(products.read_plan(path))
    prepare(path.stem, dataset, files.data_file(path.stem))


@data_app.command("import")
def data_import(
    name: Annotated[str, typer.Argument(help="A data set of params.yaml, for example cifar10.")],
    file: Annotated[Path, typer.Argument(help="A .npz, or a folder of folders.")],
    params: ParamsFile = files.PARAMS,
) -> None:
    """Take a published data set from a file of yours: data/NAME.safetensors.

    An .npz has x_train, y_train, x_test and y_test. The images are checked to be the official ones.
    Next: `twf plan STUDY`.
    """
    from twf.data.prepare import import_data

    dataset = lookup("data set", reading.load(params).datasets, name, str(params))
    import_data(name, dataset, file)


@group("new", PROJECT, "Your own method, begun as a copy of another.").command("method")
def new_method(
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits, hyphens.")],
    like: Annotated[str, typer.Option(help="The method that it is copied from.")],
    title: Annotated[str | None, typer.Option(help="What tables call it.")] = None,
) -> None:
    """Make your own method: its loss, hyperparameters, values, and an experiment of the demo.

    It trains as the copied method does until you change its loss. Next: docs/add-a-method.md.
    """
    from twf.upkeep import method

    print(*method.new(name, like, title), sep="\n")
    print(f"next: change the loss in {method.LOSSES / name.replace('-', '_')}.py; then")
    print(f"  snakemake --cores all results/demo/tables/{name}.split-digits.md")
    print(f"  twf compare demo {name} {like}      # {name} minus {like}, with an interval")


@app.command(rich_help_panel=PROJECT)
def doctor(params: ParamsFile = files.PARAMS) -> None:
    """Say what is wrong with the set-up, and how to mend it; exit with 1 where something is.

    A line for each check, which is ok, a warning or wrong: code, packages, GPUs, data and
    checkpoints, tracking.
    """
    from twf.upkeep.doctor import examine

    well = True
    for name, state, message in examine(reading.load(params)):
        print(f"{state:<8}{name:<10}{message}", flush=True)
        well &= state != "wrong"
    if not well:
        raise typer.Exit(1)

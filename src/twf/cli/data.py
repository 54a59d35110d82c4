"""`twf data`: archives and arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twf import files
from twf.cli.base import NODES, ParamsFile, app
from twf.engines import plans
from twf.errors import UserError, lookup
from twf.study import expand, products, reading
from twf.study.params import Dataset

data_app = typer.Typer(
    no_args_is_help=True, help="Data sets: fetch their archives, prepare their arrays."
)
app.add_typer(data_app, name="data", rich_help_panel=NODES)


@data_app.command("list")
def data_list() -> None:
    """List the official archives, and which are present, by their sizes.

    Next: `twf data show NAME` has licence and citation, `twf data fetch NAME` fetches one.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from twf.data import registry
    from twf.data.fetch import status

    reading.load(files.PARAMS)  # elsewhere, archives would not be this project's
    table = Table("name", "title", "train + test", "MiB", "status")
    for name, entry in registry.load().items():
        images = "{train:,} + {test:,}".format(**entry.images) if entry.kind == "images" else ""
        sizes = [file.size for file in entry.files.values() if file.size is not None]
        size = f"{sum(sizes) / 2**20:,.0f}" if len(sizes) == len(entry.files) else "unknown"
        table.add_row(name, escape(entry.title), images, size, status(name, entry))
    Console().print(table)


@data_app.command("show")
def data_show(
    name: Annotated[str, typer.Argument(help="An archive, as `twf data list` names it.")],
) -> None:
    """Show an archive's files, checksums, addresses, licence and citation.

    Next: `twf data fetch NAME`.
    """
    import yaml

    from twf.data import registry
    from twf.data.fetch import status

    reading.load(files.PARAMS)
    entry = registry.entry(name)
    values = {"status": status(name, entry), "folder": str(files.archive_folder(name))}
    values |= entry.model_dump(exclude_none=True, exclude={"citation"})
    print(yaml.safe_dump(values, sort_keys=False, allow_unicode=True) + entry.citation, end="")


@data_app.command("fetch")
def data_fetch(
    names: Annotated[
        list[str] | None, typer.Argument(help="Archives, as `twf data list` names them.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="A study of params.yaml: all that it needs and is not prepared."),
    ] = None,
    params: ParamsFile = files.PARAMS,
) -> None:
    """Fetch official archives, and check them: archives/NAME. Next: `twf data prepare`.

    Called again, it keeps what is complete. Where jobs run without network, call it on the login
    node.
    """
    from twf.data import registry
    from twf.data.fetch import fetch

    wanted, loaded = list(names or []), reading.load(params)
    if study is not None:
        wanted += registry.needed(loaded, expand(loaded, study))
    elif not wanted:
        raise UserError("say which archives, or --study STUDY; `twf data list` names them")
    entries = {name: registry.entry(name) for name in wanted}
    for name, entry in entries.items():
        fetch(name, entry)


@data_app.command("prepare")
def data_prepare(
    name: Annotated[
        str,
        typer.Argument(help="A data set, for example digits; or its plan file: plans/data/X.json."),
    ],
    params: ParamsFile = files.PARAMS,
) -> None:
    """Make the arrays of a data set: data/NAME.safetensors. Next: `twf pretrain train`.

    By a plan file, and nothing of params.yaml; for a name, the plans are written first.
    """
    from twf.data.prepare import prepare

    path, held = Path(name), None
    if path.suffix != ".json":
        _dataset(params, name)
        held = plans.write(reading.load(params))
        path = files.data_plan(name)
    dataset = products.planned_dataset(products.read_plan(path))
    prepare(path.stem, dataset, files.data_file(path.stem))
    del held  # the plans, until here


@data_app.command("import")
def data_import(
    name: Annotated[str, typer.Argument(help="A data set of params.yaml, for example cifar10.")],
    file: Annotated[
        Path,
        typer.Argument(help="A .npz (x_train, y_train, x_test, y_test), or a folder of folders."),
    ],
    params: ParamsFile = files.PARAMS,
) -> None:
    """Take a published data set from a file of yours: data/NAME.safetensors.

    The images are checked to be the official ones. Next: `twf plan STUDY`.
    """
    from twf.data.prepare import import_data

    import_data(name, _dataset(params, name), file)


def _dataset(params: Path, name: str) -> Dataset:
    return lookup("data set", reading.load(params).datasets, name, str(params))

# What the rules ask of the study model. Everything about methods and cells stays there.
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

from twf import files, machine, params, study, warm
from twf.errors import UserError

machine.put_own_command_on_path()

try:
    PARAMS = params.load(files.PARAMS)
    # `--config study=demo` chooses a study; anything else the commands would not hear of
    if params.check(config | {"study": PARAMS.study}) != PARAMS:
        raise UserError(
            "--config takes study=NAME alone; change anything else in params.yaml"
        )
    PARAMS.named_study(config["study"])
except UserError as error:
    raise WorkflowError(str(error))
validate(config, str(Path(workflow.basedir) / files.SCHEMA), set_default=False)


@cache
def plan(name):
    """A study's plan, made when something of it is asked for: its winners may still be to find."""
    try:
        return study.expand(PARAMS, name)
    except UserError as error:
        raise WorkflowError(str(error))


# Jobs share a GPU one at a time (the profile's `resources`), and hold none where there is none.
GPU = int(machine.gpu_present())


wildcard_constraints:
    study="|".join(PARAMS.studies),
    data="[^/]+",
    source="[^/]+",
    run="[^/]+",
    table=r"[^/]+\.[^/]+",  # EXPERIMENT.BENCHMARK


def known(kind, names, name, remedy="params.yaml has {}"):
    """`names[name]`, or an error that says where to look."""
    if name not in names:
        said = remedy.format(", ".join(names))
        raise WorkflowError(f"no {kind} {name!r}: {said}")
    return names[name]


def run_of(wildcards):
    remedy = f"`twf plan {wildcards.study}` lists them"
    return known("run", plan(wildcards.study).runs, wildcards.run, remedy)


def table_of(wildcards):
    return known("table", plan(wildcards.study).tables, wildcards.table, "there is {}")


def data_of(wildcards):
    return known("data set", PARAMS.datasets, wildcards.data)


def source_of(wildcards):
    return known("source", PARAMS.sources, wildcards.source)


def archive_of(wildcards):
    """The archive that a data set is read from, where it is not drawn."""
    return getattr(data_of(wildcards), "file", [])


def pretrain_input(wildcards):
    """The published weights, or the data to train on."""
    source = source_of(wildcards)
    return source.weights or files.data_file(source.data)


def pretrain_parameters(wildcards):
    """What decides the checkpoint beside its input."""
    source = source_of(wildcards)
    augmentation = source.data and PARAMS.datasets[source.data].augmentation
    return source.model_dump_json(), augmentation and augmentation.model_dump_json()


def run_data(wildcards):
    """The data of the benchmark, and of the source where the run needs its images too."""
    run = run_of(wildcards)
    return [files.data_file(d) for d in (run.data, run.source_data) if d is not None]

# What the rules ask of the study model. Everything about methods and cells stays there.
import hashlib
import json
import sys
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod

from twf import checkout, files, study
from twf.cli import variables
from twf.data import preflight, registry
from twf.engines import conda, environment, made, warm
from twf.engines.snapshot import Snapshot
from twf.engines.records import Records
from twf.errors import UserError, lookup
from twf.gpus import visible

environment.put_own_command_on_path()
if workflow.remote_exec:
    environment.pass_on_sigterm()

try:
    environment.refuse_unfit_folder()
    checkout.refuse_other_code(Path(workflow.basedir))
    environment.refuse_other_folder(Path(workflow.basedir))
    # of the jobs, where Snakemake is to make them one
    CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
    ENVIRONMENT = "../../environment.yml"
    if CONDA:
        ENVIRONMENT = str(conda.environment_file(Path(workflow.basedir)))
    SNAPSHOT = Snapshot.read(workflow.remote_exec)
    STUDY = SNAPSHOT.study(config)  # of `rule all`; targets name their own
except UserError as error:
    raise WorkflowError(str(error))
PARAMS = SNAPSHOT.params
RECORDS = Records(workflow, PARAMS)
# so that it is in Snakemake's report, and sent to jobs on other machines
workflow.configfiles.append(str(SNAPSHOT.path))


def unless_refused(function, *words):
    """The function's result; a user's mistake ends the workflow before its first job.

    But in an input function, where Snakemake passes over it if the output is there, and else shows
    a traceback: there `or_end` does it.
    """
    try:
        return function(*words)
    except UserError as error:
        raise WorkflowError(str(error))


def or_end(function, *words):
    """The function's result; a user's mistake ends Snakemake at once."""
    try:
        return function(*words)
    except UserError as error:
        sys.exit(f"error: {error}")


@cache
def plan(name):
    """A study's plan, made on demand: its best hyperparameters may not have been found yet."""
    return or_end(study.expand, PARAMS, name)


def looked_at():
    """All files that decide whether there is anything to do."""
    jobs = workflow.dag.jobs
    found = {str(path) for job in jobs for path in (*job.input, *job.output)}
    best = {each.best_hyperparameters for each in PARAMS.studies.values()} - {None}
    return found | RECORDS.files | best | {str(SNAPSHOT.path)}


BEGAN = {}  # the states of what no job makes, when the first began


def note_beginning():
    """Remember the files as they are: one that is edited meanwhile was not looked at."""
    makes = {str(path) for job in workflow.dag.needrun_jobs() for path in job.output}
    BEGAN.update(made.states(looked_at() - makes))


def note_made():
    """Note for DVC what is made, but where a file was edited meanwhile."""
    if made.states(BEGAN) == BEGAN:
        made.note(looked_at())


# A job that trains takes a slot of a GPU if there is one. On a cluster each command looks by itself:
# other jobs need no GPU, and may run on a node whose GPUs are not for them.
GPUS = [] if workflow.remote_exec else unless_refused(visible.gpus)
GPU = int(bool(GPUS))
if not workflow.remote_exec:
    unless_refused(variables.refuse_wrong, PARAMS)
if GPUS and "gpu" not in workflow.global_resources:  # else `--resources gpu=N` says it
    workflow.register_resource("gpu", len(GPUS) * PARAMS.gpu_slots)

# By the Snakemake that was started: one in a cluster's job could not ask for more time or memory.
RETRIES = 0 if workflow.remote_exec else 2


wildcard_constraints:
    study="[^/]+",  # looked up, as the others are
    archive="[a-z0-9-]+",  # no rule before `fetch` looks it up
    data="[^/]+",
    source="[^/]+",
    run="[^/]+",
    table=r"[^/]+\.[^/]+",  # EXPERIMENT.BENCHMARK


@cache
def require_data(name):
    """Raise `UserError` where a data set is wrong, or is missing or stale and cannot be made."""
    preflight.data(name, PARAMS.datasets[name])


def require_data_of(run, name):
    """The same, where a run asks for it, with its reason."""
    try:
        require_data(name)
    except UserError as error:
        raise UserError(f"{error}. {preflight.needed_by(run, name)}")


@cache
def require_network(name):
    """Raise `UserError` where a source's network is missing or stale, and cannot be made."""
    preflight.network(PARAMS, name)


def run_of(wildcards):
    return unless_refused(plan(wildcards.study).named_run, wildcards.run)


def table_of(wildcards):
    return unless_refused(plan(wildcards.study).named_table, wildcards.table)


def data_of(wildcards):
    place = "params.yaml"
    return unless_refused(lookup, "data set", PARAMS.datasets, wildcards.data, place)


def source_of(wildcards):
    return unless_refused(PARAMS.named_source, wildcards.source)


def records_of(wildcards):
    """The records of all runs of a study."""
    return [
        files.record_file(wildcards.study, run) for run in plan(wildcards.study).runs
    ]


def records_of_table(wildcards):
    """The records that a table is made of."""
    runs = plan(wildcards.study).runs_of(table_of(wildcards))
    return [files.record_file(wildcards.study, run) for run in runs]


def records_of_searches(wildcards):
    """The records of all trials of a study's searches."""
    runs = plan(wildcards.study).runs_of_searches()
    return [files.record_file(wildcards.study, run) for run in runs]


def tables_of(wildcards):
    """All tables of a study, as they are read again."""
    RECORDS.force_what_is_incomplete(plan(wildcards.study))
    names = plan(wildcards.study).tables
    endings = ("parquet", "csv")
    return [files.table_file(wildcards.study, n, e) for n in names for e in endings]


def trials_of(wildcards):
    """What a study's searches found."""
    return files.search_files(wildcards.study) if plan(wildcards.study).search else []


def data_input(wildcards):
    """What a data set is read from: a file of the user's, an archive to fetch, or nothing."""
    dataset = data_of(wildcards)
    RECORDS.force_data_if_stale(wildcards.data, data_parameters(wildcards))
    stale = str(files.data_file(wildcards.data)) in RECORDS.stale
    (or_end if stale else unless_refused)(require_data, wildcards.data)
    if dataset.reader == "official":
        return ancient(str(files.receipt_file(dataset.archive)))
    return dataset.file if dataset.reader == "archive" else []


def data_parameters(wildcards):
    """What a data set depends on beside its input: images are augmented in training."""
    return data_of(wildcards).model_dump_json(exclude={"title", "augmentation"})


def prepared(name):
    """A data set's file; a published one's content is fixed, so its time does not matter."""
    path = str(files.data_file(name))
    return ancient(path) if PARAMS.datasets[name].reader == "official" else path


def pretrain_input(wildcards):
    """The weights to read, or the data to train on."""
    source = source_of(wildcards)
    if source.trained_on is not None:
        made_from = prepared(source.trained_on)
    elif (archive := registry.of_file(Path(source.weights))) is not None:
        made_from = ancient(str(files.receipt_file(archive)))
    else:
        made_from = source.weights
    parameters = pretrain_parameters(wildcards)
    needed = RECORDS.force_network_if_stale(wildcards.source, parameters, [made_from])
    if str(files.checkpoint_file(wildcards.source)) in RECORDS.stale:
        or_end(require_network, wildcards.source)
    elif source.trained_on is None:
        unless_refused(require_network, wildcards.source)
    return needed


def pretrain_parameters(wildcards):
    """What the checkpoint depends on beside its input."""
    source = source_of(wildcards)
    augmentation = source.data and PARAMS.datasets[source.data].augmentation
    # what is not set is left out: a key that a new version adds trains no network again
    recipe = source.model_dump_json(exclude_none=True)
    return recipe, augmentation and augmentation.model_dump_json()


def digest(*parts):
    """A hash of the parts; Snakemake's own report would show titles unescaped."""
    texts = [
        part if isinstance(part, str) else part.model_dump_json() for part in parts
    ]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def hash_of_runs(name, runs):
    """A hash of what the plan says of some runs: what is made of their records is of a plan."""
    return digest(*(plan(name).runs[run].parameters for run in runs))


def hash_of_statement(name):
    """A hash of what the statement says of params.yaml beside its inputs."""
    streams = {run.benchmark for run in plan(name).runs.values()}
    parts = [PARAMS.studies[name], *(PARAMS.benchmarks[s] for s in sorted(streams))]
    return digest(*parts, str(PARAMS.fidelity))


def run_input(wildcards):
    """The data of the benchmark, of the source if the run needs its images too, the checkpoint."""
    run = run_of(wildcards)
    data = [name for name in (run.data, run.source_data) if name is not None]
    made_from = [*map(prepared, data), str(files.checkpoint_file(run.source))]
    inputs = RECORDS.force_run_if_stale(run, made_from)
    if RECORDS.makes(run):
        for name in data:
            or_end(require_data_of, run, name)
        or_end(require_network, run.source)
    return inputs

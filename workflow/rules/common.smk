# What the rules ask of plan files (docs/engines.md). Everything about methods is in twf.study.
import os
import sys
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

from twf import checkout, files, study
from twf.cli import training
from twf.data import registry
from twf.engines import environment, plans
from twf.errors import UserError
from twf.gpus import devices
from twf.study import products, reading

ENVIRONMENT = "../envs/environment.yml"
MAIN = workflow.is_main_process  # not a cluster's job, which reads nothing of params.yaml

# `twf` is the one beside this Python, also where no environment is activated
own = str(Path(sys.executable).parent)
os.environ.update(PATH=os.pathsep.join([own, *os.get_exec_path()]))
if workflow.remote_exec:
    environment.pass_on_sigterm()

try:
    if config.keys() - {"study"}:
        raise UserError(f"--config takes only study=NAME; for all else change {files.PARAMS}")
    checkout.refuse_other_code(Path(workflow.basedir))
    PARAMS = reading.load(files.PARAMS) if MAIN else None
    if MAIN:
        training.refuse_wrong_variables(PARAMS)
    # A job that trains takes a slot of a GPU if there is one. On a cluster each command looks by
    # itself: other jobs need no GPU, and may run on a node whose GPUs are not for them.
    GPUS = [] if workflow.remote_exec else devices.gpus()
except UserError as error:
    raise WorkflowError(str(error))
GPU = int(bool(GPUS))
if GPUS and "gpu" not in workflow.global_resources:  # else `--resources gpu=N` says it
    slots = int(os.environ.get("TWF_GPU_SLOTS") or PARAMS.gpu_slots)
    workflow.register_resource("gpu", len(GPUS) * slots)

# By the Snakemake that was started: one in a cluster's job could not ask for more time or memory.
RETRIES = 0 if workflow.remote_exec else 2


wildcard_constraints:
    study="[^/]+",
    archive="[a-z0-9-]+",  # no rule before `fetch` looks it up
    data="[^/]+",
    source="[^/]+",
    run="[^/]+",
    table=r"[^/]+\.[^/]+",  # EXPERIMENT.BENCHMARK


def or_end(function, *words):
    """The function's result; a user's mistake ends Snakemake, which else shows a traceback."""
    try:
        return function(*words)
    except (UserError, OSError) as error:
        sys.exit(f"error: {error}")


def default_study():
    """The study of `rule all`."""
    return config.get("study", PARAMS.study)


@cache
def planned():
    """The plans, written before Snakemake looks at any: of the studies that its targets name."""
    if not MAIN:
        return plans.Written()
    targets = [Path(target).parts for target in workflow.dag_settings.targets]
    studies = {parts[1] for parts in targets if parts[0] == "results" and parts[2:]}
    if not targets or any(len(parts) == 1 for parts in targets):  # a rule's name
        studies.add(default_study())
    return or_end(plans.write, PARAMS, *sorted(studies))


def why(wildcards, output):
    """What is not as planned of a product that is there, to be said with its job."""
    reason = planned().why.get(str(output[0]))
    return f": {reason}" if reason else ""


FILES = {  # of each kind of product: its plan file, and itself
    "data set": (files.data_plan, files.data_file),
    "source": (files.checkpoint_plan, files.checkpoint_file),
    "run": (files.run_plan, files.record_file),
    "study": (files.study_plan, files.runs_file),
}
# Where rules and folders stand in this order; all else is made of records, and last
STEPS = {"fetch": 0, "archives": 0, "data": 0, "pretrain": 1, "checkpoints": 1, "run": 2}


def made_by(kind, made_from, *names):
    """A product's plan; and what it is made from, unless it is as planned and not forced."""
    plan, product = (file(*names) for file in FILES[kind])
    planned()
    or_end(products.named, kind, plan)
    asked, step = workflow.dag_settings, [*FILES].index(kind)
    named = map(Path, {*asked.forcerun, *(asked.targets if asked.forcetargets else ())})
    # what is made of others, like another's record, says nothing of this product
    forced = asked.forceall or any(
        name == product or STEPS.get(name.parts[0], len(FILES) - 1) <= step for name in named
    )
    done = plans.is_made(product, plan) and not forced
    return {"plan": str(plan), "made_from": [] if done else made_from(products.read_plan(plan))}


def brought(file):
    """A file from elsewhere, whose time says nothing: of an archive to fetch, or the user's."""
    archive = registry.of_file(Path(file))
    if not archive and not Path(file).exists():
        sys.exit(f"error: no {file}: put it there, or change its name in {files.PARAMS}")
    return ancient(str(files.receipt_file(archive)) if archive else file)


def of_data(plan):
    if plan["reader"] == "official":
        return ancient(str(files.receipt_file(plan["archive"])))
    return brought(plan["file"]) if "file" in plan else []


def of_network(plan):
    return brought(plan["weights"]) if "weights" in plan else files.data_file(plan["data"])


def study_plan(wildcards):
    """The plan of what is made of a study's records."""
    planned()
    return str(or_end(products.named, "study", files.study_plan(wildcards.study)))


def records_of(wildcards, runs_of):
    """The records of some of a study's runs, as its plan stands for them."""
    plan = Path(study_plan(wildcards))
    runs = or_end(lambda: runs_of(study.expand(reading.load(plan), wildcards.study)))
    return [files.record_file(wildcards.study, run) for run in runs]

# The pipeline: data -> pretrain -> runs -> collect -> tables, comparison, figures -> report.
#
#   snakemake --cores all                             the default study of params.yaml, whole
#   snakemake --cores all results/demo/report.html    the demo study
#   snakemake --cores all results/demo/runs/split-digits.twf.50.s0.parquet    one run
#
# Rules hold no logic: each is one call of the `twf` command, and asks twf.study what to make.
from snakemake.utils import min_version

min_version("9.16")


include: "workflow/rules/common.smk"


report: "workflow/report/workflow.rst"


localrules:  # on a cluster, seconds where Snakemake runs, without a wait in the queue
    all,
    collect,
    table,
    search,
    compare,
    figures,
    report,
    findings,


rule all:
    input:
        files.REPORT.format(study=STUDY),


onstart:
    unless_refused(files.refuse_from_future)
    unless_refused(SNAPSHOT.keep, Path(".snakemake/planned"))
    unless_refused(note_beginning)
    # it takes as long to start as two jobs by themselves; in an environment for jobs alone, one of
    # them would need to start it
    few = sum(1 for _ in workflow.dag.needrun_jobs()) <= 4
    if workflow.local_exec and not GPU and not CONDA and not few:
        warm.start(Path(f".snakemake/twf-{os.getpid()}.socket"))


onsuccess:
    unless_refused(SNAPSHOT.require_unchanged)
    unless_refused(RECORDS.require_followed)
    unless_refused(note_made)


include: "workflow/rules/data.smk"
include: "workflow/rules/pretrain.smk"
include: "workflow/rules/runs.smk"
include: "workflow/rules/collect.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/findings.smk"

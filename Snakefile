# The pipeline: data -> pretrain -> runs -> collect -> report, with its tables and figures.
#
#   snakemake --cores all                             the default study of params.yaml, whole
#   snakemake --cores all results/demo/report.html    the demo study
#   snakemake --cores all results/demo/runs/split-digits.twf.50.s0.parquet    one run
#
# Rules hold no logic: each is one call of the `twf` command, which reads a plan file. By `exec`, the
# command is Snakemake's own child: no shell between them ends before it on SIGTERM.
from snakemake.utils import min_version

min_version("9.16")


include: "workflow/rules/common.smk"


localrules:  # on a cluster, seconds where Snakemake runs; maybe the only node with a network
    all,
    fetch,
    collect,
    table,
    search,
    report,


rule all:
    input:
        lambda wildcards: files.report_file(default_study()),


include: "workflow/rules/data.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/results.smk"

rule collect:
    input:
        unpack(lambda w: made_by("study", lambda _: plans.records_of_plans(w.study), w.study)),
    output:
        files.runs_file("{study}"),
    log:
        "logs/{study}/collect.log",
    conda:
        ENVIRONMENT
    shell:
        "exec twf collect {input.plan} > {log} 2>&1"


# One of the tables of the report, from its own runs only, before the study is done.
rule table:
    input:
        lambda w: records_of(w, lambda of: of.runs_of(of.named_table(w.table))),
        plan=study_plan,
    output:
        [files.table_file("{study}", "{table}", ending) for ending in files.TABLE_FORMATS],
    log:
        "logs/{study}/tables/{table}.log",
    conda:
        ENVIRONMENT
    shell:
        "exec twf table {input.plan} {wildcards.table} > {log} 2>&1"


# The best trials of the searches, from these trials only: another study may wait for them.
rule search:
    input:
        lambda w: records_of(w, lambda of: of.runs_of_searches()),
        plan=study_plan,
    output:
        files.search_files("{study}"),
    log:
        "logs/{study}/search.log",
    conda:
        ENVIRONMENT
    shell:
        "exec twf search {input.plan} > {log} 2>&1"


rule report:
    input:
        plan=study_plan,
        runs=files.runs_file("{study}"),
    output:
        files.report_file("{study}"),
        files.runs_page("{study}"),
        [files.estimates_file("{study}", ending) for ending in files.ESTIMATE_FORMATS],
        files.metrics_file("{study}"),
        directory(files.figures_folder("{study}")),
    log:
        "logs/{study}/report.log",
    conda:
        ENVIRONMENT
    shell:
        "exec twf report {input.plan} > {log} 2>&1"

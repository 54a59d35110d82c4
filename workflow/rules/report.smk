rule describe:
    input:
        runs=files.RUNS,
        checkpoints=lambda w: [files.checkpoint_file(s) for s in plan(w.study).sources],
        comparison=f"{files.COMPARISON}.parquet",
        claims=f"{files.CLAIMS}.parquet",
    output:
        report(
            files.STATEMENT,
            caption="../report/statement.rst",
            category="Reproducibility",
            labels={"text": "statement"},
        ),
        report(
            directory(files.MODEL_CARDS),
            patterns=["{source}.md"],
            caption="../report/model-card.rst",
            category="Reproducibility",
            labels={"text": "model card, {source}"},
        ),
    log:
        "logs/{study}/describe.log",
    benchmark:
        "logs/{study}/describe.tsv"
    conda:
        ENVIRONMENT
    params:
        described=lambda w: hash_of_statement(w.study),
    shell:
        "twf describe {wildcards.study} > {log} 2>&1"


rule report:
    input:
        runs=files.RUNS,
        # It reads runs, figures, statement and cards. The rest it computes from the runs again: it
        # is here so that whoever makes the report has all of it.
        tables=lambda w: [
            files.table_file(w.study, table, "parquet")
            for table in plan(w.study).tables
        ],
        figures=files.FIGURES,
        search=lambda w: files.search_files(w.study) if plan(w.study).search else [],
        comparison=f"{files.COMPARISON}.parquet",
        claims=f"{files.CLAIMS}.parquet",
        metrics=files.METRICS,
        statement=files.STATEMENT,
        cards=files.MODEL_CARDS,
    output:
        report(
            files.REPORT,
            caption="../report/report.rst",
            category="Report",
            labels={"text": "report"},
        ),
    log:
        "logs/{study}/report.log",
    benchmark:
        "logs/{study}/report.tsv"
    conda:
        ENVIRONMENT
    params:
        title=lambda w: digest(plan(w.study).title),
    shell:
        "twf report {wildcards.study} > {log} 2>&1"

rule report:
    input:
        runs=files.RUNS,
        tables=tables_of,
        trials=trials_of,
        figures=files.FIGURES,
        compared=[
            f"{made}.{ending}"
            for made in (files.COMPARISON, files.ORDER, files.CLAIMS, files.GAINS)
            for ending in ("parquet", "csv")
        ],
    output:
        report(
            files.REPORT,
            caption="../report/report.rst",
            category="Report",
            labels={"text": "report"},
        ),
        report(
            files.STATEMENT,
            caption="../report/statement.rst",
            category="Report",
            labels={"text": "reproducibility"},
        ),
    log:
        "logs/{study}/report.log",
    benchmark:
        "logs/{study}/report.tsv"
    conda:
        ENVIRONMENT
    params:
        title=lambda w: digest(plan(w.study).title),
        described=lambda w: hash_of_statement(w.study),
    shell:
        "twf report {wildcards.study} > {log} 2>&1"

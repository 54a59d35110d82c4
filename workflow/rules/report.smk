rule report:
    input:
        runs=files.RUNS,
        tables=lambda w: [
            files.table_file(w.study, table, "parquet")
            for table in plan(w.study).tables
        ],
        figures=files.FIGURES,
        search=lambda w: files.search_files(w.study) if plan(w.study).search else [],
        comparison=f"{files.COMPARISON}.parquet",
        claims=f"{files.CLAIMS}.parquet",
        metrics=files.METRICS,  # not read: whoever makes the report has it for DVC
    output:
        files.REPORT,
    log:
        "logs/{study}/report.log",
    benchmark:
        "logs/{study}/report.tsv"
    conda:
        "../../environment.yml"
    params:
        title=lambda w: plan(w.study).title,
    shell:
        "twf report {wildcards.study} > {log} 2>&1"

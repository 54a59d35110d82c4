rule table:
    input:
        runs=records_of_table,
        numbers=str(files.PRINTED),
    output:
        [f"{files.TABLE}.{ending}" for ending in files.TABLE_FORMATS if ending != "csv"],
        report(
            f"{files.TABLE}.csv",
            caption="../report/table.rst",
            category="Tables",
            labels={"table": "{table}"},
        ),
    log:
        "logs/{study}/tables/{table}.log",
    benchmark:
        "logs/{study}/tables/{table}.tsv"
    conda:
        ENVIRONMENT
    params:
        table=lambda w: digest(table_of(w), plan(w.study).note or ""),
        version=files.TABLES_VERSION,
        runs=lambda w: hash_of_runs(w.study, plan(w.study).runs_of(table_of(w))),
    shell:
        "twf table {wildcards.study} {wildcards.table} > {log} 2>&1"


rule search:
    input:
        records_of_searches,
    output:
        report(
            files.SEARCH[0],
            caption="../report/search.rst",
            category="Tables",
            labels={"table": "hyperparameters searched for"},
        ),
        files.SEARCH[1:],
    log:
        "logs/{study}/search.log",
    benchmark:
        "logs/{study}/search.tsv"
    conda:
        ENVIRONMENT
    params:
        cells=lambda w: digest(*plan(w.study).search),
        version=files.TABLES_VERSION,
        runs=lambda w: hash_of_runs(w.study, plan(w.study).runs_of_searches()),
    shell:
        "twf search {wildcards.study} > {log} 2>&1"


rule compare:
    input:
        runs=files.RUNS,
        tables=tables_of,
        trials=trials_of,
        numbers=str(files.PRINTED),
    output:
        files.METRICS,
        [f"{files.ORDER}.{ending}" for ending in ("parquet", "csv")],
        [
            f"{made}.{ending}"
            for made in (files.COMPARISON, files.CLAIMS, files.GAINS)
            for ending in files.COMPARISON_FORMATS
            if ending != "csv"
        ],
        report(
            f"{files.COMPARISON}.csv",
            caption="../report/comparison.rst",
            category="Beside the paper",
            labels={"table": "numbers"},
        ),
        report(
            f"{files.CLAIMS}.csv",
            caption="../report/claims.rst",
            category="Beside the paper",
            labels={"table": "claims"},
        ),
        report(
            f"{files.GAINS}.csv",
            caption="../report/gains.rst",
            category="Beside the paper",
            labels={"table": "gains"},
        ),
    log:
        "logs/{study}/compare.log",
    benchmark:
        "logs/{study}/compare.tsv"
    conda:
        ENVIRONMENT
    params:
        tables=lambda w: digest(*plan(w.study).tables.values()),
        version=files.TABLES_VERSION,
    shell:
        "twf compare {wildcards.study} > {log} 2>&1"

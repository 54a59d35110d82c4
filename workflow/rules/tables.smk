rule table:
    input:
        runs=files.RUNS,
        published=str(files.PUBLISHED),
    output:
        multiext(files.TABLE, *(f".{ending}" for ending in files.TABLE_FORMATS)),
    log:
        "logs/{study}/tables/{table}.log",
    benchmark:
        "logs/{study}/tables/{table}.tsv"
    conda:
        "../../environment.yml"
    params:
        table=lambda w: table_of(w).model_dump_json(),
    shell:
        "twf table {wildcards.study} {wildcards.table} > {log} 2>&1"


rule search:
    input:
        files.RUNS,
    output:
        files.SEARCH,
    log:
        "logs/{study}/search.log",
    benchmark:
        "logs/{study}/search.tsv"
    conda:
        "../../environment.yml"
    params:
        cells=lambda w: [cell.model_dump_json() for cell in plan(w.study).search],
    shell:
        "twf search {wildcards.study} > {log} 2>&1"


rule metrics:
    input:
        runs=files.RUNS,
        published=str(files.PUBLISHED),
    output:
        files.METRICS,
    log:
        "logs/{study}/metrics.log",
    benchmark:
        "logs/{study}/metrics.tsv"
    conda:
        "../../environment.yml"
    params:
        tables=lambda w: [
            table.model_dump_json() for table in plan(w.study).tables.values()
        ],
        search=lambda w: [cell.model_dump_json() for cell in plan(w.study).search],
    shell:
        "twf metrics {wildcards.study} > {log} 2>&1"


rule compare:
    input:
        runs=files.RUNS,
        published=str(files.PUBLISHED),
    output:
        multiext(
            files.COMPARISON, *(f".{ending}" for ending in files.COMPARISON_FORMATS)
        ),
        multiext(files.CLAIMS, *(f".{ending}" for ending in files.COMPARISON_FORMATS)),
    log:
        "logs/{study}/compare.log",
    benchmark:
        "logs/{study}/compare.tsv"
    conda:
        "../../environment.yml"
    params:
        tables=lambda w: [
            table.model_dump_json() for table in plan(w.study).tables.values()
        ],
    shell:
        "twf compare {wildcards.study} > {log} 2>&1"

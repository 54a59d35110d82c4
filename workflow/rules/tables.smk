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

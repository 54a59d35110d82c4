rule collect:
    input:
        records_of,
    output:
        files.RUNS,
    log:
        "logs/{study}/collect.log",
    benchmark:
        "logs/{study}/collect.tsv"
    conda:
        ENVIRONMENT
    params:
        runs=lambda w: hash_of_runs(w.study, plan(w.study).runs),
    shell:
        "twf collect {wildcards.study} > {log} 2>&1"

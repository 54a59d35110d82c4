rule collect:
    input:
        lambda w: [files.record_file(w.study, run) for run in plan(w.study).runs],
    output:
        files.RUNS,
    log:
        "logs/{study}/collect.log",
    benchmark:
        "logs/{study}/collect.tsv"
    conda:
        "../../environment.yml"
    shell:
        "twf collect {wildcards.study} > {log} 2>&1"

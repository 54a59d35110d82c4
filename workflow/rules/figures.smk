rule figures:
    input:
        files.RUNS,
    output:
        directory(files.FIGURES),
    log:
        "logs/{study}/figures.log",
    benchmark:
        "logs/{study}/figures.tsv"
    conda:
        "../../environment.yml"
    params:
        tables=lambda w: [t.model_dump_json() for t in plan(w.study).tables.values()],
    shell:
        "twf figures {wildcards.study} > {log} 2>&1"

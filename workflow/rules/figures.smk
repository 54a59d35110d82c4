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
        # figures do not show forgetting
        tables=lambda w: [
            table.model_dump_json(exclude={"forgetting"})
            for table in plan(w.study).tables.values()
        ],
    shell:
        "twf figures {wildcards.study} > {log} 2>&1"

rule figures:
    input:
        runs=files.RUNS,
        numbers=str(files.PRINTED),
    output:
        report(
            # those of before stay: what has not changed is not drawn again
            update(directory(files.FIGURES)),
            patterns=["{figure}.svg"],
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
    log:
        "logs/{study}/figures.log",
    benchmark:
        "logs/{study}/figures.tsv"
    conda:
        ENVIRONMENT
    params:
        # figures do not show forgetting
        tables=lambda w: digest(
            *(
                table.model_dump_json(exclude={"forgetting"})
                for table in plan(w.study).tables.values()
            )
        ),
    shell:
        "twf figures {wildcards.study} > {log} 2>&1"

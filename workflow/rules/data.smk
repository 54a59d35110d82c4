rule data:
    input:
        archive_of,
    output:
        files.DATA,
    log:
        "logs/data/{data}.log",
    benchmark:
        "logs/data/{data}.tsv"
    conda:
        "../../environment.yml"
    params:
        # what an image passes on its way to the network is not part of the arrays
        dataset=lambda w: data_of(w).model_dump_json(exclude={"title", "augmentation"}),
    shell:
        "twf data prepare {wildcards.data} > {log} 2>&1"

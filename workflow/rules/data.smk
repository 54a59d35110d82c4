localrules:
    fetch,  # on a cluster, the node that Snakemake runs on may be the only one with network


rule fetch:
    output:
        files.RECEIPT,
    log:
        "logs/fetch/{archive}.log",
    benchmark:
        "logs/fetch/{archive}.tsv"
    conda:
        ENVIRONMENT
    shell:
        "twf data fetch {wildcards.archive} > {log} 2>&1"


rule data:
    input:
        data_input,
    output:
        update(files.DATA),  # what a refused archive leaves is what was there
    log:
        "logs/data/{data}.log",
    benchmark:
        "logs/data/{data}.tsv"
    conda:
        ENVIRONMENT
    params:
        dataset=data_parameters,
    shell:
        "twf data prepare {wildcards.data} > {log} 2>&1"

rule fetch:
    output:
        files.receipt_file("{archive}"),
    log:
        "logs/fetch/{archive}.log",
    retries: 2
    conda:
        ENVIRONMENT
    shell:
        "exec twf data fetch {wildcards.archive} > {log} 2>&1"


rule data:
    input:
        unpack(lambda w: made_by("data set", of_data, w.data)),
    output:
        update(files.data_file("{data}")),  # what a refused archive leaves is what was there
    log:
        "logs/data/{data}.log",
    conda:
        ENVIRONMENT
    params:
        why=why,
    message:
        "data {wildcards.data}{params.why}"
    shell:
        "exec twf data prepare {input.plan} > {log} 2>&1"

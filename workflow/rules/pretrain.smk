rule pretrain:
    input:
        pretrain_input,
    output:
        update(files.CHECKPOINT),  # an older one stays until the new one is there
    log:
        "logs/pretrain/{source}.log",
    benchmark:
        "logs/pretrain/{source}.tsv"
    retries: RETRIES
    conda:
        ENVIRONMENT
    resources:
        gpu=GPU,
        attempt=lambda wildcards, attempt: attempt,
    params:
        source=pretrain_parameters,
    shell:
        # exec: a shell would end on SIGTERM without waiting for the command
        "exec twf pretrain train {wildcards.source}"
        " --threads {threads} --attempt {resources.attempt} > {log} 2>&1"

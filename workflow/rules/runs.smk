rule run:
    input:
        run_input,
    output:
        update(files.RECORD),  # an older one stays until the new one is there
    log:
        "logs/{study}/runs/{run}.log",
    benchmark:
        "logs/{study}/runs/{run}.tsv"
    retries: RETRIES
    conda:
        ENVIRONMENT
    resources:
        gpu=GPU,
        attempt=lambda wildcards, attempt: attempt,
    params:
        # what the record is held to; `Records.force_run_if_stale` looks for it in Snakemake's notes
        parameters=lambda w: run_of(w).parameters,
        # `output` keeps it out of Snakemake's notes
        why=lambda wildcards, output: RECORDS.why.get(output[0], ""),
    message:
        "run {wildcards.run} of study {wildcards.study}{params.why}"
    shell:
        # exec: a shell would end on SIGTERM without waiting for the command
        "exec twf run {wildcards.study} {wildcards.run}"
        " --threads {threads} --attempt {resources.attempt} > {log} 2>&1"

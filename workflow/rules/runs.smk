rule run:
    input:
        data=run_data,
        checkpoint=lambda w: files.checkpoint_file(run_of(w).source),
    output:
        files.RECORD,
    log:
        "logs/{study}/runs/{run}.log",
    benchmark:
        "logs/{study}/runs/{run}.tsv"
    retries: RETRIES
    conda:
        "../../environment.yml"
    resources:
        gpu=GPU,
        attempt=lambda wildcards, attempt: attempt,
    params:
        # all that decides the result: Snakemake runs again what has changed here
        parameters=lambda w: run_of(w).parameters,
    shell:
        # in the place of the shell, which would end on SIGTERM without waiting for it
        "exec twf run {wildcards.study} {wildcards.run}"
        " --threads {threads} --attempt {resources.attempt} > {log} 2>&1"

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
        # all that the result depends on: a change here reruns the run
        parameters=lambda w: run_of(w).parameters,
    shell:
        # exec: a shell would end on SIGTERM without waiting for the command
        "exec twf run {wildcards.study} {wildcards.run}"
        " --threads {threads} --attempt {resources.attempt} > {log} 2>&1"

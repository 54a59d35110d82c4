rule pretrain:
    input:
        unpack(lambda w: made_by("source", of_network, w.source)),
    output:
        update(files.checkpoint_file("{source}")),  # an older one stays until the new one is there
    log:
        "logs/pretrain/{source}.log",
    benchmark:
        "logs/pretrain/{source}.tsv"
    retries: RETRIES
    conda:
        ENVIRONMENT
    resources:
        gpu=GPU,
    params:
        why=why,
    message:
        "pretrain {wildcards.source}{params.why}"
    shell:
        "exec twf pretrain {input.plan}" " --threads {threads} --job $PPID > {log} 2>&1"


rule run:
    input:
        unpack(lambda w: made_by("run", plans.inputs_of, w.study, w.run)),
    output:
        update(files.record_file("{study}", "{run}")),  # an older one stays until the new one is there
    log:
        "logs/{study}/runs/{run}.log",
    benchmark:
        "logs/{study}/runs/{run}.tsv"
    retries: RETRIES
    conda:
        ENVIRONMENT
    resources:
        gpu=GPU,
    params:
        why=why,
    message:
        "run {wildcards.run} of study {wildcards.study}{params.why}"
    shell:
        "exec twf run {input.plan}" " --threads {threads} --job $PPID > {log} 2>&1"

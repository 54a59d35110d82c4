rule findings:
    input:
        files.FINDINGS_FROM,
    output:
        files.FINDINGS,
    log:
        "logs/findings.log",
    shell:
        "twf findings > {log} 2>&1"

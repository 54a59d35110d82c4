"""What Snakemake and DVC need of this project."""

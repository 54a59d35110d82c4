"""Speed and memory of training and its parts, beside the authors' published code: `--help`."""

"""Cases, references and verdicts; drives a bundle on a GPU in child processes."""
